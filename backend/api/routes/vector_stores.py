"""``/v1/vector_stores``: collections of files that can be searched, each seen with the key that made it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, Field, PlainValidator, WithJsonSchema
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from backend.api.json_io import answer_of, json_response, read_json, validate_query
from backend.api.parameters import ID_PATTERN, LIST_PARAMETERS, ListQuery, check_id, id_parameter, path_id
from backend.api.request_context import Handle, call_within_limit, owner_of
from backend.api.request_fields import WireRequest, reads, reads_unless_null, wrong_type
from backend.api.routes.files import FILE_ID, DeletedAnswer, list_answer, list_described
from backend.api.routing import REQUEST_TIMEOUT, action, delete, get, post
from backend.errors import InvalidField, TooLarge, param_of
from backend.search.attributes import (
    ATTRIBUTE_KEYS,
    DESCRIPTION_CHARS,
    KEY_CHARS,
    KEY_CONTROLS,
    METADATA_KEYS,
    NAME_CHARS,
    TEXT_CONTROLS,
    VALUE_CHARS,
    checked_key,
    checked_text,
    checked_value,
)
from backend.search.document_chunks import MAX_CHUNK_TOKENS, MIN_CHUNK_TOKENS
from backend.search.records import FILE_STATUSES, Attributes, Chunking, Scalar, VectorStore
from backend.search.vector_stores import MAX_DAYS, NewFile, StoreChange, VectorStoreService

Item = TypeVar("Item")
_vector_stores_of: Handle[VectorStoreService] = Handle("vector_stores")

PLAIN = {"type": "string", "pattern": f"^[^{TEXT_CONTROLS}]*$"}
KEY_SCHEMA: dict[str, Any] = {
    "type": "string", "pattern": f"^[^{KEY_CONTROLS}]*$", "minLength": 1, "maxLength": KEY_CHARS,
}  # fmt: skip
_VALUE: dict[str, Any] = {**PLAIN, "maxLength": VALUE_CHARS}
SCALAR_SCHEMAS: list[dict[str, Any]] = [_VALUE, {"type": "number"}, {"type": "boolean"}]


def check_key(value: Any, location: str) -> str:
    """The name of an attribute. Raises: InvalidField."""
    return checked_key(_text(value, location), location)


def check_scalar(value: Any, location: str) -> Scalar:
    """The value of an attribute. Raises: InvalidField for other types and for numbers that a float64 cannot hold."""
    if type(value) not in (bool, str, int, float):
        raise wrong_type(location, value, "a text, a number or a boolean")
    return checked_value(value, location)


def check_text(value: Any, location: str, most: int) -> str:
    """A text of at most ``most`` characters that can be stored. Raises: InvalidField."""
    return checked_text(_text(value, location), location, most)


def check_attributes(value: Any, location: str) -> Attributes:
    """Attributes, none where they are null. Raises: InvalidField, TooLarge."""
    return {} if value is None else _pairs_of(value, location, ATTRIBUTE_KEYS, check_scalar)


def check_metadata(value: Any, location: str) -> dict[str, str]:
    """OpenAI's metadata: texts by name. Raises: InvalidField, TooLarge."""
    return _pairs_of(value, location, METADATA_KEYS, partial(check_text, most=VALUE_CHARS))


def _text(value: Any, location: str) -> str:
    if type(value) is not str:
        raise wrong_type(location, value, "a text")
    return value


