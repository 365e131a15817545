"""``/v1/models``, ``/v1/system`` and ``/admin/models``: the loaded models, every choice with its reason, and swaps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from backend.api.api_keys import require_admin
from backend.api.json_io import json_response, read_json
from backend.api.request_context import Handle
from backend.api.routing import get, name_parameter, post
from backend.images.classification import ImageClassificationService
from backend.images.engine import LoadedImageModel
from backend.replicas.rollout import ModelRollout, NoRollout
from backend.serving.catalog import Catalog, LoadedModel
from backend.serving.model_swap import ModelSwapper
from backend.speech.transcription import TranscriptionService

_system_of: Handle[Callable[[], dict[str, Any]]] = Handle("system")
_catalog_of: Handle[Catalog] = Handle("catalog")
_images_of: Handle[ImageClassificationService] = Handle("images")
_speech_of: Handle[TranscriptionService] = Handle("speech")
_rollout_of: Handle[ModelRollout | NoRollout] = Handle("rollout")
_loader_of: Handle[ModelSwapper] = Handle("loader")


class LoadModelRequest(BaseModel):
    """`POST /admin/models`."""

    task: Literal["embeddings", "ner", "answer", "label", "classifier", "reranker", "summaries"] = Field(
        "embeddings", description="Which of the served models to replace."
    )
    source: str = Field(min_length=1, max_length=1000, description="A folder on the server, a hub id, or bundled.")
    replicas: Literal["this", "all"] = Field(
        "this",
        description="Which replicas serve it: this one until it ends, or all that share REDIS_URL or SEARCH_URL.",
    )


class _Card(TypedDict):
    """What every model tells: OpenAI's four fields, its names, and what runs it."""

    id: str
    object: Literal["model"]
    type: Annotated[Literal["base"], Field(description="What Mistral's client tells its kinds of models by.")]
    created: Annotated[int, Field(description="Unix seconds at which it was ready.")]
    owned_by: str
    names: Annotated[list[str], Field(description="Every name a request may give it.")]
    name: Annotated[str, Field(description="The first of them, for Cohere's clients.")]
    endpoints: Annotated[list[str], Field(description="What it does, as `capabilities`, for Cohere's clients.")]
    source: str
    revision: str
    device: str
    dtype: str
    runtime: str
    capabilities: Annotated[
        dict[str, bool],
        Field(description="embed, tag, answer, classify, rerank, summarize, transcribe: an object, as Mistral's is."),
    ]
    model_type: Annotated[str, Field(description="The same in Xinference's words: embedding, rerank, audio, …")]


class ModelCard(_Card):
    """One loaded model: OpenAI's four fields and what runs it."""

    task: str
    max_tokens: Annotated[int, Field(description="Longest text, special tokens included.")]
    width: Annotated[int, Field(description="Numbers in a vector.")]
    pooling: str
    normalize: bool
    prompts: Annotated[list[str], Field(description="Names that `prompt_name` may take.")]
    labels: Annotated[
        list[str], Field(description="Of a classifier, in the order of its probabilities; empty for others.")
    ]


class SpeechModelCard(_Card):
    """The model that transcribes: OpenAI's four fields and what runs it."""

    task: Literal["speech"]


class ImageModelCard(_Card):
    """The model that classifies pages by their pictures: OpenAI's four fields and what runs it."""

    task: Literal["images"]
    height: Annotated[int, Field(description="Of a page as the model sees it, in pixels.")]
    width_px: int
    labels: Annotated[list[str], Field(description="In the order of its probabilities.")]


class CohereModel(TypedDict):
    """A model of texts as Cohere's clients read it."""

    name: str
    endpoints: Annotated[list[str], Field(description="embed, rerank, classify, summarize, …: as `capabilities`.")]
    context_length: int


class ModelList(TypedDict):
    """OpenAI's list of models, with Cohere's beside."""

    object: Literal["list"]
    data: list[ModelCard | SpeechModelCard | ImageModelCard]
    models: list[CohereModel]


def model_card(model: LoadedModel) -> ModelCard:
    """A model as OpenAI's clients and ours read it."""
    spec = model.spec
    runs = {"device": model.device, "dtype": model.dtype, "runtime": model.runtime}
    return {
        **_card(model.names, model.created_s, spec.source, spec.revision, task=model.task, **runs),
        "task": model.task,
        "max_tokens": spec.max_tokens,
        "width": spec.width,
        "pooling": spec.pooling,
        "normalize": spec.normalize,
        "prompts": sorted(spec.prompts),
        "labels": list(model.labels),
    }


def speech_model_card(speech: TranscriptionService, created_s: float) -> SpeechModelCard:
    """The model of ``speech``, which has one."""
    report = speech.report()
    device, dtype = report["placement"]["device"], report["placement"]["precision"]
    runs = {"device": device, "dtype": dtype, "runtime": "ctranslate2"}
    return {
        **_card(speech.names, created_s, report["source"], report["revision"], task="speech", **runs),
        "task": "speech",
    }


def image_model_card(model: LoadedImageModel) -> ImageModelCard:
    """The image model as OpenAI's clients and ours read it."""
    spec = model.spec
    height, width_px = spec.preprocessing.framing.size
    runs = {"device": model.placement.device, "dtype": model.choice.dtype, "runtime": model.choice.runtime}
    return {
        **_card(model.names, model.created_s, spec.source, spec.revision, task="images", **runs),
        "task": "images",
        "height": height,
        "width_px": width_px,
        "labels": list(spec.labels),
    }


