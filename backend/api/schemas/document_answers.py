"""The answers of the routes that read files, for OpenAPI only, like those of answers.py."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from backend.api.schemas.answers import Usage
from backend.api.schemas.text_answers import ClassesAnswer, EntityAnswer

Sides = tuple[float, float, float, float]


class WordAnswer(BaseModel):
    """One word; `start` and `end` count code points of its page's text."""

    text: str
    box: Sides = Field(description="Left, top, right, bottom, in page units.")
    confidence: float = Field(description="0 to 1; 1 for a text layer.")
    start: int
    end: int
    line: int
    block: int


class PageAnswer(BaseModel):
    """One page as it stands upright."""

    number: int = Field(description="From 1, in the file.")
    width: float = Field(description="In page units: points of a PDF, pixels of an image.")
    height: float
    units_per_inch: float
    rotation: Literal[0, 90, 180, 270] = Field(description="Degrees clockwise that it was turned to stand upright.")
    source: Literal["text_layer", "ocr"]
    why: str = Field(description="Why this source, and how it was read.")
    engine: str
    confidence: float | None
    language: str | None = Field(description="ISO 639-1.")
    start: int = Field(description="Where its text begins in the document's.")
    text: str
    words: list[WordAnswer]


class FailedPageAnswer(BaseModel):
    """A page that could not be read."""

    number: int
    error: dict[str, Any] = Field(description="As in a problem: message, type, code, param.")


class PlaceAnswer(BaseModel):
    """One line's part of a stretch of text."""

    page: int
    box: Sides


class RepairAnswer(BaseModel):
    """What an id, a date or an amount must have been, where OCR read letters for digits; only offered."""

    value: str
    type: str
    score: float


class PlacedEntityAnswer(EntityAnswer):
    """An entity and where it stands."""

    places: list[PlaceAnswer]
    repair: RepairAnswer | None = Field(None, description="Only on pages that were recognised.")


class ChunkAnswer(BaseModel):
    """A stretch of the text that fits the embedding model; `vector` is what /v1/embeddings gives it."""

    index: int
    start: int
    end: int
    pages: list[int]
    tokens: int
    vector: list[float] | str


class DocumentUsage(Usage):
    """What was read."""

    pages: int
    ocr_pages: int


class DocumentAnswer(BaseModel):
    """`POST /v1/documents`; of `POST /v1/ocr` the pages and what is about them."""

    object: Literal["document"]
    kind: str
    page_count: int = Field(description="Of the file, also where fewer pages were read.")
    sha256: str
    metadata: dict[str, str]
    pages: list[PageAnswer]
    failed_pages: list[FailedPageAnswer]
    text: str = Field(description="Of all pages, a line break and a form feed between them.")
    language: dict[str, Any] | None = None
    classes: ClassesAnswer | None = None
    entities: list[PlacedEntityAnswer] | None = None
    coverage: float | None = None
    key_phrases: list[dict[str, Any]] | None = None
    key_sentences: list[dict[str, Any]] | None = None
    vector: list[float] | str | None = None
    chunks: list[ChunkAnswer] | None = None
    model: str | None
    device: str
    timings: dict[str, float] = Field(description="Seconds; ocr_s is the sum over pages, which are read side by side.")
    usage: DocumentUsage


ANSWERS: tuple[type[BaseModel], ...] = (DocumentAnswer,)
