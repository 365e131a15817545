"""Records of document processing: options, progress events, extracted pages, and what their text says."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import astuple, dataclass, field
from hashlib import blake2b
from typing import Any, Literal, NamedTuple, Protocol, get_args

import orjson

from backend.documents.chunks import CHUNK_TOKENS
from backend.errors import FinanciaError
from backend.files.pages import Document, Page, TextLocation
from backend.files.stored_file import StoredFile
from backend.files.text_files import RequestedSource
from backend.invoices.ocr_confusions import Repair
from backend.invoices.records import ExtractedFields
from backend.lanes.inference import Urgency
from backend.models.encoder import Vectors
from backend.ocr.engine_choice import OcrEngineName
from backend.summaries.records import RequestedMethod, Summary, SummaryOptions
from backend.tables.records import Table
from backend.text.analysis import KeySentence
from backend.text.classification import ClassifiedText
from backend.text.entity_merge import Entity
from backend.text.key_phrases import KeyPhrase
from backend.text.language import Language

PageFeature = Literal["text", "words"]  # of the pages themselves
TextFeature = Literal[
    "language", "classes", "entities", "key_phrases", "key_sentences", "vector", "chunks", "fields", "tables", "summary"
]  # found in their text
DocumentFeature = Literal[PageFeature, TextFeature]
PAGE_FEATURES: tuple[str, ...] = get_args(PageFeature)
TEXT_FEATURES: tuple[str, ...] = get_args(TextFeature)
FEATURES: tuple[str, ...] = get_args(DocumentFeature)
# A summary is key_sentences over again, with stricter rules, or a model's work of seconds: only on request.
DEFAULT_FEATURES = tuple(feature for feature in FEATURES if feature != "summary")
Stage = Literal["opening", "reading", "understanding", "done"]


@dataclass(frozen=True, slots=True)
class DocumentOptions:
    features: frozenset[str] = frozenset(DEFAULT_FEATURES)  # of FEATURES
    pages: str = ""  # "1-3,7"; empty for all
    split: str = "auto"  # into documents, as of `split_ranges`
    source: RequestedSource = "auto"
    engine: OcrEngineName = "auto"
    languages: tuple[str, ...] = ()  # ISO 639-1, of the print; empty: OCR_LANGUAGES
    password: str | None = field(default=None, repr=False)
    labels: tuple[str, ...] | None = None  # classes in words
    classifier: str | None = None
    xml: str | None = field(default=None, repr=False)  # of the electronic invoice that came beside the file
    top_phrases: int = 10
    top_sentences: int = 3
    summary_method: RequestedMethod = "extractive"
    summary_sentences: int | None = None
    summary_tokens: int | None = None
    summary_min_tokens: int = 0
    summary_beams: int = 1
    schema: str = ""  # a JSON Schema, as text: what to find in the caller's words; empty for nothing
    chunk_tokens: int = CHUNK_TOKENS  # of a chunk at most, special ones included
    entity_labels: str = ""  # types of entities in the caller's words, as JSON of `own_labels.types_json`; empty: ours
    lessons: str = ""  # what examples teach of it, as JSON of `own_examples.lessons_json`; empty for nothing
    barcodes: bool = False  # whether codes of every kind are looked for on each page

    @property
    def summary(self) -> SummaryOptions:
        """How to make the summary, where ``features`` has it."""
        return SummaryOptions(
            self.summary_method,
            self.summary_sentences,
            self.summary_tokens,
            self.summary_min_tokens,
            self.summary_beams,
        )

    def key(self) -> str:
        """A digest that is equal for equal options in every process; includes only a hash of the password."""
        secret = "" if self.password is None else blake2b(self.password.encode(), digest_size=16).hexdigest()
        fields = [
            sorted(self.features), self.pages, self.source, self.engine, self.languages, secret, self.labels,
            self.classifier, self.xml, self.top_phrases, self.top_sentences, astuple(self.summary), self.schema,
            self.split, self.lessons, self.chunk_tokens, self.entity_labels, self.barcodes,
        ]  # fmt: skip
        return blake2b(orjson.dumps(fields), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class FailedPage:
    """A page that could not be extracted, and why."""

    number: int
    error: FinanciaError


class DocumentEvent(NamedTuple):
    """Progress of a document. ``page`` or ``failed`` is set when the event is about one page, ``fields`` once known."""

    stage: Stage
    pages_done: int = 0  # extracted or failed
    pages_total: int | None = None  # None until the file is open
    page: Page | None = None
    failed: FailedPage | None = None
    fields: ExtractedFields | None = None


EventCallback = Callable[[DocumentEvent], None]  # called on the loop; must not block


@dataclass(frozen=True, slots=True)
class ExtractedDocument:
    """The extracted pages of a file."""

    document: Document  # of the pages that could be extracted, in file order
    failed: tuple[FailedPage, ...]
    ocr_pages: int  # by OCR, now or from the cache; the rest have a text layer, or are minutes of a recording
    open_s: float
    read_s: float  # from the first page's start to the last one's end
    ocr_s: float  # of that, on lanes or waiting for one; summed over pages. 0 for a recording


@dataclass(frozen=True, slots=True)
class PlacedEntity:
    """An entity with its boxes on the pages."""

    entity: Entity  # places count code points of the whole text
    places: tuple[TextLocation, ...]
    repair: Repair | None = None  # the likely value where OCR confused characters; offered beside the entity


@dataclass(frozen=True, slots=True)
class Chunk:
    """A stretch of text that fits the embedding model, with the vector that ``/v1/embeddings`` gives it."""

    start: int
    end: int
    pages: tuple[int, ...]  # numbers of the pages it stands on
    tokens: int
    vector: Vectors  # (width) float32


class SkippedFeature(NamedTuple):
    """A feature that was asked for and does not apply to the file."""

    feature: str
    why: str  # one sentence


@dataclass(frozen=True, slots=True)
class ClassParts:
    """What the classes of a document were made of, where its picture was looked at."""

    text: ClassifiedText | None  # None where there is no text, or no classifier of texts was asked
    image: ClassifiedText | None  # of one page; None where it could not be seen
    page: int  # its number
    model: str  # the image model
    combined: bool  # whether `Understood.classes` are of both
    why: str  # one sentence: how, or why not


@dataclass(frozen=True, slots=True)
class OwnValue:
    """A value that was found for a field in the caller's words."""

    value: str  # as JSON: a text, a number, true or false
    text: str  # as printed
    start: int  # of the document's text
    end: int
    score: float  # 0 to 1
    why: str  # one sentence: by what it was found
    places: tuple[TextLocation, ...]
    valid: bool | None = None  # by check digits or the calendar


