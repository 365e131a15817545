"""``/v1/vector_stores/{id}/files`` and ``/file_batches``: the files of a vector store and how far their indexing is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal, NotRequired

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from backend.api.json_io import CHARS_PER_ITEM, answer_of, json_response, read_json, validate_query, written_json
from backend.api.parameters import (
    ID_PATTERN,
    STORE_FILE_LIST_PARAMETERS,
    StoreFileListQuery,
    check_id,
    id_parameter,
    path_id,
)
from backend.api.problems import error_class
from backend.api.request_context import Handle, call_within_limit, owner_of
from backend.api.request_fields import WireRequest, only, reads_unless_null
from backend.api.routes.files import FILE_ID, DeletedAnswer, list_answer, list_described
from backend.api.routes.vector_stores import (
    KIND,
    MAX_FILES,
    STORE_ID,
    STORE_PARAMETER,
    AttributesField,
    AutoChunkingStrategy,
    ChunkingField,
    FileCountsAnswer,
    FileIds,
    StaticChunkingStrategy,
    Status,
    check_attributes,
    file_counts,
    read_chunking,
    read_few,
    read_ids,
    require_distinct,
    require_object,
)
from backend.api.routing import REQUEST_TIMEOUT, action, delete, get, post
from backend.errors import BadInput, FinanciaError, InvalidField, WrongMediaType
from backend.search.records import IndexFailure, PageSize, PlacedWord, Scalar, StoredChunk, StoreFile
from backend.search.vector_stores import FileBatch, NewFile, VectorStoreService, index_warnings
from backend.speech.pages import seconds_of

_vector_stores_of: Handle[VectorStoreService] = Handle("vector_stores")


def _read_files(value: Any, location: str) -> list[NewFile]:
    what = "a list of objects with file_id, and attributes and chunking_strategy if any"
    return read_few(value, location, what, _read_file)


def _read_file(value: Any, location: str) -> NewFile:
    fields = require_object(value, location)
    return NewFile(
        check_id(fields.get("file_id"), f"{location}.file_id"),
        check_attributes(fields.get("attributes"), f"{location}.attributes"),
        read_chunking(fields.get("chunking_strategy"), f"{location}.chunking_strategy"),
    )


class FileInBatch(BaseModel):
    """A file to add, with what is its own."""

    file_id: str = Field(pattern=ID_PATTERN)
    attributes: AttributesField = None
    chunking_strategy: AutoChunkingStrategy | StaticChunkingStrategy | None = None


BatchIdsField = Annotated[
    list[str] | None, reads_unless_null(read_ids, json_schema_input_type=Annotated[FileIds, Field(min_length=1)] | None)
]
_Files = Annotated[list[FileInBatch], Field(min_length=1, max_length=MAX_FILES)]
FilesField = Annotated[Any, reads_unless_null(_read_files, json_schema_input_type=_Files | None)]


class AddFileRequest(WireRequest):
    """`POST /v1/vector_stores/{id}/files`."""

    file_id: Annotated[
        str, BeforeValidator(lambda value: check_id(value, "file_id")), Field(json_schema_extra={"pattern": ID_PATTERN})
    ]
    attributes: AttributesField = Field(None, description="What filters of searches look at.")
    chunking_strategy: ChunkingField = Field(None, validate_default=True)

    def file(self) -> NewFile:
        """The file to add."""
        return NewFile(self.file_id, self.attributes or {}, self.chunking_strategy)


class AttributesRequest(WireRequest):
    """`POST /v1/vector_stores/{id}/files/{file_id}`: the attributes in place of all that were there."""

    attributes: AttributesField


class AddBatchRequest(WireRequest):
    """`POST /v1/vector_stores/{id}/file_batches`: `file_ids` that share their attributes, or `files` with their own."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [only("file_ids", "files"), only("files", "file_ids")]})

    file_ids: BatchIdsField = None
    files: FilesField = None
    attributes: AttributesField = Field(None, description="Of the files in `file_ids`.")
    chunking_strategy: ChunkingField = Field(None, validate_default=True, description="Of the files in `file_ids`.")

    @model_validator(mode="after")
    def _one_kind(self) -> AddBatchRequest:
        if (self.file_ids is None) == (self.files is None):
            raise InvalidField("file_ids: send either file_ids or files")
        return self

    def new_files(self) -> list[NewFile]:
        """The files to add. Raises: BadInput for none, InvalidField for one that is there twice."""
        location = "files" if self.file_ids is None else "file_ids"
        files = (
            self.files
            if self.file_ids is None
            else [NewFile(file_id, self.attributes or {}, self.chunking_strategy) for file_id in self.file_ids]
        )
        if not files:
            raise BadInput(f"{location}: must not be an empty list", param=location)
        return require_distinct(files, location)


