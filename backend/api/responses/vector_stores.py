"""Answers about files and vector stores: OpenAI's objects, with what is ours beside their fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from backend.api.problems import error_class
from backend.errors import BadInput, FinanciaError, WrongMediaType
from backend.search.records import (
    FILE_STATUSES,
    FileRecord,
    IndexFailure,
    PageSize,
    PlacedWord,
    Scalar,
    StoredChunk,
    StoreFile,
    VectorStore,
)
from backend.search.vector_stores import FileBatch, index_warnings
from backend.speech.pages import seconds_of

Status = Literal["in_progress", "completed", "cancelled", "failed"]
FailureCode = Literal["server_error", "unsupported_file", "invalid_file"]
_DAY_S = 86_400
# Codes of failures that are not what their class says; the first three are those of earlier releases.
_OPENAI_FAILURES: dict[str, FailureCode] = {
    "server_error": "server_error",
    "unsupported_file": "unsupported_file",
    "invalid_file": "invalid_file",
    WrongMediaType.code: "unsupported_file",
}
_LARGEST_EXACT = 2**53  # whole numbers up to it are their float64


class FileAnswer(TypedDict):
    """OpenAI's file object."""

    id: str
    object: Literal["file"]
    bytes: int
    created_at: int
    filename: str
    purpose: str
    status: Annotated[Literal["processed"], Field(description="An upload is whole as soon as it is answered.")]
    status_details: None
    expires_at: int | None
    sha256: Annotated[str, Field(description="Ours: of the bytes, hexadecimal.")]


class DeletedAnswer(TypedDict):
    """What was deleted."""

    id: str
    object: Literal["file", "vector_store.deleted", "vector_store.file.deleted"]
    deleted: Literal[True]


class FileCountsAnswer(TypedDict):
    """Files of a store or of a batch, by their status."""

    in_progress: int
    completed: int
    cancelled: int
    failed: int
    total: int


class StoreExpiryAnswer(TypedDict):
    """When a store is deleted."""

    anchor: Literal["last_active_at"]
    days: int


class EncoderAnswer(TypedDict):
    """The model whose vectors a store holds."""

    name: str
    width: int
    fingerprint: Annotated[str, Field(description="Of all that decides a vector: another one refuses to search it.")]


class ReembeddingAnswer(TypedDict):
    """A change of encoder that is under way; the old vectors answer meanwhile."""

    encoder: EncoderAnswer
    chunks_done: int
    chunks_total: int


class VectorStoreAnswer(TypedDict):
    """OpenAI's vector store."""

    id: str
    object: Literal["vector_store"]
    created_at: int
    name: str
    description: str
    status: Literal["expired", "in_progress", "completed"]
    usage_bytes: int
    file_counts: FileCountsAnswer
    metadata: dict[str, str]
    last_active_at: int
    expires_after: StoreExpiryAnswer | None
    expires_at: int | None
    chunks: Annotated[int, Field(description="Ours, as are the fields below.")]
    encoder: Annotated[EncoderAnswer | None, Field(description="null while no file is indexed.")]
    reembedding: ReembeddingAnswer | None


class FailureAnswer(TypedDict):
    """Why a file is not indexed."""

    code: FailureCode
    message: str
    reason: Annotated[
        str, Field(description="Ours: the code of a problem, such as `too_large` or `password_required`.")
    ]
    retryable: Annotated[bool, Field(description="Ours: whether adding the same file again may succeed.")]


class StaticSizes(TypedDict):
    """The length of chunks, in tokens of the encoder."""

    max_chunk_size_tokens: int
    chunk_overlap_tokens: int


class ChunkingAnswer(TypedDict):
    """How a file's text is cut."""

    type: Literal["static"]
    static: StaticSizes


class IndexProgressAnswer(TypedDict):
    """How far indexing is: pages while reading, chunks while embedding."""

    stage: Literal["queued", "reading", "embedding", "done"]
    done: int
    total: int | None


class PageSizeAnswer(TypedDict):
    """A page, for whoever marks boxes on it, or a minute of a recording."""

    page: int
    width: NotRequired[Annotated[float, Field(description="In page units, as boxes are.")]]
    height: NotRequired[float]
    rotation: NotRequired[Annotated[int, Field(description="Degrees clockwise that it was turned to stand upright.")]]
    start_s: NotRequired[Annotated[float, Field(description="Of a recording, which has no width or height.")]]
    end_s: NotRequired[float]


