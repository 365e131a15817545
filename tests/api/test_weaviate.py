"""Weaviate's inference containers, as its Go modules call them: JSON without a Content-Type."""

import httpx
import numpy as np
import orjson
import pytest

from tests.api.fakes import WIDTH, FakeServices, vector


@pytest.mark.parametrize(("task", "prompt"), [("query", "query"), ("passage", "passage"), (None, None)])
async def test_vectors(client: httpx.AsyncClient, services: FakeServices, task: str | None, prompt: str | None) -> None:
    """The vector of a text, with the prompt that the task means."""
    config = {"pooling_strategy": "masked_mean", "task_type": task, "dimensions": None}
    body = {"text": "abc", "dims": 0, "vector": None, "error": "", "config": config}

    answer = (await client.post("/vectors", content=orjson.dumps(body))).json()
    config["dimensions"] = 4
    shorter = (await client.post("/vectors", content=orjson.dumps(body))).json()

    assert ("abc", WIDTH) == (answer["text"], answer["dim"])
    np.testing.assert_allclose(vector("abc"), answer["vector"], rtol=1e-6)
    assert 4 == len(shorter["vector"])
    assert (prompt in services.embeddings.calls[0][1].prompts) == (prompt is not None)


async def test_ner(client: httpx.AsyncClient) -> None:
    answer = (await client.post("/ner/", content=b'{"text": "Don Juan"}')).json()

    [token] = answer["tokens"]
    assert ("PER", "Juan", 0.25, 4, 8) == (
        *(token[name] for name in ("entity", "word", "certainty", "startPosition", "endPosition")),
    )


async def test_reranker(client: httpx.AsyncClient) -> None:
    """A score for each document in its place; infinity's clients, which name a model, are not told them."""
    asked = {"query": "q", "documents": ["a", "bbb", "cc"], "property": ""}

    scores = (await client.post("/rerank", json=asked)).json()["scores"]
    named = (await client.post("/rerank", json={**asked, "model": "tiny/reranker"})).json()

    assert ["a", "bbb", "cc"] == [score["document"] for score in scores]
    assert [1 / 3, 1.0, 2 / 3] == pytest.approx([score["score"] for score in scores])
    assert "scores" not in named


@pytest.mark.parametrize("path", ["/vectors", "/ner/", "/rerank"])
async def test_errors(client: httpx.AsyncClient, path: str) -> None:
    """A text: its Go structs read nothing else, and would tell of JSON that cannot be parsed instead."""
    answer = await client.post(path, content=b'{"text": "", "query": ""}')

    assert answer.json()["detail"] == answer.json()["error"]


async def test_readiness(client: httpx.AsyncClient, services: FakeServices) -> None:
    """204 once requests are answered, and 503 before; what embeds is told."""
    assert "fake-model" == (await client.get("/meta")).json()["model_name"]
    assert 204 == (await client.get("/.well-known/ready")).status_code

    services.health.reasons = ("starting",)

    assert 503 == (await client.get("/.well-known/ready")).status_code
