"""Weaviate's inference containers: text2vec-transformers and ner-transformers; ``/rerank`` answers its reranker."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Annotated

import orjson
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from backend.api.json_io import JsonPieces, json_response, read_json, written_json
from backend.api.request_context import Handle, call_service_timed, limits_of
from backend.api.request_fields import Count, Sentence, WireRequest, check_limits
from backend.api.routes.embeddings import INPUT_TYPES, embed, encoded_vectors
from backend.api.routing import described, get, post
from backend.errors import Unavailable
from backend.serving.catalog import Catalog
from backend.serving.health import HealthService
from backend.text.embeddings import EmbedOptions
from backend.text.entities import EntityService
from backend.text.entity_merge import Entity

_entities_of: Handle[EntityService] = Handle("entities")
_catalog_of: Handle[Catalog] = Handle("catalog")
_health_of: Handle[HealthService] = Handle("health")

_TAG = "Weaviate"
_PROMPTS = {name: INPUT_TYPES[name] for name in ("query", "passage")}  # by its task_type


class _VectorConfig(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")

    task_type: str | None = Field(None, description="`query` or `passage` chooses a prompt.")
    dimensions: Count | None = Field(None, description="Leading dimensions to keep, at most the model's width.")


class VectorsRequest(WireRequest):
    """`POST /vectors`."""

    text: Sentence = Field(description="What to embed.")
    config: _VectorConfig | None = None

    def options(self) -> EmbedOptions:
        """The options of the embedding service."""
        config = self.config or _VectorConfig()
        return EmbedOptions(prompts=_PROMPTS.get(config.task_type or "", ()), dimensions=config.dimensions)


class VectorAnswer(TypedDict):
    """`POST /vectors`."""

    text: str
    vector: list[float]
    dim: int


class NerRequest(WireRequest):
    """`POST /ner`."""

    text: Sentence = Field(description="Where to look for entities.")


class NerToken(TypedDict):
    """One entity."""

    entity: str
    word: str
    certainty: float
    distance: Annotated[float, Field(description="0 for all: there is no nearest rival.")]
    startPosition: int
    endPosition: int


class NerAnswer(TypedDict):
    """`POST /ner`."""

    text: str
    tokens: list[NerToken]


async def create_vector(request: Request) -> Response:
    """The vector of a text, for Weaviate's text2vec-transformers module."""
    body = await read_json(request, VectorsRequest)
    embedded = await embed(request, [body.text], body.options(), param="text")
    [vector] = await encoded_vectors(embedded, "float")
    text, width = orjson.dumps(body.text), len(embedded.rows[0].vector)
    return JsonPieces([b'{"text":' + text + b',"vector":', vector, b',"dim":%d}' % width])


async def find_entities(request: Request) -> Response:
    """Names, numbers and dates of a text, for Weaviate's ner-transformers module."""
    body = await read_json(request, NerRequest)
    characters = check_limits([body.text], limits_of(request), "text")
    call = partial(_entities_of(request).find, [body.text])
    [row] = (await call_service_timed(request, call, characters=characters)).rows
    return await written_json(lambda: NerAnswer(text=body.text, tokens=_ner_tokens(row.entities)), len(row.entities))


def _ner_tokens(entities: Iterable[Entity]) -> list[NerToken]:
    return [
        {
            "entity": entity.type,
            "word": entity.text,
            "certainty": entity.score,
            "distance": 0.0,
            "startPosition": entity.start,
            "endPosition": entity.end,
        }
        for entity in entities
    ]


async def meta(request: Request) -> Response:
    """What embeds, for Weaviate's modules."""
    model = _catalog_of(request).embedding(None)
    return json_response({"model_name": model.name, "model_type": model.task, "model_path": model.spec.source})


async def ready(request: Request) -> Response:
    """204 once requests are answered."""
    readiness = await _health_of(request).ready()
    if not readiness.ready:
        raise Unavailable(f"not ready: {'; '.join(readiness.reasons)}")
    return Response(status_code=204)


_READY = {204: described(None, description="Requests are answered.")}
ROUTES = (
    *(
        post(
            path,
            create_vector,
            tag=_TAG,
            request=VectorsRequest,
            examples={"a text": {"text": "La factura vence en marzo.", "config": {"task_type": "passage"}}},
            schema=VectorAnswer,
            example={"text": "La factura vence en marzo.", "vector": [0.0123, -0.0456], "dim": 2},
        )
        for path in ("/vectors", "/vectors/")
    ),
    *(
        post(
            path, find_entities, tag=_TAG, request=NerRequest,
            examples={"a text": {"text": "Ana García pidió acero."}}, schema=NerAnswer,
            example={"text": "Ana García pidió acero.", "tokens": []},
        )
        for path in ("/ner", "/ner/")
    ),
    get("/meta", meta, tag=_TAG, example={"model_name": "intfloat/multilingual-e5-small", "model_type": "embeddings"}),
    get("/.well-known/ready", ready, tag=_TAG, example=None, more=_READY),
    get("/.well-known/live", ready, tag=_TAG, example=None, more=_READY),
)  # fmt: skip
