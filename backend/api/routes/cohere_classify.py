"""Classes by examples, in Cohere's shape: what ``POST /v1/classify`` answers for `inputs` and `examples`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Literal, NotRequired

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from backend.api.json_io import written_json
from backend.api.request_context import Handle, call_service_timed, context_of, limits_of
from backend.api.request_fields import LIMIT_KEYWORD, AnyTruncate, FilledTexts, NotServed, WireRequest, check_limits
from backend.text.classification import ClassificationResult, ClassificationService, ClassifiedText
from backend.text.classifier_files import Example
from backend.text.classifiers import LABEL_CHARACTERS_MAX

_classification_of: Handle[ClassificationService] = Handle("classification")


class CohereApiVersion(TypedDict):
    """Which of Cohere's APIs answers."""

    version: str


class CohereBilledUnits(TypedDict):
    """What Cohere would charge for."""

    input_tokens: int


class CohereMeta(TypedDict):
    """What Cohere's clients read beside the vectors."""

    api_version: CohereApiVersion
    billed_units: CohereBilledUnits
    warnings: NotRequired[
        Annotated[list[str] | None, Field(default=None, description="Which texts were cut; absent when none was.")]
    ]


class CohereExample(WireRequest):
    """A text and its class."""

    text: str = Field(min_length=1, pattern=r"\S")
    label: str = Field(min_length=1, pattern=r"\S", max_length=LABEL_CHARACTERS_MAX)


class CohereClassifyRequest(WireRequest):
    """`POST /v1/classify` as Cohere's clients send it: texts, and examples of each class."""

    inputs: FilledTexts = Field(description="What to classify.")
    examples: Annotated[list[CohereExample], Field(min_length=1, fail_fast=True)] = Field(
        description="Texts with their labels: at least one of each of two, learnt for this request alone.",
        json_schema_extra={LIMIT_KEYWORD: "LIMIT_INPUTS"},
    )
    model: str | None = Field(None, description="Any name: the examples alone decide.")
    preset: NotServed = Field(None, description="Not served: presets stand in Cohere's playground.")
    truncate: AnyTruncate = Field("end", description="Texts of any length are read whole.")


class CohereConfidence(TypedDict):
    """How well a label fits."""

    confidence: float


class CohereClassification(TypedDict):
    """The class of one text."""

    id: str
    input: str
    prediction: str
    predictions: list[str]
    confidence: float
    confidences: list[float]
    labels: Annotated[dict[str, CohereConfidence], Field(description="Of each label; they add up to 1.")]
    classification_type: Literal["single-label"]


class CohereClassifications(TypedDict):
    """`POST /v1/classify` with Cohere's examples."""

    id: Annotated[str, Field(description="The request's id, as in X-Request-Id.")]
    classifications: list[CohereClassification]
    meta: CohereMeta


_BY_EXAMPLES = tuple(re.compile(rb'"%b"\s*:' % name) for name in (b"inputs", b"examples"))


def is_by_examples(body: bytes) -> bool:
    """Whether a body of ``POST /v1/classify`` has Cohere's fields, and no request of Jina's."""
    return all(name.search(body) for name in _BY_EXAMPLES)


async def classify_by_examples(request: Request, body: CohereClassifyRequest) -> Response:
    """The classes of texts by the examples in the request."""
    limits = limits_of(request)
    characters = check_limits(body.inputs, limits, "inputs")
    characters += check_limits([example.text for example in body.examples], limits, "examples")
    examples = [Example(example.text, (example.label,)) for example in body.examples]
    call = partial(_classification_of(request).classify_by_examples, body.inputs, examples)
    classified = await call_service_timed(request, call, characters=characters)
    write = partial(_classifications, classified, body.inputs, context_of(request).request_id)
    return await written_json(write, classified.prediction_count)


def _classifications(classified: ClassificationResult, texts: Sequence[str], request_id: str) -> CohereClassifications:
    return {
        "id": request_id,
        "classifications": [
            _classification(row, text, f"{request_id}-{index}")
            for index, (row, text) in enumerate(zip(classified.rows, texts, strict=True))
        ],
        "meta": {"api_version": {"version": "1"}, "billed_units": {"input_tokens": classified.tokens}},
    }


def _classification(row: ClassifiedText, text: str, text_id: str) -> CohereClassification:
    best = row.predictions[0]
    return {
        "id": text_id,
        "input": text,
        "prediction": best.label,
        "predictions": [best.label],
        "confidence": best.score,
        "confidences": [best.score],
        "labels": {prediction.label: {"confidence": prediction.score} for prediction in row.predictions},
        "classification_type": "single-label",
    }


CLASSIFY_EXAMPLE = {
    "inputs": ["Confirme su dirección de correo", "te mando dinero si me llamas ya"],
    "examples": [
        {"text": "¡Ha ganado un premio! Envíe su IBAN", "label": "spam"},
        {"text": "Dinero fácil desde casa", "label": "spam"},
        {"text": "Acta de la reunión del lunes", "label": "correo"},
        {"text": "Su pedido llega mañana", "label": "correo"},
    ],
}
