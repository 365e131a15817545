"""Records of the document store: uploaded files, vector stores, the files in them, chunks, rankings. Data only.

The names are those of OpenAI's API: a *file* is an upload, a *vector store* is a collection, a *store file* is a file
in a collection, with its attributes and the state of its indexing. Times are Unix seconds; offsets count code points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal, NamedTuple, TypeVar

from backend.files.pages import Box
from backend.models.encoder import Vectors

T = TypeVar("T")
Scalar = str | float | bool
Attributes = Mapping[str, Scalar]
FileStatus = Literal["in_progress", "completed", "cancelled", "failed"]
ListKind = Literal["file", "store", "store_file"]  # files and stores of an owner, files of a store
FILE_STATUSES: tuple[FileStatus, ...] = ("in_progress", "completed", "cancelled", "failed")
IndexStage = Literal["queued", "reading", "embedding", "done"]
Order = Literal["asc", "desc"]


class ListPage(NamedTuple):
    """Which part of a list: by creation time, then id."""

    limit: int = 20
    order: Order = "desc"
    after: str | Position | None = None  # an id, or where it stands: begin behind it
    before: str | Position | None = None  # the same: end before it

    def part_of(self, rows: list[T]) -> tuple[list[T], bool]:
        """The page, of rows of which there is one more where there are more; and whether there are."""
        backwards = self.before is not None and self.after is None
        return rows[-self.limit :] if backwards else rows[: self.limit], len(rows) > self.limit


class Position(NamedTuple):
    """Where a row stands in its list, whether it is still there or not."""

    created_s: float | str  # or what its list is sorted by instead
    id: str


class ListRange(NamedTuple):
    """A `ListPage` by value: rows that are deleted while somebody pages do not move the others."""

    limit: int = 20
    order: Order = "desc"
    after: Position | None = None
    before: Position | None = None


@dataclass(frozen=True, slots=True)
class FileRecord:
    """An uploaded file."""

    id: str  # "file-…"
    owner: str  # `Caller.owner` of who sent it
    name: str
    size_bytes: int
    sha256: str  # hexadecimal
    purpose: str
    created_s: float
    expires_s: float | None = None


@dataclass(frozen=True, slots=True)
class Chunking:
    """How a file's text is cut. Tokens are those of the encoder, special ones aside."""

    max_tokens: int = 254
    overlap_tokens: int = 0
    is_auto: bool = True  # the client left the choice to the service


@dataclass(frozen=True, slots=True)
class EncoderIdentity:
    """The model whose vectors a store holds."""

    fingerprint: str  # of all that decides a vector (`LoadedModel`'s)
    name: str
    width: int


@dataclass(frozen=True, slots=True)
class Reembedding:
    """A change of encoder that is under way."""

    encoder: EncoderIdentity
    chunks_done: int
    chunks_total: int


@dataclass(frozen=True, slots=True)
class VectorStore:
    """A collection."""

    id: str  # "vs_…"
    owner: str
    name: str
    created_s: float
    last_active_s: float
    description: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    expires_after_days: int | None = None  # of no activity
    encoder: EncoderIdentity | None = None  # of its first file; None while it is empty
    reembedding: Reembedding | None = None
    counts: Mapping[FileStatus, int] = field(default_factory=dict)  # set by the storage; absent: 0
    usage_bytes: int = 0  # text, places, vectors, postings and attributes; set by the storage
    chunks: int = 0  # set by the storage


@dataclass(frozen=True, slots=True)
class Progress:
    stage: IndexStage = "queued"
    done: int = 0  # pages while reading, chunks while embedding
    total: int | None = None


@dataclass(frozen=True, slots=True)
class IndexFailure:
    code: str  # of its error (errors.py); earlier releases stored one of OpenAI's three
    message: str


@dataclass(frozen=True, slots=True)
class PageSize:
    """A page of a file, for whoever marks boxes on it."""

    number: int
    width: float  # page units
    height: float  # page units
    rotation: int  # degrees clockwise from what a viewer shows to upright
    part: str = ""  # of the file: a sheet, a slide, a chapter, an attachment; empty where it has none

    def packed(self) -> list[float | str]:
        """As storages keep it; releases that know no parts read what has none."""
        return [self.number, self.width, self.height, self.rotation, *([self.part] if self.part else ())]

    @property
    def is_time(self) -> bool:
        """A minute of a recording: its width is its end in seconds, and boxes in it lie on the axis of time."""
        return self.height == 0.0