def require_object(value: Any, location: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise wrong_type(location, value, "an object")
    return value


def _pairs_of(value: Any, location: str, most: int, check: Callable[[Any, str], Item]) -> dict[str, Item]:
    """The members of an object, each checked."""
    pairs = require_object(value, location)
    if len(pairs) > most:
        raise TooLarge(location, len(pairs), most, "fixed", advice="Send fewer.", param=param_of(location))
    checked: dict[str, Item] = {}
    for key, item in pairs.items():
        place = f"{location}.{key[:KEY_CHARS]}"
        checked[check_key(key, place)] = check(item, place)
    return checked


def _pairs(values: dict[str, Any], most: int) -> dict[str, Any]:
    pairs = {"type": "object", "maxProperties": most, "propertyNames": KEY_SCHEMA, "additionalProperties": values}
    return {"anyOf": [pairs, {"type": "null"}]}


ATTRIBUTES_SCHEMA = _pairs({"anyOf": SCALAR_SCHEMAS}, ATTRIBUTE_KEYS)
AttributesField = Annotated[dict[str, Any] | None, reads(check_attributes), WithJsonSchema(ATTRIBUTES_SCHEMA)]
MetadataField = Annotated[
    dict[str, str] | None, reads_unless_null(check_metadata), WithJsonSchema(_pairs(_VALUE, METADATA_KEYS))
]
MAX_FILES = 2_000  # of one request; OpenAI's limit of a batch


class StaticChunking(BaseModel):
    """How long chunks are, in tokens of the encoder."""

    max_chunk_size_tokens: int = Field(ge=MIN_CHUNK_TOKENS, le=MAX_CHUNK_TOKENS)
    chunk_overlap_tokens: int = Field(ge=0, le=MAX_CHUNK_TOKENS // 2, description="At most half of a chunk.")


class StaticChunkingStrategy(BaseModel):
    """Chunks of a length that the caller chooses."""

    type: Literal["static"]
    static: StaticChunking


class AutoChunkingStrategy(BaseModel):
    """Chunks as long as the encoder reads them best."""

    type: Literal["auto"]


class ExpiresAfter(BaseModel):
    """After how many days without activity a vector store is deleted."""

    anchor: Literal["last_active_at"]
    days: int = Field(ge=1, le=MAX_DAYS)


def _integer(value: Any, location: str, least: int, most: int, why: str = "") -> int:
    if type(value) is float and value.is_integer():
        value = int(value)
    if type(value) is not int:
        raise wrong_type(location, value, "a whole number")
    if not least <= value <= most:
        raise InvalidField(f"{location}: must be {least} to {most}{why}, got {value!s:.20}")
    return value


def _choice(value: Any, location: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise InvalidField(f"{location}: must be {' or '.join(known)}, got {value!r:.60}")
    return str(value)


def read_chunking(value: Any, location: str) -> Chunking:
    """A chunking strategy; auto where it is null. Raises: InvalidField."""
    if (
        value is None
        or _choice(require_object(value, location).get("type"), f"{location}.type", ("auto", "static")) == "auto"
    ):
        return Chunking()
    place = f"{location}.static"
    sizes = require_object(value.get("static"), place)
    tokens = sizes.get("max_chunk_size_tokens")
    tokens = _integer(tokens, f"{place}.max_chunk_size_tokens", MIN_CHUNK_TOKENS, MAX_CHUNK_TOKENS)
    overlap = sizes.get("chunk_overlap_tokens")
    half = ", half of max_chunk_size_tokens"
    overlap = _integer(overlap, f"{place}.chunk_overlap_tokens", 0, tokens // 2, half)
    return Chunking(tokens, overlap, is_auto=False)


def _read_expiry(value: Any, location: str) -> int:
    _choice(require_object(value, location).get("anchor"), f"{location}.anchor", ("last_active_at",))
    return _integer(value.get("days"), f"{location}.days", 1, MAX_DAYS)


def _read_text(most: int) -> PlainValidator:
    text = {**PLAIN, "maxLength": most}
    text_or_null = Annotated[str, WithJsonSchema(text)] | None
    return reads_unless_null(partial(check_text, most=most), json_schema_input_type=text_or_null)


def read_ids(value: Any, location: str) -> list[str]:
    return read_few(value, location, "a list of ids of files", check_id)


def read_few(value: Any, location: str, what: str, read: Callable[[Any, str], Item]) -> list[Item]:
    """A list of at most ``MAX_FILES``, each read with its place."""
    if type(value) is not list:
        raise wrong_type(location, value, what)
    if len(value) > MAX_FILES:
        raise TooLarge(
            location, len(value), MAX_FILES, "fixed", advice="Send several batches.", param=param_of(location)
        )
    return [read(item, f"{location}[{index}]") for index, item in enumerate(value)]


def require_distinct(files: list[NewFile], location: str) -> list[NewFile]:
    """Raises: InvalidField for a file that is there twice, perhaps with other attributes."""
    seen: dict[str, int] = {}
    for index, file in enumerate(files):
        if file.file_id in seen:
            raise InvalidField(
                f"{location}[{index}]: the file {file.file_id} is there twice, as {location}[{seen[file.file_id]}], "
                "too; leave one out"
            )
        seen[file.file_id] = index
    return files


ChunkingField = Annotated[
    Any, reads(read_chunking, json_schema_input_type=AutoChunkingStrategy | StaticChunkingStrategy | None)
]
ExpiryField = Annotated[int | None, reads_unless_null(_read_expiry, json_schema_input_type=ExpiresAfter | None)]
NameField = Annotated[str | None, _read_text(NAME_CHARS)]
DescriptionField = Annotated[str | None, _read_text(DESCRIPTION_CHARS)]
FileIds = Annotated[list[Annotated[str, Field(pattern=ID_PATTERN)]], Field(max_length=MAX_FILES)]
FileIdsField = Annotated[list[str] | None, reads_unless_null(read_ids, json_schema_input_type=FileIds | None)]


class CreateStoreRequest(WireRequest):
    """`POST /v1/vector_stores`."""

    name: NameField = None
    description: DescriptionField = None
    metadata: MetadataField = None
    expires_after: ExpiryField = None
    file_ids: FileIdsField = Field(None, description="Files to add at once.")
    chunking_strategy: ChunkingField = Field(None, validate_default=True, description="Of these files.")

    def files(self) -> list[NewFile]:
        """The files to add."""
        files = [NewFile(file_id, {}, self.chunking_strategy) for file_id in self.file_ids or ()]
        return require_distinct(files, "file_ids")


class ChangeStoreRequest(WireRequest):
    """`POST /v1/vector_stores/{id}`: what is absent stays; `expires_after: null` keeps the store for good."""

    name: NameField = None
    description: DescriptionField = None
    metadata: MetadataField = None
    expires_after: ExpiryField = None

    def change(self) -> StoreChange:
        """What to change."""
        return StoreChange(
            name=self.name,
            description=self.description,
            metadata=self.metadata,
            expires_after_days=self.expires_after,
            clears_expiry=self.expires_after is None and "expires_after" in self.model_fields_set,
        )


Status = Literal["in_progress", "completed", "cancelled", "failed"]
_DAY_S = 86_400


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
        "encoder": None if encoder is None else answer_of(EncoderAnswer, encoder),
        "reembedding": None
        if moving is None
        else answer_of(ReembeddingAnswer, moving, encoder=answer_of(EncoderAnswer, moving.encoder)),
    }


def file_counts(counts: Mapping[Status, int]) -> FileCountsAnswer:
    return {
        "in_progress": counts.get("in_progress", 0),
        "completed": counts.get("completed", 0),
        "cancelled": counts.get("cancelled", 0),
        "failed": counts.get("failed", 0),
        "total": sum(counts.get(status, 0) for status in FILE_STATUSES),
    }


def _store_status(
    store: VectorStore, expires_s: int | None, now_s: float
) -> Literal["expired", "in_progress", "completed"]:
    if expires_s is not None and expires_s <= now_s:
        return "expired"
    return "in_progress" if store.counts.get("in_progress", 0) else "completed"


KIND = "vector store"


async def create_store(request: Request) -> Response:
    """Make a vector store, with files if they are given: these are read and indexed in the background."""
    body = await read_json(request, CreateStoreRequest)
    call = _vector_stores_of(request).create(
        owner_of(request),
        name=body.name or "",
        description=body.description or "",
        metadata=body.metadata,
        expires_after_days=body.expires_after,
        files=body.files(),
    )
    return _answer(await call_within_limit(request, call))


async def list_stores(request: Request) -> Response:
    """The vector stores of this key, the newest first."""
    page = validate_query(ListQuery, request).page()
    call = _vector_stores_of(request).list_stores(owner_of(request), page)
    stores, has_more = await call_within_limit(request, call)
    now_s = time.time()  # noqa: TID251 - a date, not a duration
    return json_response(list_answer([store_answer(store, now_s) for store in stores], has_more=has_more))


async def retrieve_store(request: Request) -> Response:
    """A vector store: how many files of it are indexed, whose vectors it holds, and whether these are being changed."""
    call = _vector_stores_of(request).find(owner_of(request), path_id(request, KIND))
    return _answer(await call_within_limit(request, call))


async def change_store(request: Request) -> Response:
    """Change the name, the description, the metadata or the expiry of a vector store; what is absent stays."""
    store_id = path_id(request, KIND)
    body = await read_json(request, ChangeStoreRequest)
    call = _vector_stores_of(request).change(owner_of(request), store_id, body.change())
    return _answer(await call_within_limit(request, call))


async def delete_store(request: Request) -> Response:
    """Delete a vector store with all that was indexed; the files themselves stay."""
    store_id = path_id(request, KIND)
    call = _vector_stores_of(request).delete(owner_of(request), store_id)
    await call_within_limit(request, call)
    return json_response(DeletedAnswer(id=store_id, object="vector_store.deleted", deleted=True))


async def reembed_store(request: Request) -> Response:
    """Embed all chunks anew with the model that serves now, in the background; the old vectors answer meanwhile.

    `reembedding` of the store tells how far it is. Asked again, it goes on where it stopped.
    """
    call = _vector_stores_of(request).reembed(owner_of(request), path_id(request, KIND))
    return _answer(await call_within_limit(request, call))


def _answer(store: VectorStore) -> Response:
    return json_response(store_answer(store, time.time()))  # noqa: TID251 - a date, not a duration


STORE_ID = "vs_3d1f0a9c6b7e4d28"
STORE: VectorStoreAnswer = {
    "id": STORE_ID, "object": "vector_store", "created_at": 1767225600, "name": "Facturas 2026", "description": "",
    "status": "completed", "usage_bytes": 181_204,
    "file_counts": {"in_progress": 0, "completed": 12, "cancelled": 0, "failed": 0, "total": 12}, "metadata": {},
    "last_active_at": 1767225600, "expires_after": None, "expires_at": None, "chunks": 31,
    "encoder": {"name": "intfloat/multilingual-e5-small", "width": 384, "fingerprint": "1f0c9a"}, "reembedding": None,
}  # fmt: skip
STORE_PARAMETER = id_parameter(STORE_ID)
_MOVING = {
    **STORE,
    "reembedding": {
        "encoder": {"name": "other/model", "width": 768, "fingerprint": "77ab01"},
        "chunks_done": 8,
        "chunks_total": 31,
    },
}
_BODY_ERRORS = (400, 404, 413, 415, 422, 429, 504)
_STORES, _STORE_PATH = "/v1/vector_stores", "/v1/vector_stores/{id}"
_STORE_ANSWER: dict[str, Any] = {"schema": VectorStoreAnswer, "example": STORE}
_OF_STORE: dict[str, Any] = {"errors": (404, 422, 504), "parameters": (STORE_PARAMETER, REQUEST_TIMEOUT)}
_get, _delete = (partial(make, tag="OpenAI") for make in (get, delete))
_post = partial(post, tag="OpenAI", errors=_BODY_ERRORS)
ROUTES = (
    _post(
        _STORES,
        create_store,
        request=CreateStoreRequest,
        examples={"empty": {"name": "Facturas 2026"}, "with files": {"name": "Facturas", "file_ids": [FILE_ID]}},
        **_STORE_ANSWER,
    ),
    _get(
        _STORES, list_stores,
        **list_described("VectorStoreListAnswer", VectorStoreAnswer, STORE, "Vector stores, a part of their list."),
        errors=(422, 504), parameters=(*LIST_PARAMETERS, REQUEST_TIMEOUT),
    ),
    _get(_STORE_PATH, retrieve_store, **_STORE_ANSWER, **_OF_STORE),
    _post(
        _STORE_PATH,
        change_store,
        request=ChangeStoreRequest,
        examples={"expires": {"name": "Facturas", "expires_after": {"anchor": "last_active_at", "days": 30}}},
        parameters=_OF_STORE["parameters"],
        **_STORE_ANSWER,
    ),
    _delete(
        _STORE_PATH,
        delete_store,
        schema=DeletedAnswer,
        example={"id": STORE_ID, "object": "vector_store.deleted", "deleted": True},
        **_OF_STORE,
    ),
    action(
        f"{_STORE_PATH}/reembed", reembed_store, tag="documents", schema=VectorStoreAnswer, example=_MOVING, **_OF_STORE
    ),
)  # fmt: skip
