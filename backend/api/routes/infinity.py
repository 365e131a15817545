"""infinity's routes, without ``/v1``: ``/embeddings``, ``/classify``, ``/models``. Its ``/rerank`` is in tei.py."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BeforeValidator, Field
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from backend.api.json_io import json_response, read_json, written_json
from backend.api.request_context import Handle, call_service_timed, context_of, limits_of
from backend.api.request_fields import Count, FilledTexts, InfinityModel, WireRequest, check_limits
from backend.api.routes.classify import PredictionAnswer
from backend.api.routes.embeddings import (
    EmbeddingsAnswer,
    EmbeddingsRequest,
    Usage,
    embed,
    openai_embeddings,
    truncated_indices,
    usage,
)
from backend.api.routes.models import CARD_EXAMPLE, ModelCard, model_card
from backend.api.routes.tei import TEI_HEADERS, AnswerId, Created, now_s, tei_headers, tei_predictions
from backend.api.routing import get, post
from backend.serving.catalog import Catalog, LoadedModel
from backend.serving.health import HealthService
from backend.text.classification import ClassificationResult, ClassificationService

_classification_of: Handle[ClassificationService] = Handle("classification")
_health_of: Handle[HealthService] = Handle("health")
_catalog_of: Handle[Catalog] = Handle("catalog")


def _none_for_zero(value: Any) -> Any:
    """infinity's own client sends 0 for all dimensions."""
    return None if type(value) in (int, float) and value == 0 else value


class InfinityEmbeddingsRequest(EmbeddingsRequest):
    """The same as infinity's clients send it."""

    model: InfinityModel = Field(None, description="A name that GET /models lists; unset: the one loaded.")
    dimensions: Annotated[Count | None, BeforeValidator(_none_for_zero)] = Field(
        None,
        validation_alias=AliasChoices("dimensions", "output_dimension"),
        description="Leading dimensions to keep, at most the model's width; 0: all.",
        json_schema_extra={"anyOf": [{"type": "integer", "minimum": 0}, {"type": "null"}]},
    )
    modality: Literal["text"] | None = Field("text", description="Images and audio are not read.")


class InfinityClassifyRequest(WireRequest):
    """The request of infinity's ``/classify``."""

    input: FilledTexts = Field(description="What to classify, at most LIMIT_INPUTS.")
    model: InfinityModel = Field(
        None, description="A classifier that GET /v1/classifiers lists, or a classifying model."
    )
    raw_scores: bool | None = Field(False, description="Logits instead of probabilities.")


# What each model can do without another's help: the vectors classify and rank, too.
_CAPABILITIES = ("embed", "rerank", "classify")  # those that infinity's clients know


class InfinityEmbeddings(EmbeddingsAnswer):
    """OpenAI's list of embeddings with infinity's two fields more."""

    id: AnswerId
    created: Created


class InfinityClasses(TypedDict):
    """`POST /classify`."""

    object: Literal["classify"]
    data: Annotated[list[list[PredictionAnswer]], Field(description="Of each text every label, best first.")]
    model: str
    usage: Usage
    id: AnswerId
    created: Created


class InfinityStats(TypedDict):
    """How loaded the service is."""

    queue_absolute: Annotated[int, Field(description="Work items that wait, of all models.")]
    results_pending: Annotated[int, Field(description="The same, and the batches that run.")]
    batch_size: Annotated[int, Field(description="Most inputs of one request, LIMIT_INPUTS.")]


class InfinityModelCard(ModelCard):
    """A loaded model in infinity's words beside OpenAI's."""

    capabilities: list[str]  # type: ignore[misc]  # infinity's have no other form
    stats: InfinityStats
    backend: Annotated[str, Field(description="torch, onnx or openvino.")]


class InfinityModels(TypedDict):
    """`GET /models`."""

    object: Literal["list"]
    data: list[InfinityModelCard]


def infinity_fields(request_id: str) -> dict[str, Any]:
    """The two fields that each of infinity's answers has."""
    return {"id": request_id, "created": now_s()}


