"""The fields that come with an upload, in its form or in the query; as strings, all of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, field_validator, model_validator

from backend.api.requests.summaries import (
    MOST_BEAMS,
    MOST_TOKENS,
    MaxTokensOrEmpty,
    SentencesOrEmpty,
    require_min_below_max,
)
from backend.api.requests.validation import require_labels, require_one_name, require_two_labels
from backend.documents.formats.registry import FORMAT_NAMES
from backend.documents.records import (
    DEFAULT_FEATURES,
    FEATURES,
    PAGE_FEATURES,
    DocumentFeature,
    DocumentOptions,
)
from backend.errors import InvalidField
from backend.files.page_ranges import check_page_ranges
from backend.files.text_source import RequestedSource
from backend.images.page_choice import PageChoice
from backend.ocr.engine_choice import OcrEngineName
from backend.summaries.records import RequestedMethod


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
        None,
        description="json, text, markdown, html, csv, xlsx, hocr, alto or pdf (searchable); of a recording "
        "json, text, markdown, srt or vtt; unset: by Accept.",
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
    ] = Field(None, description="What to answer with, with commas between; unset: everything but summary.")
    labels: Annotated[list[str] | None, BeforeValidator(_split_labels), _text(_TWO_LABELS)] = Field(
        None, description="Classes to choose from, in words (zero-shot), with commas between or one a line."
    )
    classifier: Annotated[str | None, BeforeValidator(_none_if_empty), WithJsonSchema({"type": "string"})] = Field(
        None, description="A name that GET /v1/classifiers lists; unset: the default one."
    )
    top_phrases: int = Field(10, ge=1, le=100, description="Most key phrases to answer with.")
    top_sentences: int = Field(3, ge=1, le=100, description="Most key sentences to answer with.")
    xml: Annotated[str | None, BeforeValidator(_none_if_empty), WithJsonSchema({"type": "string"})] = Field(
        None, description="The electronic invoice (Factur-X, UBL or Facturae XML) that belongs to the file."
    )
    summary_method: Annotated[
        RequestedMethod | None, BeforeValidator(_none_if_empty), _one_of(get_args(RequestedMethod))
    ] = Field(None, description="Who makes the summary, as `method` of POST /v1/summarize.")
    summary_sentences: SentencesOrEmpty = Field(None, description="Most sentences of the summary; unset: 3 or any.")
    summary_tokens: MaxTokensOrEmpty = Field(None, description="Most tokens of the summary.")
    summary_min_tokens: int = Field(0, ge=0, le=MOST_TOKENS, description="Fewest tokens that SUMMARY_MODEL writes.")
    summary_beams: int = Field(1, ge=1, le=MOST_BEAMS, description="Beams of SUMMARY_MODEL; 1: greedy.")
    encoding_format: Literal["float", "base64"] = Field(
        "float", description="How vectors are written; base64: little-endian float32, a third of the bytes."
    )

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> DocumentRequest:
        require_labels(self.labels or (), "labels")
        require_two_labels(self.labels)
        require_min_below_max(self.summary_min_tokens, self.summary_tokens, "summary_")
        return self

    def options(self) -> DocumentOptions:
        """The options of the document service."""
        page_options = ReadRequest.options(self)
        return DocumentOptions(
            features=frozenset(self.features or DEFAULT_FEATURES),
            pages=page_options.pages,
            source=page_options.source,
            engine=page_options.engine,
            languages=page_options.languages,
            password=page_options.password,
            labels=tuple(self.labels) if self.labels else None,
            classifier=self.classifier,
            top_phrases=self.top_phrases,
            top_sentences=self.top_sentences,
            xml=self.xml,
            summary_method=self.summary_method or "extractive",
            summary_sentences=self.summary_sentences,
            summary_tokens=self.summary_tokens,
            summary_min_tokens=self.summary_min_tokens,
            summary_beams=self.summary_beams,
        )


class ClassifyForm(BaseModel):
    """`POST /v1/classify` with a file: which pages to look at, and how to answer."""

    model_config = ConfigDict(extra="ignore")

    pages: str = Field(
        "",
        max_length=1000,
        json_schema_extra={"pattern": _PAGES},
        description="Pages to look at, such as 1-3,7 or 5-; empty: the first.",
    )
    model: Annotated[str | None, BeforeValidator(_none_if_empty), WithJsonSchema({"type": "string"})] = Field(
        None, description="A name of the image model; unset: IMAGE_MODEL."
    )
    classifier_id: Annotated[str | None, BeforeValidator(_none_if_empty), WithJsonSchema({"type": "string"})] = Field(
        None, description="Jina's word for it; the same as `model`."
    )
    top_k: Annotated[int | None, BeforeValidator(_none_if_empty), WithJsonSchema({"enum": ["", "1", "2", "5"]})] = (
        Field(None, ge=1, description="How many predictions to answer with, best first; unset: all.")
    )
    min_score: Annotated[
        float | None, BeforeValidator(_none_if_empty), WithJsonSchema({"type": "number", "minimum": 0, "maximum": 1})
    ] = Field(None, ge=0.0, le=1.0, description="Least score of `prediction`, which is null below; unset: none.")
    password: Annotated[str | None, WithJsonSchema({"type": "string", "maxLength": 1000})] = Field(
        None, max_length=1000, description="Of an encrypted PDF."
    )

    @field_validator("pages")
    @classmethod
    def _is_list_of_ranges(cls, pages: str) -> str:
        check_page_ranges(pages)
        return pages

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> ClassifyForm:
        require_one_name(self.model, self.classifier_id)
        return self

    @property
    def classifier(self) -> str | None:
        """The image model's name, from either field."""
        return self.model if self.model is not None else self.classifier_id

    def choice(self) -> PageChoice:
        """Which pages, and how to open the file."""
        return PageChoice(self.pages.strip(), self.password or None)


