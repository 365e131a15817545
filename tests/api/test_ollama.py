"""Ollama's routes for vectors."""

import httpx
import numpy as np
import pytest

from backend.api.routes.ollama import OllamaEmbedding, OllamaEmbeddings
from tests.api.checks import problem, require_schema
from tests.api.fakes import WIDTH, FakeServices, vector


@pytest.mark.parametrize("model", ["bundled", "bundled:latest", "", None])
async def test_embed(client: httpx.AsyncClient, services: FakeServices, model: str | None) -> None:
    """Vectors of length 1 with the tokens; the tag that its clients add to a name is left out."""
    body = (await client.post("/api/embed", json={"model": model, "input": ["abc", "de"], "options": {}})).json()

    np.testing.assert_allclose([vector("abc"), vector("de")], body["embeddings"], rtol=1e-6)
    assert (5, True) == (body["prompt_eval_count"], services.embeddings.calls[0][1].normalize)
    require_schema(OllamaEmbeddings, body)


async def test_options(client: httpx.AsyncClient, services: FakeServices) -> None:
    body = (await client.post("/api/embed", json={"input": "abc", "truncate": False, "dimensions": 4})).json()

    assert 4 == len(body["embeddings"][0])
    assert "none" == services.embeddings.calls[0][1].truncate


async def test_the_older_route(client: httpx.AsyncClient) -> None:
    """One text, one vector."""
    body = (await client.post("/api/embeddings", json={"model": "bundled", "prompt": "abc"})).json()

    assert WIDTH == len(body["embedding"])
    require_schema(OllamaEmbedding, body)


async def test_models(client: httpx.AsyncClient) -> None:
    [model] = (await client.get("/api/tags")).json()["models"]

    assert model["name"] == model["model"]


async def test_what_clients_ask_first(client: httpx.AsyncClient) -> None:
    """Whether a server is there, what is loaded, and what a model can."""
    shown = (await client.post("/api/show", json={"model": "bundled:latest"})).json()
    by_older_name = (await client.post("/api/show", json={"name": "bundled"})).json()

    assert {"version"} == (await client.get("/api/version")).json().keys()
    assert (await client.get("/api/ps")).json() == (await client.get("/api/tags")).json()
    assert ["embedding"] == shown["capabilities"]
    assert WIDTH == shown["model_info"]["encoder.embedding_length"]
    assert shown == by_older_name
    problem(await client.post("/api/show", json={"model": "llama3"}), 404, "model_not_found", "bundled")


async def test_errors(client: httpx.AsyncClient) -> None:
    """`error` is text, which its clients show."""
    answer = await client.post("/api/embed", json={"model": "llama3", "input": "a"})

    assert problem(answer, 404, "model_not_found", "bundled")["detail"] == answer.json()["error"]
