"""Ollama's ``/api/embed`` and what its clients ask before it: vectors for the tools that know no other server."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import orjson
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from backend import __version__
from backend.api.json_io import JsonPieces, json_response, read_json
from backend.api.request_context import Handle
from backend.api.request_fields import Count, Inputs, Sentence, WireRequest
from backend.api.routes.embeddings import embed, encoded_vectors
from backend.api.routing import get, post
from backend.serving.catalog import Catalog, LoadedModel
from backend.text.embeddings import EmbeddingResult, EmbedOptions

_catalog_of: Handle[Catalog] = Handle("catalog")

_TAG = "Ollama"
_LATEST = ":latest"  # what its clients put behind a name without a version
_NANOSECONDS = 1e9
_ARCHITECTURE = "encoder"  # what stands before the sizes in `model_info`; clients look for their endings


def _model(name: str | None) -> str | None:
    return None if name is None else name.removesuffix(_LATEST)


class OllamaEmbedRequest(WireRequest):
    """`POST /api/embed`."""

    model: str | None = Field(None, description="A name that GET /api/tags lists, with or without :latest.")
    input: Inputs = Field(description="What to embed.")
    truncate: bool | None = Field(True, description="false: 413 for a text beyond the model's length.")
    dimensions: Count | None = Field(None, description="Leading dimensions to keep, at most the model's width.")
    options: Any = Field(None, description="Accepted and ignored, as keep_alive.")


class OllamaPromptRequest(WireRequest):
    """`POST /api/embeddings`, Ollama's older route of one text."""

    model: str | None = Field(None, description="A name that GET /api/tags lists, with or without :latest.")
    prompt: Sentence = Field(description="What to embed.")
    options: Any = Field(None, description="Accepted and ignored, as keep_alive.")


class OllamaShowRequest(WireRequest):
    """`POST /api/show`."""

    model: str | None = Field(None, description="A name that GET /api/tags lists; unset: the one that embeds.")
    name: str | None = Field(None, description="The same, as older clients send it.")


class OllamaEmbeddings(TypedDict):
    """`POST /api/embed`. Durations are nanoseconds."""

    model: str
    embeddings: list[list[float]]
    total_duration: int
    load_duration: int
    prompt_eval_count: Annotated[int, Field(description="Tokens.")]


class OllamaEmbedding(TypedDict):
    """`POST /api/embeddings`."""

    embedding: list[float]


async def create_embeddings(request: Request) -> Response:
    """Vectors of length 1 of texts, in Ollama's shape."""
    body = await read_json(request, OllamaEmbedRequest)
    embedded = await _embedded(request, body.input, body.model, body.dimensions, truncate=body.truncate is not False)
    timing, tokens = embedded.timing, sum(embedded.tokens)
    total_s = timing.cache_s + timing.tokenize_s + timing.queue_s + timing.inference_s
    head = orjson.dumps({"model": body.model or embedded.model.name})[:-1] + b',"embeddings":['
    rest = {"total_duration": int(total_s * _NANOSECONDS), "load_duration": 0, "prompt_eval_count": tokens}
    vectors = b",".join(await encoded_vectors(embedded, "float"))
    return JsonPieces([head, vectors, b"]," + orjson.dumps(rest)[1:]])


async def create_embedding(request: Request) -> Response:
    """The vector of one text, in Ollama's older shape."""
    body = await read_json(request, OllamaPromptRequest)
    embedded = await _embedded(request, [body.prompt], body.model, None, truncate=True)
    [vector] = await encoded_vectors(embedded, "float")
    return JsonPieces([b'{"embedding":', vector, b"}"])


async def _embedded(
    request: Request, inputs: Any, model: str | None, dimensions: int | None, *, truncate: bool
) -> EmbeddingResult:
    options = EmbedOptions(truncate="end" if truncate else "none", normalize=True, dimensions=dimensions)
    return await embed(request, inputs, options, param="input", model=_model(model))


async def list_models(request: Request) -> Response:
    """The loaded models in Ollama's shape; those that embed answer `POST /api/embed`."""
    return json_response({"models": [_card(model) for model in _catalog_of(request).models()]})


def _card(model: LoadedModel) -> dict[str, Any]:
    return {
        "name": model.name,
        "model": model.name,
        "modified_at": datetime.fromtimestamp(model.created_s, UTC).isoformat(),
        "size": 0,
        "digest": model.spec.revision,
        "details": {"format": model.runtime, "family": model.task, "quantization_level": model.dtype},
    }


async def show_model(request: Request) -> Response:
    """One model: its length and width, and whether it embeds."""
    body = await read_json(request, OllamaShowRequest)
    catalog, name = _catalog_of(request), _model(body.model or body.name)
    model = catalog.find(name) if name else catalog.embedding(None)
    sizes = {"context_length": model.spec.max_tokens, "embedding_length": model.spec.width}
    card = _card(model)
    return json_response(
        {
            "modified_at": card["modified_at"],
            "details": card["details"],
            "model_info": {
                "general.architecture": _ARCHITECTURE,
                **{f"{_ARCHITECTURE}.{key}": size for key, size in sizes.items()},
            },
            "capabilities": ["embedding"] if model.task == "embeddings" else [],
        }
    )


async def version(_request: Request) -> Response:
    """This service's version, by which Open WebUI sees that a server is there."""
    return json_response({"version": __version__})


_EXAMPLE = {
    "model": "bundled", "embeddings": [[0.0123, -0.0456, 0.0789]], "total_duration": 4_100_000, "load_duration": 0,
    "prompt_eval_count": 12,
}  # fmt: skip
_MODELS = {"models": [{"name": "intfloat/multilingual-e5-small", "model": "intfloat/multilingual-e5-small", "size": 0}]}
ROUTES = (
    post(
        "/api/embed",
        create_embeddings,
        tag=_TAG,
        request=OllamaEmbedRequest,
        examples={"two texts": {"model": "bundled", "input": ["La factura vence en marzo.", "Payment is due."]}},
        schema=OllamaEmbeddings,
        example=_EXAMPLE,
    ),
    post(
        "/api/embeddings",
        create_embedding,
        tag=_TAG,
        request=OllamaPromptRequest,
        examples={"a text": {"model": "bundled", "prompt": "La factura vence en marzo."}},
        schema=OllamaEmbedding,
        example={"embedding": [0.0123, -0.0456, 0.0789]},
    ),
    get("/api/tags", list_models, tag=_TAG, example=_MODELS),
    get("/api/ps", list_models, tag=_TAG, example=_MODELS),
    get("/api/version", version, tag=_TAG, example={"version": __version__}),
    post(
        "/api/show",
        show_model,
        tag=_TAG,
        request=OllamaShowRequest,
        examples={"a model": {"model": "bundled"}},
        schema={"type": "object"},
        example={
            "details": {"family": "embeddings"},
            "model_info": {"general.architecture": "encoder", "encoder.context_length": 512},
            "capabilities": ["embedding"],
        },
        errors=(400, 404, 413, 415, 422, 504),
    ),
)