class StoreFileAnswer(TypedDict):
    """OpenAI's file in a vector store."""

    id: str
    object: Literal["vector_store.file"]
    created_at: int
    vector_store_id: str
    status: Status
    last_error: FailureAnswer | None
    usage_bytes: int
    attributes: Annotated[dict[str, str | float | bool], Field(description="The caller's own.")]
    chunking_strategy: ChunkingAnswer
    filename: Annotated[str, Field(description="Ours, as are the fields below.")]
    progress: IndexProgressAnswer
    found_attributes: Annotated[
        dict[str, list[str | float | bool]],
        Field(description="What was read from the document; filters look at these where the caller set none."),
    ]
    language: Annotated[str | None, Field(description="ISO 639-1.")]
    chunks: int
    page_count: int
    warnings: Annotated[list[str], Field(description="Why a file that is completed cannot be found: it has no text.")]
    pages: NotRequired[Annotated[list[PageSizeAnswer], Field(description="Of one file; lists leave them out.")]]


class FileBatchAnswer(TypedDict):
    """OpenAI's batch of files."""

    id: str
    object: Literal["vector_store.files_batch"]
    created_at: int
    vector_store_id: str
    status: Status
    file_counts: FileCountsAnswer


class FileListAnswer(TypedDict):
    """Files, a part of their list."""

    object: Literal["list"]
    data: list[FileAnswer]
    first_id: str | None
    last_id: str | None
    has_more: bool


class VectorStoreListAnswer(TypedDict):
    """Vector stores, a part of their list."""

    object: Literal["list"]
    data: list[VectorStoreAnswer]
    first_id: str | None
    last_id: str | None
    has_more: bool


class StoreFileListAnswer(TypedDict):
    """Files of a store or of a batch, a part of their list."""

    object: Literal["list"]
    data: list[StoreFileAnswer]
    first_id: str | None
    last_id: str | None
    has_more: bool


class ChunkWordAnswer(TypedDict):
    """A word of a recording; `start` and `end` count code points of the chunk's text."""

    start: int
    end: int
    start_s: Annotated[float, Field(description="From the beginning of the file.")]
    end_s: float


class ChunkAnswer(TypedDict):
    """A chunk of a file, in order; `start` and `end` count code points of the file's text."""

    type: Literal["text"]
    text: str
    index: int
    start: int
    end: int
    pages: list[int]
    words: NotRequired[Annotated[list[ChunkWordAnswer], Field(description="Ours, of a recording: when each is said.")]]


class FileContentAnswer(TypedDict):
    """OpenAI's page of a file's text."""

    object: Literal["vector_store.file_content.page"]
    data: list[ChunkAnswer]
    has_more: Literal[False]
    next_page: None


def file_answer(file: FileRecord) -> FileAnswer:
    return {
        "id": file.id,
        "object": "file",
        "bytes": file.size_bytes,
        "created_at": int(file.created_s),
        "filename": file.name,
        "purpose": file.purpose,
        "status": "processed",
        "status_details": None,
        "expires_at": None if file.expires_s is None else int(file.expires_s),
        "sha256": file.sha256,
    }


def store_answer(store: VectorStore, now_s: float) -> VectorStoreAnswer:
    days, moving = store.expires_after_days, store.reembedding
    expires_s = None if days is None else int(store.last_active_s) + days * _DAY_S
    encoder = store.encoder
    return {
        "id": store.id,
        "object": "vector_store",
        "created_at": int(store.created_s),
        "name": store.name,
        "description": store.description,
        "status": _store_status(store, expires_s, now_s),
        "usage_bytes": store.usage_bytes,
        "file_counts": file_counts(store.counts),
        "metadata": dict(store.metadata),
        "last_active_at": int(store.last_active_s),
        "expires_after": None if days is None else {"anchor": "last_active_at", "days": days},
        "expires_at": expires_s,
        "chunks": store.chunks,
        "encoder": None if encoder is None else _encoder(encoder.name, encoder.width, encoder.fingerprint),
        "reembedding": None
        if moving is None
        else {
            "encoder": _encoder(moving.encoder.name, moving.encoder.width, moving.encoder.fingerprint),
            "chunks_done": moving.chunks_done,
            "chunks_total": moving.chunks_total,
        },
    }


def store_file_answer(file: StoreFile) -> StoreFileAnswer:
    failure = file.failure
    return {
        "id": file.file_id,
        "object": "vector_store.file",
        "created_at": int(file.created_s),
        "vector_store_id": file.store_id,
        "status": file.status,
        "last_error": None if failure is None else _failure_answer(failure),
        "usage_bytes": file.usage_bytes,
        "attributes": attributes_answer(file.attributes),
        "chunking_strategy": {
            "type": "static",
            "static": {
                "max_chunk_size_tokens": file.chunking.max_tokens,
                "chunk_overlap_tokens": file.chunking.overlap_tokens,
            },
        },
        "filename": file.name,
        "progress": {"stage": file.progress.stage, "done": file.progress.done, "total": file.progress.total},
        "found_attributes": {name: [_scalar(value) for value in values] for name, values in file.found.items()},
        "language": file.language,
        "chunks": file.chunks,
        "page_count": len(file.pages),
        "warnings": list(index_warnings(file)),
    }