FailureCode = Literal["server_error", "unsupported_file", "invalid_file"]
# Codes of failures that are not what their class says; the first three are those of earlier releases.
_OPENAI_FAILURES: dict[str, FailureCode] = {
    "server_error": "server_error",
    "unsupported_file": "unsupported_file",
    "invalid_file": "invalid_file",
    WrongMediaType.code: "unsupported_file",
}
_LARGEST_EXACT = 2**53  # whole numbers up to it are their float64


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
    part: NotRequired[Annotated[str, Field(description="The sheet, slide, chapter or attachment that it is of.")]]


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
    created_at, counts = int(batch.created_s), file_counts(batch.counts)
    return answer_of(FileBatchAnswer, batch, created_at=created_at, vector_store_id=batch.store_id, file_counts=counts)


def chunk_answer(chunk: StoredChunk, *, is_spoken: bool) -> ChunkAnswer:
    pages = sorted({word.page for word in chunk.words})
    words = {"words": [_chunk_word_answer(word) for word in chunk.words]} if is_spoken else {}
    return answer_of(ChunkAnswer, chunk, text=text_answer(chunk.text), pages=pages, **words)


def _chunk_word_answer(word: PlacedWord) -> ChunkWordAnswer:
    start_s, end_s = seconds_of(word.box)
    return {"start": word.start, "end": word.end, "start_s": round(start_s, 3), "end_s": round(end_s, 3)}


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
    answer: PageSizeAnswer = {
        "page": page.number,
        "width": page.width,
        "height": page.height,
        "rotation": page.rotation,
    }
    if page.part:
        answer["part"] = page.part
    return answer


def attributes_answer(attributes: Mapping[str, Scalar]) -> dict[str, Scalar]:
    return {name: _scalar(value) for name, value in attributes.items()}


def _scalar(value: Scalar) -> Scalar:
    """A whole number as the caller sent it: 2026, not 2026.0."""
    if type(value) is float and value.is_integer() and abs(value) <= _LARGEST_EXACT:
        return int(value)
    return value


_BATCH_KIND = "batch of files"
_POLL_AFTER_MS = 300  # a page of text is indexed in less


async def add_file(request: Request) -> Response:
    """Have a file read and indexed in the background; one that is there already is indexed anew.

    `status`, `progress` and `last_error` of the file tell how far it is.
    """
    store_id = path_id(request, KIND)
    body = await read_json(request, AddFileRequest)
    call = _vector_stores_of(request).add_files(owner_of(request), store_id, [body.file()])
    [file] = await call_within_limit(request, call)
    return json_response(store_file_answer(file))


async def list_files(request: Request) -> Response:
    """The files of a vector store, those added last first."""
    return await _list_files(request, batch_id=None)


async def retrieve_file(request: Request) -> Response:
    """A file of a vector store: its status, attributes, those found in the document, and its pages."""
    owner, store_id, file_id = _owner_store_file(request)
    file = await call_within_limit(request, _vector_stores_of(request).file(owner, store_id, file_id))
    return json_response(store_file_with_pages(file), headers=poll_headers(file.status == "in_progress"))


def poll_headers(goes_on: bool) -> dict[str, str]:
    """When to ask again, as OpenAI's clients take it; without it they wait a second."""
    return {"OpenAI-Poll-After-Ms": str(_POLL_AFTER_MS)} if goes_on else {}


async def change_attributes(request: Request) -> Response:
    """Set the attributes of a file in place of all that it had; searches see them at once."""
    owner, store_id, file_id = _owner_store_file(request)
    body = await read_json(request, AttributesRequest)
    call = _vector_stores_of(request).set_attributes(owner, store_id, file_id, body.attributes or {})
    return json_response(store_file_answer(await call_within_limit(request, call)))


