"""What is loaded, and every choice this process made with its reason."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from backend.api.answers import json_answer
from backend.api.deps import services_of
from backend.api.routes.plain import get, name_parameter
from backend.api.schemas.answers import ModelCard, ModelList
from backend.services.catalog import LoadedModel


async def list_models(request: Request) -> Response:
    """The loaded models: OpenAI's list, with device, dtype, runtime, revision and sizes."""
    models = services_of(request).catalog.models()
    return json_answer({"object": "list", "data": [card(model) for model in models]})


async def retrieve_model(request: Request) -> Response:
    """One model, by any of its names."""
    return json_answer(card(services_of(request).catalog.find(request.path_params["name"])))


async def system(request: Request) -> Response:
    """Device, precision, lanes, budgets, cache and limits of this process, each with why it was chosen."""
    return json_answer(services_of(request).system())


def card(model: LoadedModel) -> dict[str, Any]:
    """A model as OpenAI's clients and ours read it."""
    spec = model.spec
    return {
        "id": model.name,
        "object": "model",
        "created": int(model.created_s),
        "owned_by": "financia",
        "names": list(model.names),
        "task": model.task,
        "source": spec.source,
        "revision": spec.revision,
        "device": model.device,
        "dtype": model.dtype,
        "runtime": model.runtime,
        "max_tokens": spec.max_tokens,
        "width": spec.width,
        "pooling": spec.pooling,
        "normalize": spec.normalize,
        "prompts": sorted(spec.prompts),
        "labels": list(model.labels),
    }


CARD_EXAMPLE = {
    "id": "sentence-transformers/all-MiniLM-L6-v2",
    "object": "model",
    "created": 1767225600,
    "owned_by": "financia",
    "names": ["sentence-transformers/all-MiniLM-L6-v2", "all-MiniLM-L6-v2", "bundled"],
    "task": "embeddings",
    "source": "bundled",
    "revision": "53aa51172d14",
    "device": "cpu",
    "dtype": "int8",
    "runtime": "onnx",
    "max_tokens": 256,
    "width": 384,
    "pooling": "mean",
    "normalize": True,
    "prompts": [],
    "labels": [],
}
ROUTES = (
    get("/v1/models", list_models, tag="OpenAI", schema=ModelList, example={"object": "list", "data": [CARD_EXAMPLE]}),
    get(
        "/v1/models/{name:path}",
        retrieve_model,
        tag="OpenAI",
        schema=ModelCard,
        example=CARD_EXAMPLE,
        errors=(404,),
        parameters=(name_parameter("bundled"),),
    ),
    get(
        "/v1/system",
        system,
        tag="operations",
        example={"version": "0.1.0", "placement": {"device": "cpu", "lanes": 2, "why": ["no GPU was found"]}},
    ),
)