def _failure_answer(failure: IndexFailure) -> FailureAnswer:
    """Whether the kind of the file, its content, or the service is at fault, in OpenAI's words; and why, in ours."""
    error = error_class(failure.code)
    if failure.code in _OPENAI_FAILURES:
        code = _OPENAI_FAILURES[failure.code]
    else:
        code = "invalid_file" if issubclass(error, BadInput) else "server_error"
    retryable = code == "server_error" and (error.retryable or error is FinanciaError)
    return {"code": code, "message": failure.message, "reason": failure.code, "retryable": retryable}


def store_file_with_pages(file: StoreFile) -> StoreFileAnswer:
    answer = store_file_answer(file)
    answer["pages"] = page_size_answers(file.pages)
    return answer


def batch_answer(batch: FileBatch) -> FileBatchAnswer:
    return {
        "id": batch.id,
        "object": "vector_store.files_batch",
        "created_at": int(batch.created_s),
        "vector_store_id": batch.store_id,
        "status": batch.status,
        "file_counts": file_counts(batch.counts),
    }


def list_answer(data: Sequence[Any], *, has_more: bool) -> dict[str, Any]:
    """A list of any of these objects, with its cursors."""
    return {
        "object": "list",
        "data": data,
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": has_more,
    }


def chunk_answer(chunk: StoredChunk, *, is_spoken: bool) -> ChunkAnswer:
    answer: ChunkAnswer = {
        "type": "text",
        "text": text_answer(chunk.text),
        "index": chunk.index,
        "start": chunk.start,
        "end": chunk.end,
        "pages": sorted({word.page for word in chunk.words}),
    }
    if is_spoken:
        answer["words"] = [_chunk_word_answer(word) for word in chunk.words]
    return answer


def _chunk_word_answer(word: PlacedWord) -> ChunkWordAnswer:
    start_s, end_s = seconds_of(word.box)
    return {"start": word.start, "end": word.end, "start_s": round(start_s, 3), "end_s": round(end_s, 3)}


def file_counts(counts: Mapping[Status, int]) -> FileCountsAnswer:
    return {
        "in_progress": counts.get("in_progress", 0),
        "completed": counts.get("completed", 0),
        "cancelled": counts.get("cancelled", 0),
        "failed": counts.get("failed", 0),
        "total": sum(counts.get(status, 0) for status in FILE_STATUSES),
    }


def text_answer(text: str) -> str:
    """A chunk's text; the form feed between two pages becomes a line break, so that offsets stay as they are."""
    return text.replace("\f", "\n")


def page_size_answers(pages: Sequence[PageSize]) -> list[PageSizeAnswer]:
    """All pages of a file."""
    starts = (0.0, *(page.width for page in pages))
    return [_page_size_answer(page, start) for page, start in zip(pages, starts, strict=False)]


def _page_size_answer(page: PageSize, start_s: float) -> PageSizeAnswer:
    if page.is_time:
        return {"page": page.number, "start_s": round(start_s, 3), "end_s": round(page.width, 3)}
    return {"page": page.number, "width": page.width, "height": page.height, "rotation": page.rotation}


def _encoder(name: str, width: int, fingerprint: str) -> EncoderAnswer:
    return {"name": name, "width": width, "fingerprint": fingerprint}


def _store_status(
    store: VectorStore, expires_s: int | None, now_s: float
) -> Literal["expired", "in_progress", "completed"]:
    if expires_s is not None and expires_s <= now_s:
        return "expired"
    return "in_progress" if store.counts.get("in_progress", 0) else "completed"


def attributes_answer(attributes: Mapping[str, Scalar]) -> dict[str, Scalar]:
    return {name: _scalar(value) for name, value in attributes.items()}


def _scalar(value: Scalar) -> Scalar:
    """A whole number as the caller sent it: 2026, not 2026.0."""
    if type(value) is float and value.is_integer() and abs(value) <= _LARGEST_EXACT:
        return int(value)
    return value


SCHEMAS: tuple[type, ...] = (
    FileAnswer,
    DeletedAnswer,
    VectorStoreAnswer,
    StoreFileAnswer,
    FileBatchAnswer,
    FileListAnswer,
    VectorStoreListAnswer,
    StoreFileListAnswer,
    FileContentAnswer,
)
