"""``/v1/models`` and ``/v1/system``: the loaded models, and every choice of this process with its reason."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from backend.api.dependencies import services_of
from backend.api.responses.json_bytes import json_response
from backend.api.responses.operations import (
    ImageModelCard,
    ModelCard,
    ModelList,
    SpeechModelCard,
    image_model_card,
    model_card,
    speech_model_card,
)
from backend.api.routing import get, name_parameter


async def list_models(request: Request) -> Response:
    """The loaded models: OpenAI's list, with device, dtype, runtime, revision and sizes."""
    services = services_of(request)
    models = services.catalog.models()
    cards: list[ModelCard | SpeechModelCard | ImageModelCard] = [model_card(model) for model in models]
    if services.images.engines is not None:
        cards.append(image_model_card(services.images.engines.model))
    if services.speech.names:
        cards.append(speech_model_card(services.speech, models[0].created_s))
    return json_response(ModelList(object="list", data=cards))


async def retrieve_model(request: Request) -> Response:
    """One model, by any of its names."""
    services, name = services_of(request), request.path_params["name"]
    known = {model_name for model in services.catalog.models() for model_name in model.names}
    if name in services.speech.names and name not in known:
        return json_response(speech_model_card(services.speech, services.catalog.embedding(None).created_s))
    images = services.images.engines
    if images is not None and name in images.model.names and name not in known:
        return json_response(image_model_card(images.model))
    return json_response(model_card(services.catalog.find(name)))


async def system(request: Request) -> Response:
    """Device, precision, lanes, budgets, cache and limits of this process, each with why it was chosen."""
    return json_response(services_of(request).system())


CARD_EXAMPLE = {
    "id": "intfloat/multilingual-e5-small",
    "object": "model",
    "created": 1767225600,
    "owned_by": "financia",
    "names": ["intfloat/multilingual-e5-small", "multilingual-e5-small", "bundled"],
    "task": "embeddings",
    "source": "bundled",
    "revision": "817557b1a417",
    "device": "cpu",
    "dtype": "int8",
    "runtime": "openvino",
    "max_tokens": 512,
    "width": 384,
    "pooling": "mean",
    "normalize": True,
    "prompts": ["query", "passage"],
    "labels": [],
}
ROUTES = (
    get("/v1/models", list_models, tag="OpenAI", schema=ModelList, example={"object": "list", "data": [CARD_EXAMPLE]}),
    get(
        "/v1/models/{name:path}",
        retrieve_model,
        tag="OpenAI",
        schema={
            "anyOf": [
                {"$ref": f"#/components/schemas/{card.__name__}"}
                for card in (ModelCard, SpeechModelCard, ImageModelCard)
            ]
        },
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
