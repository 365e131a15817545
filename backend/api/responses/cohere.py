"""Cohere's answers with vectors."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Literal, NotRequired

import orjson
from pydantic import Field
from starlette.responses import Response
from typing_extensions import TypedDict

from backend.api.responses.embeddings import encoded_vectors, truncated_indices
from backend.api.responses.index_headers import index_ranges
from backend.api.responses.json_bytes import CHARS_PER_ITEM, INLINE_ITEMS, JsonPieces, json_pieces
from backend.text.embeddings import EmbeddingResult


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


class CohereVectors(TypedDict):
    """The vectors in each form that `embedding_types` asked for, and in no other."""

    float: NotRequired[list[list[float]] | None]
    int8: NotRequired[list[list[int]] | None]
    uint8: NotRequired[list[list[int]] | None]
    binary: NotRequired[list[list[int]] | None]
    ubinary: NotRequired[list[list[int]] | None]
    base64: NotRequired[list[str] | None]


class CohereFloats(TypedDict):
    """`POST /v1/embed` without `embedding_types`."""

    response_type: Literal["embeddings_floats"]
    id: Annotated[str, Field(description="The request's id, as in X-Request-Id.")]
    embeddings: list[list[float]]
    texts: list[str]
    meta: CohereMeta


class CohereByType(TypedDict):
    """`POST /v1/embed` with `embedding_types`, and `POST /v2/embed`."""

    response_type: Literal["embeddings_by_type"]
    id: Annotated[str, Field(description="The request's id, as in X-Request-Id.")]
    embeddings: CohereVectors
    texts: list[str]
    meta: CohereMeta


async def cohere_floats(embedded: EmbeddingResult, texts: Sequence[str], request_id: str) -> Response:
    """A ``CohereFloats``."""
    vectors = [b"[", b",".join(await encoded_vectors(embedded, "float")), b"]"]
    return await _answer("embeddings_floats", vectors, texts, request_id, _meta("1", embedded))


async def cohere_by_type(
    embedded: EmbeddingResult, encodings: Sequence[str], texts: Sequence[str], request_id: str, version: str
) -> Response:
    """A ``CohereByType`` with the vectors in each of ``encodings`` (of VECTOR_ENCODINGS)."""
    vectors: list[bytes] = []
    for encoding in encodings:
        rows = b",".join(await encoded_vectors(embedded, encoding))
        vectors += (b"," if vectors else b"{", orjson.dumps(encoding), b":[", rows, b"]")
    return await _answer("embeddings_by_type", [*vectors, b"}"], texts, request_id, _meta(version, embedded))


async def _answer(
    kind: str, vectors: Sequence[bytes], texts: Sequence[str], request_id: str, meta: CohereMeta
) -> Response:
    """The pieces of an answer. Many texts are written on a thread: requests hold up to 16 MB of them."""
    items = len(texts) + sum(map(len, texts)) // CHARS_PER_ITEM
    echoed: list[bytes] = (
        list(json_pieces(list(texts)))
        if items <= INLINE_ITEMS
        else await asyncio.to_thread(lambda: list(json_pieces(list(texts))))
    )
    head = orjson.dumps({"response_type": kind, "id": request_id})[:-1] + b',"embeddings":'
    return JsonPieces([head, *vectors, b',"texts":', *echoed, b',"meta":' + orjson.dumps(meta) + b"}"])


def _meta(version: str, embedded: EmbeddingResult) -> CohereMeta:
    meta: CohereMeta = {
        "api_version": {"version": version},
        "billed_units": {"input_tokens": sum(embedded.tokens)},
    }
    if truncated := truncated_indices(embedded.truncated):
        limit = embedded.model.spec.max_tokens
        meta["warnings"] = [f"cut at the model's {limit} tokens: texts {index_ranges(truncated)}"]
    return meta


SCHEMAS: tuple[type, ...] = (CohereFloats, CohereByType)
