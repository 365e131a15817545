"""The fields that come with an upload, in its form or in the query; all of them texts on the wire."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from backend.api.schemas.checks import require_choice, require_labels
from backend.documents.parsing.text_source import RequestedSource
from backend.engines.ocr.engine_choice import OcrEngineName
from backend.services.documents.records import FEATURES, PAGE_FEATURES, DocumentOptions

DocumentFeature = Literal[
    "text", "words", "language", "classes", "entities", "key_phrases", "key_sentences", "vector", "chunks"
]
assert get_args(DocumentFeature) == FEATURES, "the wire's features are the service's"


def _words(value: Any) -> Any:
    """A text such as "es, en" and "spa+eng" as a list; an empty field as one that is absent."""
    if not isinstance(value, str):
        return value
    return [word.strip() for word in value.replace("+", ",").split(",") if word.strip()] or None


def _lines(value: Any) -> Any:
    """Labels one a line, or with commas between them where they stand on one line; a JSON list is one too."""
    if not isinstance(value, str):
        return value
    between = "\n" if "\n" in value.strip() else ","
    return [label.strip() for label in value.strip().split(between) if label.strip()] or None


def filled(value: Any) -> Any:
    """A field that was sent empty, as forms of browsers do, is absent."""
    return None if value == "" else value


class ReadRequest(BaseModel):
    """`POST /v1/ocr`: how to read a file."""

    model_config = ConfigDict(extra="ignore")

    pages: str = Field("", max_length=1000, description="Pages to read, such as 1-3,7 or 5-; empty: all.")
    language: Annotated[list[str] | None, BeforeValidator(_words)] = Field(
        None, description="Languages of the print, most likely first: es,en; unset: OCR_LANGUAGES."
    )
    source: Annotated[RequestedSource | None, BeforeValidator(filled)] = Field(
        None, description="auto decides page by page; text_layer never recognises, ocr always does."
    )
    engine: Annotated[OcrEngineName | None, BeforeValidator(filled)] = Field(
        None, description="What recognises; auto chooses page by page, and the answer says which and why."
    )
    password: str | None = Field(None, max_length=1000, description="Of an encrypted PDF.")
    format: Annotated[str | None, BeforeValidator(filled)] = Field(
        None, description="json, text, markdown, hocr, alto or pdf (searchable); unset: what Accept asks for, or json."
    )

    def options(self) -> DocumentOptions:
        """What the service is asked."""
        return DocumentOptions(
            features=frozenset(PAGE_FEATURES),
            pages=self.pages,
            source=self.source or "auto",
            engine=self.engine or "auto",
            languages=tuple(self.language or ()),
            password=self.password or None,
        )


class DocumentRequest(ReadRequest):
    """`POST /v1/documents`: how to read a file, and what to answer of it."""

    features: Annotated[list[DocumentFeature] | None, BeforeValidator(_words)] = Field(
        None, description="What to answer with, with commas between; unset: everything that can be told."
    )
    labels: Annotated[list[str] | None, BeforeValidator(_lines)] = Field(
        None, description="Classes to choose from, in words (zero-shot), with commas between or one a line."
    )
    classifier: Annotated[str | None, BeforeValidator(filled)] = Field(
        None, description="A name that GET /v1/classifiers lists; unset: the default one."
    )
    top_phrases: int = Field(10, ge=1, le=100, description="Most key phrases to answer with.")
    top_sentences: int = Field(3, ge=1, le=100, description="Most key sentences to answer with.")
    encoding_format: Literal["float", "base64"] = Field(
        "float", description="How vectors are written; base64: little-endian float32, a third of the bytes."
    )

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> DocumentRequest:
        require_labels(self.labels or (), "labels")
        require_choice(self.labels)
        return self

    def options(self) -> DocumentOptions:
        """What the service is asked."""
        read = ReadRequest.options(self)
        return DocumentOptions(
            features=frozenset(self.features or FEATURES),
            pages=read.pages,
            source=read.source,
            engine=read.engine,
            languages=read.languages,
            password=read.password,
            labels=tuple(self.labels) if self.labels else None,
            classifier=self.classifier,
            top_phrases=self.top_phrases,
            top_sentences=self.top_sentences,
        )


REQUESTS: tuple[type[BaseModel], ...] = (ReadRequest, DocumentRequest)