@dataclass(frozen=True, slots=True)
class StoreFile:
    """A file in a vector store."""

    store_id: str
    file_id: str
    name: str  # of the file
    created_s: float
    status: FileStatus = "in_progress"
    attributes: Attributes = field(default_factory=dict)  # the caller's
    # What the service read from the document: "document_type", "vendor_tax_id", "invoice_total", "person", …; several
    # values each. A filter looks at these where the caller has set no attribute of that name.
    found: Mapping[str, Sequence[Scalar]] = field(default_factory=dict)
    chunking: Chunking = field(default_factory=Chunking)
    batch_id: str | None = None
    progress: Progress = field(default_factory=Progress)
    failure: IndexFailure | None = None
    usage_bytes: int = 0  # set by the storage
    chunks: int = 0
    pages: tuple[PageSize, ...] = ()
    language: str | None = None  # ISO 639-1


class PlacedWord(NamedTuple):
    """A word of a chunk on its page."""

    start: int  # in the chunk's text
    end: int
    page: int
    line: int  # on the page
    box: Box  # page units


@dataclass(frozen=True, slots=True)
class NewChunk:
    """A chunk to be stored."""

    index: int  # in its file, from 0
    start: int  # in the file's text
    end: int
    text: str
    tokens: int
    words: tuple[PlacedWord, ...]  # empty for plain text


@dataclass(frozen=True, slots=True)
class IndexedFile:
    """What indexing a file produced. Shapes: vectors (chunks, width) float32, unit length."""

    chunks: Sequence[NewChunk]
    vectors: Vectors
    encoder: EncoderIdentity
    found: Mapping[str, Sequence[Scalar]] = field(default_factory=dict)
    pages: tuple[PageSize, ...] = ()
    language: str | None = None


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A chunk as it is read back."""

    id: int  # unique in its storage
    file_id: str
    index: int
    start: int
    end: int
    text: str
    tokens: int
    words: tuple[PlacedWord, ...] = ()


class ChunkContent(NamedTuple):
    """What tells whether two chunks say the same: equal from the digest on, they are the same place of equal files."""

    chunk_id: int
    file_id: str
    file_sha256: str
    start: int  # in the file's text
    end: int
    text_digest: str


class Ranked(NamedTuple):
    """A chunk in a ranking, best first."""

    chunk_id: int
    score: float  # cosine, or BM25


@dataclass(frozen=True, slots=True)
class KeywordQuery:
    """The terms of a query as `keywords.query_terms` gives them. A chunk matches if it has any of them."""

    terms: tuple[str, ...]  # whole terms: folded and stemmed words, normalised identifiers
    prefixes: tuple[str, ...] = ()  # beginnings of identifiers


@dataclass(frozen=True, slots=True)
class IndexClaim:
    """The right to index a file until it runs out unless it is renewed."""

    file: StoreFile
    owner: str
    token: str  # of this claim
    attempts: int  # this one included
    bytes: int = 0  # of the file


@dataclass(frozen=True, slots=True)
class StoredUsage:
    """What one owner has stored."""

    files: int
    bytes: int  # of the files and of what was indexed
    chunks: int
    stores: int
    waiting: int = 0  # files of vector stores that are not indexed yet


DocumentState = Literal["to_review", "confirmed"]
DOCUMENT_STATES: tuple[DocumentState, ...] = ("to_review", "confirmed")
DocumentSort = Literal["created_at", "date", "due_date", "supplier", "number", "base", "total"]
WireFields = Mapping[str, Any]  # `fields` of one document, as POST /v1/documents answers them


DocumentAction = Literal["correct", "confirm", "reopen", "split"]


@dataclass(frozen=True, slots=True)
class DocumentChange:
    """What somebody did to one document of a stored file, or to how it is cut into documents."""

    revision: int  # that it made
    action: DocumentAction
    document: int | None  # index among the file's documents as they were cut then; None of "split": it is of all
    at_s: float
    by: str  # `Caller.name`
    # Of "correct", by name: {"value", "page", "boxes", "start", "end"}, or a list of rows of such; None: there is none.
    # Of "split" {"documents": […]}: each {"of": index before} where its pages stay, else as it was read anew.
    fields: Mapping[str, Any] = field(default_factory=dict)


class DocumentPart(NamedTuple):
    """One document of a stored file: as it was read, and what people did to it since."""

    read: Mapping[str, Any]
    changes: tuple[DocumentChange, ...]  # the oldest first

    @property
    def is_confirmed(self) -> bool:
        """Whether somebody has confirmed it since it was changed last."""
        return bool(self.changes) and self.changes[-1].action == "confirm"


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """An uploaded file with what was read from it and what people made of that."""

    file: FileRecord
    revision: int  # 1 as it was read; each change makes the next one
    updated_s: float
    answer: Mapping[str, Any]  # of POST /v1/documents as it was read, without `DOCUMENT_CONTENT`
    changes: tuple[DocumentChange, ...] = ()  # the oldest first

    @property
    def id(self) -> str:
        return self.file.id

    @property
    def owner(self) -> str:
        return self.file.owner

    @property
    def parts(self) -> tuple[DocumentPart, ...]:
        """The documents of the file, as they are cut now."""
        parts = [DocumentPart(read, ()) for read in self.answer["documents"]]
        for change in self.changes:
            if change.document is not None:
                read, before = parts[change.document]
                parts[change.document] = DocumentPart(read, (*before, change))
            else:
                cut = change.fields["documents"]
                parts = [parts[one["of"]] if "of" in one else DocumentPart(one, ()) for one in cut]
        return tuple(parts)

    @property
    def confirmed(self) -> tuple[bool, ...]:
        """Of each document of the file, whether somebody has confirmed it since it was changed last."""
        return tuple(part.is_confirmed for part in self.parts)

    @property
    def state(self) -> DocumentState:
        return "confirmed" if all(self.confirmed) else "to_review"


# What is kept apart, as lists of documents do not read it: pages with their words, and what points into their text.
DOCUMENT_CONTENT = ("pages", "text", "tables", "entities", "coverage", "key_phrases", "key_sentences", "summary")


@dataclass(frozen=True, slots=True)
class DocumentValues:
    """What filters, sorting and duplicates look at: of one document of a file, as it is corrected."""

    kind: str | None = None
    supplier: str | None = None  # case folded
    supplier_tax_id: str | None = None
    number: str | None = None  # letters and digits, in capitals
    date: str | None = None  # ISO 8601
    due_date: str | None = None
    base: float | None = None
    total: float | None = None


@dataclass(frozen=True, slots=True)
class Lesson:
    """What a confirmed document teaches about its supplier's documents; made by whoever learns (`LessonOf`)."""

    file_id: str
    document: int
    keys: tuple[str, ...]  # by which it is found: of the supplier
    lesson: Mapping[str, Any]
    confirmed_s: float