class JobForm(DocumentRequest):
    """`POST /v1/jobs`: as `POST /v1/documents`, and how long it may take."""

    deadline_s: Annotated[
        float | None,
        BeforeValidator(_none_if_empty),
        WithJsonSchema({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"const": ""}]}),
    ] = Field(None, gt=0, allow_inf_nan=False, description="Seconds it may run, once started; at most LIMIT_JOB_S.")


class SummarizeForm(ReadRequest):
    """`POST /v1/summarize` with a file: how to read it, and how to summarise it."""

    format: Annotated[str | None, BeforeValidator(_none_if_empty), _one_of(("json",))] = Field(
        None, description="json, which a summary always comes as."
    )
    method: Annotated[RequestedMethod | None, BeforeValidator(_none_if_empty), _one_of(get_args(RequestedMethod))] = (
        Field(None, description="extractive (unset), abstractive, model or api.")
    )
    sentences: SentencesOrEmpty = Field(None, description="Most sentences; unset: 3 of an extract, else any number.")
    max_tokens: MaxTokensOrEmpty = Field(None, description="Most tokens.")
    min_tokens: int = Field(0, ge=0, le=MOST_TOKENS, description="Fewest tokens that SUMMARY_MODEL writes.")
    beams: int = Field(1, ge=1, le=MOST_BEAMS, description="Beams of SUMMARY_MODEL; 1: greedy.")

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> SummarizeForm:
        require_min_below_max(self.min_tokens, self.max_tokens)
        if self.format not in (None, "json"):
            raise InvalidField(f"format: a summary comes as json, not as {self.format}", param="format")
        return self

    def options(self) -> DocumentOptions:
        """The options of the document service."""
        return replace(
            ReadRequest.options(self),
            summary_method=self.method or "extractive",
            summary_sentences=self.sentences,
            summary_tokens=self.max_tokens,
            summary_min_tokens=self.min_tokens,
            summary_beams=self.beams,
        )


REQUESTS: tuple[type[BaseModel], ...] = (ReadRequest, DocumentRequest, ClassifyForm)