_CAPABILITIES = {  # by task: what it does, and what Xinference calls it
    "embeddings": (["embed", "rerank", "classify"], "embedding"),
    "ner": (["tag"], "flexible"),
    "answer": (["answer"], "flexible"),
    "label": (["tag"], "flexible"),
    "classifier": (["classify"], "flexible"),
    "reranker": (["rerank"], "rerank"),
    "summaries": (["summarize"], "flexible"),
    "speech": (["transcribe"], "audio"),
    "images": (["classify"], "image"),
}


def _card(
    names: Sequence[str],
    created_s: float,
    source: str,
    revision: str,
    *,
    task: str,
    device: str,
    dtype: str,
    runtime: str,
) -> _Card:
    capabilities, model_type = _CAPABILITIES[task]
    return {
        "id": names[0],
        "object": "model",
        "type": "base",
        "created": int(created_s),
        "owned_by": "financia",
        "names": list(names),
        "name": names[0],
        "endpoints": capabilities,
        "source": source,
        "revision": revision,
        "device": device,
        "dtype": dtype,
        "runtime": runtime,
        "capabilities": dict.fromkeys(capabilities, True),
        "model_type": model_type,
    }


Card = ModelCard | SpeechModelCard | ImageModelCard


def _cards(request: Request) -> list[Card]:
    models, images, speech = _catalog_of(request).models(), _images_of(request).engines, _speech_of(request)
    cards: list[Card] = [model_card(model) for model in models]
    if images is not None:
        cards.append(image_model_card(images.model))
    if speech.names:
        cards.append(speech_model_card(speech, models[0].created_s))
    return cards


async def list_models(request: Request) -> Response:
    """The loaded models: OpenAI's list, with device, dtype, runtime, revision and sizes.

    Cohere's `endpoint` leaves those of its `models` that do it.
    """
    endpoint = request.query_params.get("endpoint")
    of_cohere: list[CohereModel] = [
        {"name": model.names[0], "endpoints": _CAPABILITIES[model.task][0], "context_length": model.spec.max_tokens}
        for model in _catalog_of(request).models()
        if not endpoint or endpoint in _CAPABILITIES[model.task][0]
    ]
    return json_response(ModelList(object="list", data=_cards(request), models=of_cohere))


async def retrieve_model(request: Request) -> Response:
    """One model, by any of its names, which `id` repeats."""
    name = request.path_params["name"]
    card = next((card for card in _cards(request) if name in card["names"]), None)
    card = card or model_card(_catalog_of(request).find(name))  # which refuses what is no model's
    card["id"] = name
    return json_response(card)


async def system(request: Request) -> Response:
    """Device, precision, lanes, budgets, cache and limits of this process, each with why it was chosen."""
    return json_response(_system_of(request)())


CARD_EXAMPLE = {
    "id": "intfloat/multilingual-e5-small", "object": "model", "type": "base", "created": 1767225600,
    "owned_by": "financia", "names": ["intfloat/multilingual-e5-small", "multilingual-e5-small", "bundled"],
    "name": "intfloat/multilingual-e5-small", "endpoints": ["embed", "rerank", "classify"], "task": "embeddings",
    "source": "bundled", "revision": "817557b1a417", "device": "cpu", "dtype": "int8", "runtime": "openvino",
    "capabilities": {"embed": True, "rerank": True, "classify": True}, "model_type": "embedding", "max_tokens": 512,
    "width": 384, "pooling": "mean", "normalize": True, "prompts": ["query", "passage"], "labels": [],
}  # fmt: skip
_OF_COHERE = {
    "name": "intfloat/multilingual-e5-small",
    "endpoints": ["embed", "rerank", "classify"],
    "context_length": 512,
}
ROUTES = (
    get(
        "/v1/models",
        list_models,
        tag="OpenAI",
        schema=ModelList,
        example={"object": "list", "data": [CARD_EXAMPLE], "models": [_OF_COHERE]},
    ),
    get(
        "/v1/models/{name:path}", retrieve_model, tag="OpenAI",
        schema={"anyOf": [ModelCard, SpeechModelCard, ImageModelCard]}, example=CARD_EXAMPLE, errors=(404,),
        parameters=(name_parameter("bundled"),),
    ),
    get(
        "/v1/system",
        system,
        tag="operations",
        example={"version": "0.1.0", "placement": {"device": "cpu", "lanes": 2, "why": ["no GPU was found"]}},
    ),
)  # fmt: skip


async def load_model(request: Request) -> Response:
    """Load a model, prove that it computes, and serve it from then on; the old one answers until then.

    `source` is a folder on the server, such as `python -m backend.training` writes, a hub id with `@revision`, or
    `bundled`. Only keys of ADMIN_KEYS may. Answers with the new model. Nothing is kept for the next start: that reads
    EMBEDDING_MODEL and NER_MODEL.

    `replicas: all` has every replica serve it, also one that starts later: each loads it beside the old model, a
    quarter of them at a time, once it serves here. `shared_state` in `GET /v1/system` of any replica has the progress.
    """
    require_admin(request)
    body = await read_json(request, LoadModelRequest)
    swap = _rollout_of(request).roll_out if body.replicas == "all" else _loader_of(request).load
    return json_response(model_card(await swap(body.source, body.task)))


ADMIN_ROUTES = (
    post(
        "/admin/models",
        load_model,
        tag="operations",
        request=LoadModelRequest,
        examples={
            "a trained model": {"task": "embeddings", "source": "/models/invoices-2026-11"},
            "on all replicas": {"task": "ner", "source": "owner/model@revision", "replicas": "all"},
        },
        schema=ModelCard,
        example=CARD_EXAMPLE,
        errors=(400, 401, 403, 413, 415, 422, 503, 504),
        parameters=(),
    ),
)
