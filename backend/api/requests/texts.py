"""Requests to find the entities of texts, or to analyze one text."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import BaseModel, Field, model_validator

from backend.api.requests.fields import TextInputs, TextItem, TwoLabels, UpTo100, WireRequest
from backend.api.requests.validation import require_two_labels

Source = Literal["model", "pattern"]
Feature = Literal["language", "key_phrases", "key_sentences", "classes", "entities", "vector"]
FEATURES: tuple[Feature, ...] = get_args(Feature)


class EntitiesRequest(WireRequest):
    """`POST /v1/entities`."""

    input: TextInputs = Field(description="Texts of any length up to LIMIT_TEXT_CHARS; nothing is cut.")
    types: Annotated[list[str], Field(min_length=1)] | None = Field(
        None, description="Kinds of entities to answer with: the model's (PER, ORG, LOC) and patterns'; unset: all."
    )
    min_score: float = Field(0.0, ge=0.0, le=1.0, description="Least score of an entity.")
    sources: Annotated[list[Source], Field(min_length=1)] | None = Field(
        None,
        description="Who looks: the model, which reads names, patterns, which read numbers and dates; unset: both,"
        " or patterns alone where no model is loaded.",
    )
    explain: bool | None = Field(False, description="Also answer what was found and gave way to another, and why.")
    model: str | None = Field(None, description="A name that GET /v1/models lists; unset: the one loaded.")


class AnalyzeRequest(WireRequest):
    """`POST /v1/analyze`."""

    input: TextItem = Field(description="One text up to LIMIT_TEXT_CHARS, as it is or as {text}; nothing is cut.")
    features: Annotated[list[Feature], Field(min_length=1)] | None = Field(
        None, description="What to answer with; unset: all that can be told. Less is faster."
    )
    labels: TwoLabels = Field(
        None,
        description="Classes to choose from, in words (zero-shot), two or more; unset: the classifier's.",
    )
    classifier: str | None = Field(None, description="A name that GET /v1/classifiers lists; unset: the default one.")
    top_phrases: UpTo100 = Field(10, description="Most key phrases to answer with.")
    top_sentences: UpTo100 = Field(3, description="Most key sentences to answer with.")
    encoding_format: Literal["float", "base64"] | None = Field(
        "float", description="How the vector is written; base64: little-endian float32, a third of the bytes."
    )

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> AnalyzeRequest:
        require_two_labels(self.labels)
        return self


REQUESTS: tuple[type[BaseModel], ...] = (EntitiesRequest, AnalyzeRequest)