@dataclass(frozen=True, slots=True)
class ConfirmedDocument:
    """A document that somebody has just confirmed."""

    stored: StoredDocument
    document: int  # index in the file
    pages: Sequence[Mapping[str, Any]]  # of the whole file, as POST /v1/documents answers them
    kind: Any  # of `document_kind.Kind`, or None; as it is corrected
    fields: WireFields  # the same


@dataclass(frozen=True, slots=True)
class DocumentRow:
    """A stored document to be written, with what it is found by."""

    stored: StoredDocument
    values: tuple[DocumentValues, ...]  # of each document of the file
    lessons: tuple[Lesson, ...] = ()


class Duplicate(NamedTuple):
    """A document that there is already: of the same supplier, number and total, or in the same file."""

    file_id: str
    document: int | None  # index in the file; None: the whole file is the same
    other: str  # file id of one of them
    others: int  # how many there are


@dataclass(frozen=True, slots=True)
class DocumentQuery:
    """Which stored documents. None: any; what is said of a document holds for one and the same of a file."""

    state: DocumentState | None = None
    kind: str | None = None
    supplier: str | None = None  # a part of the name, or a tax id
    supplier_tax_id: str | None = None
    number: str | None = None
    date_from: str | None = None  # ISO 8601; both ends belong to it, as below
    date_to: str | None = None
    due_from: str | None = None
    due_to: str | None = None
    total_from: Decimal | None = None
    total_to: Decimal | None = None
    ids: tuple[str, ...] | None = None
    sort: DocumentSort = "created_at"  # by the first document of each file
