"""infinity's routes: /embeddings, /rerank, /classify and /models."""

from typing import Any

import httpx
import numpy as np
import pytest

from backend.api.request_context import ApiLimits
from backend.api.routes.infinity import InfinityClasses, InfinityEmbeddings, InfinityModels
from backend.api.routes.tei import InfinityRanks
from backend.text.embeddings import EmbedOptions
from tests.api.checks import problem, require_schema
from tests.api.fakes import FakeServices, vector

ANY_MODEL = "default/not-specified"
QUERY = {"query": "q", "documents": ["ab", "abcd", "a"]}
API_LIMITS = ApiLimits(inputs=5, text_chars=100, body_bytes=10_000)


async def test_health(client: httpx.AsyncClient) -> None:
    """Its clients look for the time."""
    assert (await client.get("/health")).json()["unix"] > 1_700_000_000


async def test_embeddings(client: httpx.AsyncClient) -> None:
    """OpenAI's answer, with the request's id and the time."""
    response = await client.post("/embeddings", json={"input": ["a", "b"]}, headers={"X-Request-Id": "r-1"})

    body = response.json()
    assert 200 == response.status_code
    np.testing.assert_array_equal([vector("a"), vector("b")], np.float32([item["embedding"] for item in body["data"]]))
    assert ("list", "r-1") == (body["object"], body["id"])
    assert body["created"] > 1_700_000_000
    require_schema(InfinityEmbeddings, body)


@pytest.mark.parametrize(
    ("fields", "expected", "model"),
    [
        pytest.param({"dimensions": 0, "modality": "text", "model": ANY_MODEL}, EmbedOptions(), None, id="defaults"),
        pytest.param({"dimensions": 8, "model": "bundled"}, EmbedOptions(dimensions=8), "bundled", id="chosen"),
        pytest.param({"output_dimension": 8}, EmbedOptions(dimensions=8), None, id="as-litellm-says-it"),
        pytest.param({"prompt_name": "query"}, EmbedOptions(prompt_name="query"), None, id="ours"),
    ],
)
async def test_options(
    client: httpx.AsyncClient, services: FakeServices, fields: dict[str, Any], expected: EmbedOptions, model: str | None
) -> None:
    """What infinity's client sends for defaults means them."""
    response = await client.post("/embeddings", json={"input": "a", **fields})

    assert 200 == response.status_code
    assert expected == services.embeddings.calls[0][1]
    assert model == services.embeddings.calls[0][2]["model"]


async def test_rank_documents(client: httpx.AsyncClient, services: FakeServices) -> None:
    """The path is text-embeddings-inference's, too: `documents` makes the request infinity's."""
    response = await client.post("/rerank", json={**QUERY, "model": ANY_MODEL}, headers={"X-Request-Id": "r-1"})

    body = response.json()
    assert 200 == response.status_code
    assert [(1, 1.0), (0, 0.5), (2, 0.25)] == [(rank["index"], rank["relevance_score"]) for rank in body["results"]]
    assert ("rerank", "tiny/reranker", "r-1") == (body["object"], body["model"], body["id"])
    assert {"prompt_tokens": 10, "total_tokens": 10} == body["usage"]
    assert ("q", QUERY["documents"]) == services.reranking.calls[0][0]
    require_schema(InfinityRanks, body)


async def test_rank_options(client: httpx.AsyncClient, services: FakeServices) -> None:
    """Raw scores, texts and the best alone, where they are asked for; cut documents are in a header."""
    fields = {"raw_scores": True, "return_documents": True, "top_n": 1, "model": "tiny/reranker"}

    response = await client.post("/rerank", json={"query": "q", "documents": ["ab", "long one"], **fields})

    assert [{"relevance_score": 8.0, "index": 1, "document": "long one"}] == response.json()["results"]
    assert ("1", "1") == (response.headers["x-truncated"], response.headers["x-truncated-count"])
    assert (1, "tiny/reranker") == (services.reranking.calls[0][1]["top_n"], services.reranking.calls[0][1]["model"])


