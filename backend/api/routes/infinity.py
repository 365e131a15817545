"""infinity's routes, without ``/v1``: ``/embeddings``, ``/classify``, ``/models``. Its ``/rerank`` is in tei.py."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from backend.api.dependencies import context_of, services_of
from backend.api.requests.classification import InfinityClassifyRequest
from backend.api.requests.embeddings import InfinityEmbeddingsRequest
from backend.api.requests.json_body import read_json
from backend.api.requests.validation import check_limits
from backend.api.responses.embeddings import TEI_HEADERS, openai_embeddings, tei_headers, truncated_indices
from backend.api.responses.infinity import (
    InfinityClasses,
    InfinityEmbeddings,
    InfinityModels,
    InfinityStats,
    infinity_classes,
    infinity_fields,
    infinity_model,
)
from backend.api.responses.json_bytes import json_response, written_json
from backend.api.routes.embeddings import embed
from backend.api.routes.models import CARD_EXAMPLE
from backend.api.routing import get, post
from backend.api.service_call import call_service_timed


async def create_embeddings(request: Request) -> Response:
    """Vectors of texts or token ids, as `POST /v1/embeddings` answers, with infinity's two fields more."""
    body = await read_json(request, InfinityEmbeddingsRequest, services_of(request).limits)
    embedded = await embed(request, body.input, body.options(), param="input", model=body.model)
    return await openai_embeddings(embedded, body.encoding, infinity_fields(context_of(request).request_id))


async def classify(request: Request) -> Response:
    """Classes of texts, all with their scores, the best first.

    `model` is a classifier or a classifying model; unset, CLASSIFIER_MODEL's, else the bundled one for document types.
    """
    services = services_of(request)
    body = await read_json(request, InfinityClassifyRequest, services.limits)
    characters = check_limits(body.input, services.limits, "input")
    call = partial(services.classification.predict, body.input, model=body.model, raw_scores=bool(body.raw_scores))
    classified = await call_service_timed(request, call, characters=characters)
    headers = tei_headers(classified.tokens, truncated_indices([row.truncated for row in classified.rows]))
    answer = partial(infinity_classes, classified, context_of(request).request_id)
    return await written_json(answer, classified.prediction_count, headers=headers)


async def list_models(request: Request) -> Response:
    """The loaded models: as `GET /v1/models` answers, with infinity's fields more."""
    services = services_of(request)
    lanes = services.health.lanes()
    stats: InfinityStats = {
        "queue_absolute": lanes.queued_jobs,
        "results_pending": lanes.queued_jobs + lanes.busy,
        "batch_size": services.limits.inputs,
    }
    models: InfinityModels = {
        "object": "list",
        "data": [infinity_model(model, stats) for model in services.catalog.models()],
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
