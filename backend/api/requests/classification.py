"""Requests to classify (Jina's ``/v1/classify``, text-embeddings-inference's ``/predict``) and to train classifiers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationInfo, WithJsonSchema, model_validator

from backend.api.requests.embeddings import TruncatingRequest
from backend.api.requests.fields import (
    LABEL,
    LIMIT_KEYWORD,
    TEXT,
    ClassifyItems,
    Count,
    FilledTexts,
    ImageInputs,
    InfinityModel,
    Labels,
    WireRequest,
    many,
    only,
)
from backend.api.requests.validation import (
    LABEL_CHARS,
    require_labels,
    require_no_empty_items,
    require_not_empty,
    require_one_name,
    require_texts,
    require_two_labels,
    wrong_type,
)
from backend.errors import BadInput, InvalidField
from backend.text.classifiers import LABEL_CHARACTERS_MAX

Pair = tuple[str, str]
_PLACEHOLDER = "{}"
# {} once, and no other braces
_TEMPLATE = {
    "anyOf": [{"type": "string", "pattern": r"^[^{}]*\{\}[^{}]*$", "maxLength": LABEL_CHARS}, {"type": "null"}]
}
# One label alone always wins: it makes sense only where each is judged by itself.
_TWO_LABELS: dict[str, Any] = {
    "properties": {"labels": {"anyOf": [{"type": "array", "minItems": 2}, {"type": "null"}]}}
}
_EACH_BY_ITSELF: dict[str, Any] = {"properties": {"multi_label": {"const": True}}, "required": ["multi_label"]}
_PREDICT_KINDS = 'a text, a pair of texts [a, b], or a batch of lists of one or two texts each: [["a"], ["b", "c"]]'


def _check_template(value: Any, info: ValidationInfo) -> str | None:
    name = info.field_name or "hypothesis_template"
    if value is None:
        return None
    if type(value) is not str:
        raise wrong_type(name, value, "a text")
    if len(value) > LABEL_CHARS:  # each label is put into it: megabytes of it would be gigabytes
        raise InvalidField(f"{name}: is a sentence of at most {LABEL_CHARS} characters, got {len(value)}", param=name)
    if value.count(_PLACEHOLDER) != 1 or set(value.replace(_PLACEHOLDER, "")) & set(_PLACEHOLDER):
        raise InvalidField(
            f"{name}: must hold {_PLACEHOLDER} once, where the label goes, and no other braces", param=name
        )
    return value


def _require_own_labels(request: ClassifyRequest) -> None:
    """Raise InvalidField for what an image model cannot be asked."""
    for name in ("labels", "multi_label", "hypothesis_template"):
        if getattr(request, name) is not None:
            raise InvalidField(
                f"{name}: is for texts; an image model tells the labels apart that it has learnt. Leave it out",
                param=name,
            )


class ClassifyRequest(WireRequest):
    """Jina's request: classes given with it (zero-shot), or a classifier by its name."""

    model_config = ConfigDict(json_schema_extra={"anyOf": [_EACH_BY_ITSELF, _TWO_LABELS]})

    input: ClassifyItems = Field(
        description="What to classify: one text or a list, each as it is or as {text}; or images, each as {image}: "
        "base64 of a file, alone or as a data URL. Images are told apart by IMAGE_MODEL, by its own labels."
    )
    labels: Labels = Field(
        None, description="Classes to choose from, in words (zero-shot), at most LIMIT_LABELS; unset: the classifier's."
    )
    model: str | None = Field(
        None, description="A classifier that GET /v1/classifiers lists, or a model that GET /v1/models does."
    )
    classifier_id: str | None = Field(None, description="Jina's word for the classifier's name; the same as `model`.")
    multi_label: bool | None = Field(
        None, description="Whether each label is judged by itself; unset: as the classifier was made, else false."
    )
    top_k: Count | None = Field(None, description="How many predictions to answer with, best first; unset: all.")
    min_score: float | None = Field(
        None,
        ge=0.0,
        le=1.0,
        description="Least score of `prediction`, which is null below; unset: the classifier's own.",
    )
    hypothesis_template: Annotated[Any, PlainValidator(_check_template), WithJsonSchema(_TEMPLATE)] = Field(
        None, description="How a label becomes a sentence, with {} in its place."
    )

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> ClassifyRequest:
        if not self.multi_label:
            require_two_labels(self.labels, ", or set multi_label to have it judged by itself")
        require_one_name(self.model, self.classifier_id)
        if isinstance(self.input, ImageInputs):
            _require_own_labels(self)
        return self

    @property
    def classifier(self) -> str | None:
        """The classifier's name, from either field."""
        return self.model if self.model is not None else self.classifier_id