def infinity_classes(classified: ClassificationResult, request_id: str) -> InfinityClasses:
    """The classes of each text, every label with its score, the best first."""
    return {
        "object": "classify",
        "data": [tei_predictions(row.predictions) for row in classified.rows],
        "model": classified.model,
        "usage": usage(classified.tokens),
        "id": request_id,
        "created": now_s(),
    }


def infinity_model(model: LoadedModel, stats: InfinityStats) -> InfinityModelCard:
    """A model as infinity's clients read it; they refuse any other owner than infinity."""
    card = model_card(model)
    return {
        **card,
        "owned_by": "infinity",
        "stats": stats,
        "backend": model.runtime,
        "capabilities": [word for word in card["capabilities"] if word in _CAPABILITIES],
    }


async def create_embeddings(request: Request) -> Response:
    """Vectors of texts or token ids, as `POST /v1/embeddings` answers, with infinity's two fields more."""
    body = await read_json(request, InfinityEmbeddingsRequest)
    embedded = await embed(request, body.input, body.options(), param="input", model=body.model)
    return await openai_embeddings(embedded, body.encoding, infinity_fields(context_of(request).request_id))


async def classify(request: Request) -> Response:
    """Classes of texts, all with their scores, the best first.

    `model` is a classifier or a classifying model; unset, or the embedding model, whose vectors the bundled classifiers
    read: CLASSIFIER_MODEL's, else the bundled one for document types.
    """
    body = await read_json(request, InfinityClassifyRequest)
    characters = check_limits(body.input, limits_of(request), "input")
    model = None if body.model in _catalog_of(request).embedding().names else body.model
    call = partial(_classification_of(request).predict, body.input, model=model, raw_scores=bool(body.raw_scores))
    classified = await call_service_timed(request, call, characters=characters)
    headers = tei_headers(classified.tokens, truncated_indices([row.truncated for row in classified.rows]))
    answer = partial(infinity_classes, classified, context_of(request).request_id)
    return await written_json(answer, classified.prediction_count, headers=headers)


async def list_models(request: Request) -> Response:
    """The loaded models: as `GET /v1/models` answers, with infinity's fields more."""
    lanes = _health_of(request).lanes()
    stats: InfinityStats = {
        "queue_absolute": lanes.queued_jobs,
        "results_pending": lanes.queued_jobs + lanes.busy,
        "batch_size": limits_of(request).inputs,
    }
    models: InfinityModels = {
        "object": "list",
        "data": [infinity_model(model, stats) for model in _catalog_of(request).models()],
    }
    return json_response(models)


_TEXT = "Factura n.º 2024-017. Total a pagar: 1.284,50 €."
_FIELDS = {"id": "8f3a1c2b9d4e-17", "created": 1767225600}
ROUTES = (
    post(
        "/embeddings",
        create_embeddings,
        tag="infinity",
        request=InfinityEmbeddingsRequest,
        examples={"one text": {"input": "La factura vence el 31 de marzo."}, "texts": {"input": ["uno", "two"]}},
        schema=InfinityEmbeddings,
        example={
            "object": "list",
            "data": [{"object": "embedding", "index": 0, "embedding": [0.0123, -0.0456, 0.0789]}],
            "model": "multilingual-e5-small",
            "usage": {"prompt_tokens": 12, "total_tokens": 12},
            **_FIELDS,
        },
    ),
    post(
        "/classify",
        classify,
        tag="infinity",
        request=InfinityClassifyRequest,
        examples={"one text": {"input": [_TEXT]}},
        schema=InfinityClasses,
        example={
            "object": "classify",
            "data": [[{"score": 0.9734, "label": "invoice"}, {"score": 0.0181, "label": "receipt"}]],
            "model": "document-type",
            "usage": {"prompt_tokens": 19, "total_tokens": 19},
            **_FIELDS,
        },
        headers=TEI_HEADERS,
    ),
    get(
        "/models",
        list_models,
        tag="infinity",
        schema=InfinityModels,
        example={
            "object": "list",
            "data": [
                {
                    **CARD_EXAMPLE,
                    "owned_by": "infinity",
                    "stats": {"queue_absolute": 0, "results_pending": 0, "batch_size": 2048},
                    "backend": "onnx",
                    "capabilities": ["embed", "rerank", "classify"],
                }
            ],
        },
    ),
)
