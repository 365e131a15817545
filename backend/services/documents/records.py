"""What is asked of a document, what is told while it is read, and what comes out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

import orjson

from backend.documents.entities import Entity
from backend.documents.key_phrases import KeyPhrase
from backend.documents.language import Language
from backend.documents.ocr_confusions import Repair
from backend.documents.pages import Document, Page
from backend.documents.parsing.text_source import RequestedSource
from backend.documents.text_locations import TextLocation
from backend.errors import FinanciaError
from backend.models.encoder import Vectors
from backend.services.analysis import KeySentence
from backend.services.classification import ClassifiedText
from backend.services.documents.ocr import EngineWish

PAGE_FEATURES = ("text", "words")  # of the pages themselves
TEXT_FEATURES = (
    "language",
    "classes",
    "entities",
    "key_phrases",
    "key_sentences",
    "vector",
    "chunks",
)  # found in their text
FEATURES = (*PAGE_FEATURES, *TEXT_FEATURES)
Stage = Literal["opening", "reading", "understanding", "done"]


@dataclass(frozen=True, slots=True)
class DocumentOptions:
    """What is asked of a document."""

    features: frozenset[str] = frozenset(FEATURES)  # of FEATURES
    pages: str = ""  # "1-3,7"; empty for all
    source: RequestedSource = "auto"
    engine: EngineWish = "auto"
    languages: tuple[str, ...] = ()  # ISO 639-1, of the print; empty: OCR_LANGUAGES
    password: str | None = field(default=None, repr=False)
    labels: tuple[str, ...] | None = None  # classes in words
    classifier: str | None = None
    top_phrases: int = 10
    top_sentences: int = 3

    def key(self) -> str:
        """Equal for equal wishes, in every process; of the password only its hash."""
        secret = "" if self.password is None else blake2b(self.password.encode(), digest_size=16).hexdigest()
        wishes = [
            sorted(self.features), self.pages, self.source, self.engine, self.languages, secret, self.labels,
            self.classifier, self.top_phrases, self.top_sentences,
        ]  # fmt: skip
        return blake2b(orjson.dumps(wishes), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class FailedPage:
    """A page that could not be read; the others were."""

    number: int
    error: FinanciaError


class DocumentEvent(NamedTuple):
    """How far a document is. ``page`` or ``failed`` is the page that this event is about, if it is about one."""

    stage: Stage
    pages_done: int = 0  # read or failed
    pages_total: int | None = None  # None until the file is open
    page: Page | None = None
    failed: FailedPage | None = None


Tell = Callable[[DocumentEvent], None]  # called on the loop; must not block


@dataclass(frozen=True, slots=True)
class ReadDocument:
    """A file's pages."""

    document: Document  # of the pages that could be read, in the order of the file
    failed: tuple[FailedPage, ...]
    ocr_pages: int  # read by OCR, now or earlier; the rest have a text layer
    open_s: float
    read_s: float  # from the first page's start to the last one's end
    ocr_s: float  # of it, summed over pages: on the lanes or waiting for one


@dataclass(frozen=True, slots=True)
class PlacedEntity:
    """An entity and where it stands on paper."""

    entity: Entity  # places count code points of the whole text
    places: tuple[TextLocation, ...]
    repair: Repair | None = None  # what it must have been, where OCR read look-alikes; only offered


@dataclass(frozen=True, slots=True)
class Chunk:
    """A stretch of the text that fits the embedding model; its vector is that of ``/v1/embeddings``."""

    start: int
    end: int
    pages: tuple[int, ...]  # numbers of the pages it stands on
    tokens: int
    vector: Vectors  # (width) float32


@dataclass(frozen=True, slots=True)
class Understood:
    """What the text says. What was not asked for is empty or None."""

    language: Language | None = None
    classes: ClassifiedText | None = None
    entities: tuple[PlacedEntity, ...] = ()
    coverage: float | None = None
    key_phrases: tuple[KeyPhrase, ...] = ()
    key_sentences: tuple[KeySentence, ...] = ()
    vector: Vectors | None = None
    chunks: tuple[Chunk, ...] = ()
    model: str = ""  # the embedding model; empty where nothing was asked of it
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class DocumentAnswer:
    """Everything that was asked of one document."""

    read: ReadDocument
    text: str  # of all pages, `pages.PAGE_GAP` between them
    understood: Understood
    options: DocumentOptions
    device: str  # where the models run
    understand_s: float
    total_s: float

    @property
    def document(self) -> Document:
        """The pages."""
        return self.read.document

    @property
    def failed(self) -> tuple[FailedPage, ...]:
        """The pages that could not be read."""
        return self.read.failed


def nobody(event: DocumentEvent) -> Any:
    """A `Tell` that tells no one."""