async def test_texts_are_the_other_service(client: httpx.AsyncClient) -> None:
    """One path, two shapes: with `texts` the answer is text-embeddings-inference's bare list."""
    texts = await client.post("/rerank", json={"query": "q", "texts": QUERY["documents"], "documents": None})
    documents = await client.post("/rerank", json={**QUERY, "texts": None})

    ranks = [(rank["index"], rank["score"]) for rank in texts.json()]
    assert ranks == [(rank["index"], rank["relevance_score"]) for rank in documents.json()["results"]]


@pytest.mark.parametrize(
    ("fields", "status", "named"),
    [
        pytest.param({"texts": ["a"]}, 422, ["texts", "documents"], id="both"),
        pytest.param({"documents": None}, 422, ["texts", "documents"], id="neither"),
        pytest.param({"documents": [{"text": "a"}]}, 422, ["documents[0]"], id="objects"),
        pytest.param({"documents": ["a"] * 6}, 413, ["documents", "LIMIT_INPUTS"], id="too-many"),
        pytest.param({"top_n": 0}, 422, ["top_n"], id="none-of-them"),
        pytest.param({"model": "nobody"}, 404, ["nobody", "tiny/reranker"], id="model"),
    ],
)
async def test_rank_faults(client: httpx.AsyncClient, fields: Any, status: int, named: list[str]) -> None:
    """The error says what is wrong and where."""
    problem(await client.post("/rerank", json={**QUERY, **fields}), status, None, *named)


async def test_classify(client: httpx.AsyncClient, services: FakeServices) -> None:
    """Every label of each text, the best first."""
    response = await client.post("/classify", json={"input": ["a", "long text"], "model": ANY_MODEL})

    body = response.json()
    assert 200 == response.status_code
    assert [[{"score": 0.5, "label": "invoice"}, {"score": 1 / 3, "label": "receipt"}]] * 2 == body["data"]
    assert ("classify", "document-type") == (body["object"], body["model"])
    assert "1" == response.headers["x-truncated"]
    assert {"prompt_tokens": 14, "total_tokens": 14} == body["usage"]
    assert (None, False) == (
        services.classification.calls[0][1]["model"],
        services.classification.calls[0][1]["raw_scores"],
    )
    require_schema(InfinityClasses, body)


@pytest.mark.parametrize(
    ("model", "asked"),
    [
        pytest.param("topics", "topics", id="a-classifier"),
        pytest.param("bundled", None, id="the-model-that-classifies-by-its-capabilities"),
    ],
)
async def test_classify_options(
    client: httpx.AsyncClient, services: FakeServices, model: str, asked: str | None
) -> None:
    """The classifier by its name, with logits; GET /models says of the embedding model that it classifies."""
    await client.post("/classify", json={"input": ["a"], "model": model, "raw_scores": True})

    assert (asked, True) == (
        services.classification.calls[0][1]["model"],
        services.classification.calls[0][1]["raw_scores"],
    )


async def test_models(client: httpx.AsyncClient) -> None:
    """OpenAI's list with infinity's fields: its own client accepts no other owner."""
    response = await client.get("/models")

    [model] = response.json()["data"]
    assert ("fake-model", "infinity", "onnx") == (model["id"], model["owned_by"], model["backend"])
    assert {"queue_absolute": 3, "results_pending": 4, "batch_size": 5} == model["stats"]
    assert ["embed", "rerank", "classify"] == model["capabilities"]
    require_schema(InfinityModels, response.json())


@pytest.mark.parametrize(
    ("path", "body", "named"),
    [
        pytest.param("/embeddings", {"input": "a", "modality": "image"}, "modality", id="image"),
        pytest.param("/embeddings", {"input": "a", "dimensions": -1}, "dimensions", id="dimensions"),
        pytest.param("/classify", {"input": "a"}, "input", id="one-text"),
        pytest.param("/classify", {"input": [1]}, "input[0]", id="number"),
    ],
)
async def test_faults(client: httpx.AsyncClient, path: str, body: Any, named: str) -> None:
    """Faults name infinity's own fields."""
    problem(await client.post(path, json=body), 422, "invalid_field", named)
