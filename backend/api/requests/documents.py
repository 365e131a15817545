"""The fields that come with an upload, in its form or in the query; as strings, all of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, field_validator, model_validator

from backend.api.requests.validation import require_labels, require_two_labels
from backend.documents.formats import FORMAT_NAMES
from backend.documents.parsing.page_ranges import check_page_ranges
from backend.documents.parsing.text_source import RequestedSource
from backend.engines.ocr.engine_choice import OcrEngineName
from backend.services.documents.records import FEATURES, PAGE_FEATURES, DocumentOptions

DocumentFeature = Literal[
    "text", "words", "language", "classes", "entities", "key_phrases", "key_sentences", "vector", "chunks"
]
assert get_args(DocumentFeature) == FEATURES, "the features of the API are those of the service"


def _split_words(value: Any) -> Any:
    """A text such as "es, en" and "spa+eng" as a list; an empty field as one that is absent."""
    if not isinstance(value, str):
        return value
    return [word.strip() for word in value.replace("+", ",").split(",") if word.strip()] or None


def _split_labels(value: Any) -> Any:
    """Labels one a line, or separated by commas where there is one line; a list stays as it is."""
    if not isinstance(value, str):
        return value
    separator = "\n" if "\n" in value.strip() else ","
    return [label.strip() for label in value.strip().split(separator) if label.strip()] or None


def _none_if_empty(value: Any) -> Any:
    """An empty field, as browsers' forms send them, counts as absent."""
    return None if value == "" else value


# In a form every value is a text: OpenAPI says which texts.
_RANGE = r" *([1-9]\d{0,8}(-([1-9]\d{0,8})?)?|-[1-9]\d{0,8}) *"
_LANGUAGE = "[A-Za-z][A-Za-z_/-]*"  # es, spa, chi_sim, script/Latin
_PAGES = f"^({_RANGE}(,{_RANGE})*)?$"
_TWO_LABELS = r"^\s*$|[^\s,][\s\S]*[,\n][\s\S]*[^\s,]"


def _listed(word: str) -> str:
    """The pattern of words between commas or plus signs; none at all counts as absent."""
    return f"^ *(({word})( *[,+] *({word}))* *)?$"


def _text(pattern: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": pattern})


def _one_of(names: Iterable[str]) -> WithJsonSchema:
    return WithJsonSchema({"enum": ["", *names]})


class ReadRequest(BaseModel):
    """`POST /v1/ocr`: how to read a file."""

    model_config = ConfigDict(extra="ignore")

    pages: str = Field(
        "",
        max_length=1000,
        json_schema_extra={"pattern": _PAGES},
        description="Pages to read, such as 1-3,7 or 5-; empty: all.",
    )
    language: Annotated[
        list[Annotated[str, Field(pattern=f"^{_LANGUAGE}$")]] | None,
        BeforeValidator(_split_words),
        _text(_listed(_LANGUAGE)),
    ] = Field(None, description="Languages of the print, most likely first: es,en; unset: OCR_LANGUAGES.")
    source: Annotated[RequestedSource | None, BeforeValidator(_none_if_empty), _one_of(get_args(RequestedSource))] = (
        Field(None, description="auto decides page by page; text_layer never recognises, ocr always does.")
    )
    engine: Annotated[OcrEngineName | None, BeforeValidator(_none_if_empty), _one_of(get_args(OcrEngineName))] = Field(
        None, description="What recognises; auto chooses page by page, and the answer says which and why."
    )
    password: Annotated[str | None, WithJsonSchema({"type": "string", "maxLength": 1000})] = Field(
        None, max_length=1000, description="Of an encrypted PDF."
    )
    format: Annotated[str | None, BeforeValidator(_none_if_empty), _one_of(FORMAT_NAMES)] = Field(
        None, description="json, text, markdown, hocr, alto or pdf (searchable); unset: what Accept asks for, or json."
    )

    @field_validator("pages")
    @classmethod
    def _is_list_of_ranges(cls, pages: str) -> str:
        check_page_ranges(pages)  # here and not only when the file is open: a job would be accepted and fail
        return pages

    def options(self) -> DocumentOptions:
        """The options of the document service."""
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

    features: Annotated[
        list[DocumentFeature] | None, BeforeValidator(_split_words), _text(_listed("|".join(FEATURES)))
    ] = Field(None, description="What to answer with, with commas between; unset: everything that can be told.")
    labels: Annotated[list[str] | None, BeforeValidator(_split_labels), _text(_TWO_LABELS)] = Field(
        None, description="Classes to choose from, in words (zero-shot), with commas between or one a line."
    )
    classifier: Annotated[str | None, BeforeValidator(_none_if_empty), WithJsonSchema({"type": "string"})] = Field(
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
        require_two_labels(self.labels)
        return self

    def options(self) -> DocumentOptions:
        """The options of the document service."""
        page_options = ReadRequest.options(self)
        return DocumentOptions(
            features=frozenset(self.features or FEATURES),
            pages=page_options.pages,
            source=page_options.source,
            engine=page_options.engine,
            languages=page_options.languages,
            password=page_options.password,
            labels=tuple(self.labels) if self.labels else None,
            classifier=self.classifier,
            top_phrases=self.top_phrases,
            top_sentences=self.top_sentences,
        )


class JobForm(DocumentRequest):
    """`POST /v1/jobs`: as `POST /v1/documents`, and how long it may take."""

    deadline_s: Annotated[
        float | None,
        BeforeValidator(_none_if_empty),
        WithJsonSchema({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"const": ""}]}),
    ] = Field(None, gt=0, allow_inf_nan=False, description="Seconds it may run, once started; at most LIMIT_JOB_S.")


REQUESTS: tuple[type[BaseModel], ...] = (ReadRequest, DocumentRequest)