async def remove_file(request: Request) -> Response:
    """Take a file out of a vector store; the file itself stays."""
    owner, store_id, file_id = _owner_store_file(request)
    await call_within_limit(request, _vector_stores_of(request).remove_file(owner, store_id, file_id))
    return json_response(DeletedAnswer(id=file_id, object="vector_store.file.deleted", deleted=True))


async def retrieve_content(request: Request) -> Response:
    """The text of an indexed file, chunk by chunk."""
    owner, store_id, file_id = _owner_store_file(request)

    async def read() -> list[ChunkAnswer]:
        stores = _vector_stores_of(request)
        file = await stores.file(owner, store_id, file_id)
        is_spoken = any(page.is_time for page in file.pages)
        chunks = stores.chunks(owner, store_id, file_id)
        return [chunk_answer(chunk, is_spoken=is_spoken) async for chunk in chunks]

    data = await call_within_limit(request, read())
    answer: FileContentAnswer = {
        "object": "vector_store.file_content.page",
        "data": data,
        "has_more": False,
        "next_page": None,
    }
    characters = sum(len(chunk["text"]) for chunk in data)
    return await written_json(lambda: answer, len(data) + characters // CHARS_PER_ITEM)


async def create_batch(request: Request) -> Response:
    """Have many files indexed at once; all or none are added."""
    store_id = path_id(request, KIND)
    body = await read_json(request, AddBatchRequest)
    call = _vector_stores_of(request).add_batch(owner_of(request), store_id, body.new_files())
    return json_response(batch_answer(await call_within_limit(request, call)))


async def retrieve_batch(request: Request) -> Response:
    """A batch: how many of its files are indexed."""
    owner, store_id, batch_id = _owner_store_batch(request)
    call = _vector_stores_of(request).batch(owner, store_id, batch_id)
    batch = batch_answer(await call_within_limit(request, call))
    return json_response(batch, headers=poll_headers(batch["status"] == "in_progress"))


async def cancel_batch(request: Request) -> Response:
    """Stop indexing the files of a batch that are not indexed yet; those that are stay."""
    owner, store_id, batch_id = _owner_store_batch(request)
    call = _vector_stores_of(request).cancel_batch(owner, store_id, batch_id)
    return json_response(batch_answer(await call_within_limit(request, call)))


async def list_batch_files(request: Request) -> Response:
    """The files of a batch."""
    return await _list_files(request, batch_id=path_id(request, _BATCH_KIND, "batch_id"))


async def _list_files(request: Request, *, batch_id: str | None) -> Response:
    store_id, query = path_id(request, KIND), validate_query(StoreFileListQuery, request)
    call = _vector_stores_of(request).list_files(
        owner_of(request), store_id, query.page(), status=query.filter, batch_id=batch_id
    )
    files, has_more = await call_within_limit(request, call)
    return json_response(list_answer([store_file_answer(file) for file in files], has_more=has_more))


def _owner_store_file(request: Request) -> tuple[str, str, str]:
    return owner_of(request), path_id(request, KIND), path_id(request, "file", "file_id")


def _owner_store_batch(request: Request) -> tuple[str, str, str]:
    return owner_of(request), path_id(request, KIND), path_id(request, _BATCH_KIND, "batch_id")


POLL_HEADERS = ("OpenAI-Poll-After-Ms",)
BATCH_ID = "vsfb_6926d1e081c7e2a04f5b4d96"
STORE_FILE: StoreFileAnswer = {
    "id": FILE_ID, "object": "vector_store.file", "created_at": 1767225600, "vector_store_id": STORE_ID,
    "status": "completed", "last_error": None, "usage_bytes": 15_122, "attributes": {"year": 2026},
    "chunking_strategy": {"type": "static", "static": {"max_chunk_size_tokens": 254, "chunk_overlap_tokens": 0}},
    "filename": "factura-017.pdf", "progress": {"stage": "done", "done": 3, "total": 3},
    "found_attributes": {"document_type": ["invoice"], "vendor_tax_id": ["B12345674"], "invoice_total": [1284.5]},
    "language": "es", "chunks": 3, "page_count": 1, "warnings": [],
}  # fmt: skip
_BATCH: FileBatchAnswer = {
    "id": BATCH_ID, "object": "vector_store.files_batch", "created_at": 1767225600, "vector_store_id": STORE_ID,
    "status": "in_progress",
    "file_counts": {"in_progress": 1, "completed": 1, "cancelled": 0, "failed": 0, "total": 2},
}  # fmt: skip
_CANCELLED = {
    **_BATCH,
    "status": "cancelled",
    "file_counts": {"in_progress": 0, "completed": 1, "cancelled": 1, "failed": 0, "total": 2},
}
_OF_STORE = (STORE_PARAMETER, REQUEST_TIMEOUT)
_OF_FILE = (STORE_PARAMETER, id_parameter(FILE_ID, "file_id"), REQUEST_TIMEOUT)
_OF_BATCH = (STORE_PARAMETER, id_parameter(BATCH_ID, "batch_id"), REQUEST_TIMEOUT)
_ERRORS = (404, 422, 504)
_BODY_ERRORS = (400, 404, 409, 413, 415, 422, 429, 504)
_FILES, _FILE = "/v1/vector_stores/{id}/files", "/v1/vector_stores/{id}/files/{file_id}"
_BATCHES, _BATCH_PATH = "/v1/vector_stores/{id}/file_batches", "/v1/vector_stores/{id}/file_batches/{batch_id}"
_ATTRIBUTES = {"year": 2026, "supplier": "Acme", "paid": False}
_FILE_ANSWER: dict[str, Any] = {"schema": StoreFileAnswer, "example": STORE_FILE}
_BATCH_ANSWER: dict[str, Any] = {"schema": FileBatchAnswer, "example": _BATCH}
_LIST_ANSWER = list_described(
    "StoreFileListAnswer", StoreFileAnswer, STORE_FILE, "Files of a store or of a batch, a part of their list."
)
_get, _delete, _action = (partial(make, tag="OpenAI", errors=_ERRORS) for make in (get, delete, action))
_post = partial(post, tag="OpenAI", errors=_BODY_ERRORS)
ROUTES = (
    _post(
        _FILES,
        add_file,
        request=AddFileRequest,
        examples={"with attributes": {"file_id": FILE_ID, "attributes": _ATTRIBUTES}},
        parameters=_OF_STORE,
        **_FILE_ANSWER,
    ),
    _get(_FILES, list_files, parameters=(*STORE_FILE_LIST_PARAMETERS, *_OF_STORE), **_LIST_ANSWER),
    _get(
        _FILE,
        retrieve_file,
        schema=StoreFileAnswer,
        headers=POLL_HEADERS,
        example={**STORE_FILE, "pages": [{"page": 1, "width": 595.0, "height": 842.0, "rotation": 0}]},
        parameters=_OF_FILE,
    ),
    _post(
        _FILE,
        change_attributes,
        request=AttributesRequest,
        examples={"attributes": {"attributes": _ATTRIBUTES}},
        parameters=_OF_FILE,
        **_FILE_ANSWER,
    ),
    _delete(
        _FILE, remove_file, schema=DeletedAnswer,
        example={"id": FILE_ID, "object": "vector_store.file.deleted", "deleted": True}, parameters=_OF_FILE,
    ),
    _get(
        f"{_FILE}/content",
        retrieve_content,
        schema=FileContentAnswer,
        example={
            "object": "vector_store.file_content.page",
            "data": [{"type": "text", "text": "FACTURA 2026/017", "index": 0, "start": 0, "end": 16, "pages": [1]}],
            "has_more": False,
            "next_page": None,
        },
        parameters=_OF_FILE,
    ),
    _post(
        _BATCHES,
        create_batch,
        request=AddBatchRequest,
        examples={
            "ids": {"file_ids": [FILE_ID], "attributes": _ATTRIBUTES},
            "each with its own": {"files": [{"file_id": FILE_ID, "attributes": _ATTRIBUTES}]},
        },
        parameters=_OF_STORE,
        **_BATCH_ANSWER,
    ),
    _get(_BATCH_PATH, retrieve_batch, headers=POLL_HEADERS, parameters=_OF_BATCH, **_BATCH_ANSWER),
    _action(f"{_BATCH_PATH}/cancel", cancel_batch, schema=FileBatchAnswer, example=_CANCELLED, parameters=_OF_BATCH),
    _get(
        f"{_BATCH_PATH}/files", list_batch_files, parameters=(*STORE_FILE_LIST_PARAMETERS, *_OF_BATCH), **_LIST_ANSWER
    ),
)  # fmt: skip