@dataclass(frozen=True, slots=True)
class PredictInputs:
    """The inputs of ``/predict``."""

    rows: tuple[str | Pair, ...]
    batch: bool  # the answer is then a list of lists

    @property
    def texts(self) -> list[str]:
        """Every text; both of a pair."""
        return [text for row in self.rows for text in ([row] if isinstance(row, str) else row)]


def _check_predict(value: Any, info: ValidationInfo) -> PredictInputs:
    """One text or one pair; or a batch, which differs from a pair by its inner lists."""
    name = info.field_name or "inputs"
    if type(value) is str:
        value = [value]
    if type(value) is not list:
        raise wrong_type(name, value, _PREDICT_KINDS)
    require_not_empty(value, name)
    if type(value[0]) is str:
        return PredictInputs(rows=(_row(value, name),), batch=False)
    for index, row in enumerate(value):
        if type(row) is not list:
            raise wrong_type(f"{name}[{index}]", row, f"as {name} must be {_PREDICT_KINDS}")
    return PredictInputs(rows=tuple(_row(row, f"{name}[{index}]") for index, row in enumerate(value)), batch=True)


def _row(texts: list[Any], place: str) -> str | Pair:
    name = place.partition("[")[0]
    require_texts(texts, place)
    if len(texts) not in (1, 2):
        raise InvalidField(f"{place}: must be {_PREDICT_KINDS}; got {len(texts)} texts in one list", param=name)
    if not all(texts):
        raise BadInput(f"{place}: must not be empty; leave empty texts out of the request", param=name)
    return (texts[0], texts[1]) if len(texts) == 2 else texts[0]


_TEXT_LIST = {"type": "array", "minItems": 1, "maxItems": 2, "items": TEXT}


class PredictRequest(TruncatingRequest):
    """The request of text-embeddings-inference's ``/predict``."""

    inputs: Annotated[
        Any,
        PlainValidator(_check_predict),
        WithJsonSchema(
            {
                "oneOf": [
                    {**TEXT, "title": "a text"},
                    {**_TEXT_LIST, "title": "a text, or a pair of texts"},
                    {**many(_TEXT_LIST), "title": "a batch of texts and pairs"},
                ]
            }
        ),
    ] = Field(description="What to classify.")
    raw_scores: bool | None = Field(False, description="Logits instead of probabilities.")


class InfinityClassifyRequest(WireRequest):
    """The request of infinity's ``/classify``."""

    input: FilledTexts = Field(description="What to classify, at most LIMIT_INPUTS.")
    model: InfinityModel = Field(
        None, description="A classifier that GET /v1/classifiers lists, or a classifying model."
    )
    raw_scores: bool | None = Field(False, description="Logits instead of probabilities.")


# Texts and labels that are not blank.
_ExampleText = Annotated[str, Field(min_length=1), WithJsonSchema({**TEXT, "pattern": r"\S"})]
_ExampleLabel = Annotated[str, Field(min_length=1), WithJsonSchema({**LABEL, "maxLength": LABEL_CHARACTERS_MAX})]
_GATHERED = {
    "type": "object",
    "minProperties": 1,
    LIMIT_KEYWORD: "LIMIT_LABELS",
    "propertyNames": {**LABEL, "maxLength": LABEL_CHARACTERS_MAX},
    "additionalProperties": many({**TEXT, "pattern": r"\S"}),
}


class Example(WireRequest):
    """One text and its class."""

    text: _ExampleText
    label: _ExampleLabel


class LearnRequest(WireRequest):
    """`PUT /v1/classifiers/{name}`: texts with their classes, one after the other or gathered by class."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [only("examples", "labels"), only("labels", "examples")]})

    examples: (
        Annotated[list[Example], Field(min_length=1, fail_fast=True, json_schema_extra={LIMIT_KEYWORD: "LIMIT_INPUTS"})]
        | None
    ) = Field(None, description="Texts, each with its label.")
    labels: Annotated[dict[str, list[str]], WithJsonSchema(_GATHERED)] | None = Field(
        None, description="The same, gathered: a list of texts for each label."
    )

    def by_label(self) -> Mapping[str, list[str]]:
        """The texts of each class, in the order in which they came.

        Raises: BadInput, InvalidField. Whether they are enough to train on is for the service to say.
        """
        if (self.examples is None) == (self.labels is None):
            raise InvalidField('examples: send either examples, [{"text", "label"}, …], or labels, {"label": [texts]}')
        by_label = dict(self.labels or {})
        for example in self.examples or ():
            by_label.setdefault(example.label, []).append(example.text)
        require_not_empty(by_label, "labels")
        require_labels(list(by_label), "labels")
        for label, texts in by_label.items():
            require_not_empty(texts, f"labels.{label}", "; every label needs at least one text")
            require_no_empty_items(texts, f"labels.{label}")
        return by_label


REQUESTS: tuple[type[BaseModel], ...] = (
    ClassifyRequest,
    PredictRequest,
    InfinityClassifyRequest,
    LearnRequest,
)