@dataclass(frozen=True, slots=True)
class OwnField:
    """A field in the caller's words, with at least one value."""

    path: tuple[str, ...]  # the names of the objects that it is in, and its own
    values: tuple[OwnValue, ...]  # one, or a list's
    many: bool = False  # whether its answer is a list


@dataclass(frozen=True, slots=True)
class Understood:
    """What the text says. Features that were not requested are empty or None."""

    language: Language | None = None
    classes: ClassifiedText | None = None
    class_parts: ClassParts | None = None  # where an image model took part in the classes
    entities: tuple[PlacedEntity, ...] = ()
    coverage: float | None = None
    key_phrases: tuple[KeyPhrase, ...] = ()
    key_sentences: tuple[KeySentence, ...] = ()
    vector: Vectors | None = None
    chunks: tuple[Chunk, ...] = ()
    fields: ExtractedFields | None = None
    tables: tuple[Table, ...] = ()
    summary: Summary | None = None
    model: str = ""  # the embedding model; empty where no feature needed it
    tokens: int = 0
    skipped: tuple[SkippedFeature, ...] = ()
    custom: tuple[OwnField, ...] = ()  # what ``DocumentOptions.schema`` asks for


@dataclass(frozen=True, slots=True)
class DocumentAnswer:
    """The requested features of one document."""

    extraction: ExtractedDocument
    text: str  # of all pages, `pages.PAGE_GAP` between them
    understood: Understood
    options: DocumentOptions
    device: str  # where the models run
    understand_s: float
    total_s: float

    @property
    def document(self) -> Document:
        return self.extraction.document

    @property
    def failed(self) -> tuple[FailedPage, ...]:
        return self.extraction.failed


def ignore_event(event: DocumentEvent) -> Any:
    """An `EventCallback` that does nothing."""


class ProcessDocument(Protocol):
    """`DocumentService.process`."""

    def __call__(
        self,
        upload: StoredFile,
        options: DocumentOptions,
        urgency: Urgency,
        on_event: EventCallback,
        *,
        owner: str | None = None,
    ) -> Awaitable[DocumentAnswer]: ...


class RenderPage(Protocol):
    """`DocumentExtractor.page_image`."""

    def __call__(
        self, upload: StoredFile, number: int, *, rotation: int, dpi: float, password: str | None = None
    ) -> Awaitable[bytes]: ...
