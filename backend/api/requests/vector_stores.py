"""Requests to vector stores, in OpenAI's shapes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)

from backend.api.requests.attributes import PLAIN, AttributesField, MetadataField, check_attributes, check_text
from backend.api.requests.fields import WireRequest, only
from backend.api.requests.identifiers import ID_PATTERN, check_id
from backend.api.requests.places import param_of, wrong_type_at
from backend.errors import BadInput, InvalidField, TooLarge
from backend.search.attributes import DESCRIPTION_CHARS, NAME_CHARS
from backend.search.document_chunks import MAX_CHUNK_TOKENS, MIN_CHUNK_TOKENS
from backend.search.records import Chunking
from backend.search.vector_stores import MOST_DAYS, NewFile, StoreChange, checked_chunking, checked_days

_MOST_FILES = 2_000  # of one request; OpenAI's limit of a batch


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
    days: int = Field(ge=1, le=MOST_DAYS)


def _object(value: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise wrong_type_at(place, value, "an object")
    return value


def _integer(value: Any, place: str) -> int:
    if type(value) is float and value.is_integer():
        value = int(value)
    if type(value) is not int:
        raise wrong_type_at(place, value, "a whole number")
    return value


def _choice(value: Any, place: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise InvalidField(f"{place}: must be {' or '.join(known)}, got {value!r:.60}", param=param_of(place))
    return str(value)


def read_chunking(value: Any, place: str) -> Chunking:
    """A chunking strategy; auto where it is null. Raises: InvalidField."""
    if value is None or _choice(_object(value, place).get("type"), f"{place}.type", ("auto", "static")) == "auto":
        return Chunking()
    sizes = _object(value.get("static"), f"{place}.static")
    tokens = _integer(sizes.get("max_chunk_size_tokens"), f"{place}.static.max_chunk_size_tokens")
    overlap = _integer(sizes.get("chunk_overlap_tokens"), f"{place}.static.chunk_overlap_tokens")
    return checked_chunking(Chunking(tokens, overlap, is_auto=False), place, param_of(place))


def _validate_chunking(value: Any, info: ValidationInfo) -> Chunking:
    return read_chunking(value, info.field_name or "chunking_strategy")


def _read_expiry(value: Any, info: ValidationInfo) -> int | None:
    place = info.field_name or "expires_after"
    if value is None:
        return None
    _choice(_object(value, place).get("anchor"), f"{place}.anchor", ("last_active_at",))
    return checked_days(_integer(value.get("days"), f"{place}.days"))


def _read_text(most: int) -> PlainValidator:
    def read(value: Any, info: ValidationInfo) -> str | None:
        return None if value is None else check_text(value, info.field_name or "name", most)

    text = {**PLAIN, "maxLength": most}
    return PlainValidator(read, json_schema_input_type=Annotated[str, WithJsonSchema(text)] | None)


def _read_ids(value: Any, info: ValidationInfo) -> list[str] | None:
    place = info.field_name or "file_ids"
    if value is None:
        return None
    if type(value) is not list:
        raise wrong_type_at(place, value, "a list of ids of files")
    _require_few(value, place)
    return [check_id(item, f"{place}[{index}]") for index, item in enumerate(value)]


def _read_files(value: Any, info: ValidationInfo) -> list[NewFile] | None:
    place = info.field_name or "files"
    if value is None:
        return None
    if type(value) is not list:
        raise wrong_type_at(place, value, "a list of objects with file_id, and attributes and chunking_strategy if any")
    _require_few(value, place)
    return [_read_file(item, f"{place}[{index}]") for index, item in enumerate(value)]


def _read_file(value: Any, place: str) -> NewFile:
    fields = _object(value, place)
    return NewFile(
        check_id(fields.get("file_id"), f"{place}.file_id"),
        check_attributes(fields.get("attributes"), f"{place}.attributes"),
        read_chunking(fields.get("chunking_strategy"), f"{place}.chunking_strategy"),
    )


def _require_few(files: list[Any], place: str) -> None:
    if len(files) > _MOST_FILES:
        raise TooLarge(place, len(files), _MOST_FILES, "fixed", advice="Send several batches.", param=param_of(place))


def _require_distinct(files: list[NewFile], place: str) -> list[NewFile]:
    """Raises: InvalidField for a file that is there twice, perhaps with other attributes."""
    seen: dict[str, int] = {}
    for index, file in enumerate(files):
        if file.file_id in seen:
            raise InvalidField(
                f"{place}[{index}]: the file {file.file_id} is there twice, as {place}[{seen[file.file_id]}] too; "
                "leave one out",
                param=place,
            )
        seen[file.file_id] = index
    return files


ChunkingField = Annotated[
    Any,
    PlainValidator(_validate_chunking, json_schema_input_type=AutoChunkingStrategy | StaticChunkingStrategy | None),
]
ExpiryField = Annotated[int | None, PlainValidator(_read_expiry, json_schema_input_type=ExpiresAfter | None)]
NameField = Annotated[str | None, _read_text(NAME_CHARS)]
DescriptionField = Annotated[str | None, _read_text(DESCRIPTION_CHARS)]


class FileInBatch(BaseModel):
    """A file to add, with what is its own."""

    file_id: str = Field(pattern=ID_PATTERN)
    attributes: AttributesField = None
    chunking_strategy: AutoChunkingStrategy | StaticChunkingStrategy | None = None


_Ids = Annotated[list[Annotated[str, Field(pattern=ID_PATTERN)]], Field(max_length=_MOST_FILES)]
FileIdsField = Annotated[list[str] | None, PlainValidator(_read_ids, json_schema_input_type=_Ids | None)]
BatchIdsField = Annotated[
    list[str] | None,
    PlainValidator(_read_ids, json_schema_input_type=Annotated[_Ids, Field(min_length=1)] | None),
]
_Files = Annotated[list[FileInBatch], Field(min_length=1, max_length=_MOST_FILES)]
FilesField = Annotated[Any, PlainValidator(_read_files, json_schema_input_type=_Files | None)]


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
        return _require_distinct(files, "file_ids")


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


class AddFileRequest(WireRequest):
    """`POST /v1/vector_stores/{id}/files`."""

    file_id: Annotated[
        str,
        BeforeValidator(lambda value: check_id(value, "file_id")),
        Field(json_schema_extra={"pattern": ID_PATTERN}),
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
            raise InvalidField("file_ids: send either file_ids or files", param="file_ids")
        return self

    def new_files(self) -> list[NewFile]:
        """The files to add. Raises: BadInput for none, InvalidField for one that is there twice."""
        place = "files" if self.file_ids is None else "file_ids"
        files = (
            self.files
            if self.file_ids is None
            else [NewFile(file_id, self.attributes or {}, self.chunking_strategy) for file_id in self.file_ids]
        )
        if not files:
            raise BadInput(f"{place}: must not be an empty list", param=place)
        return _require_distinct(files, place)


REQUESTS: tuple[type[BaseModel], ...] = (
    CreateStoreRequest,
    ChangeStoreRequest,
    AddFileRequest,
    AttributesRequest,
    AddBatchRequest,
)
