"""POST /admin/models always needs a key, and says why a model cannot be loaded."""

from __future__ import annotations

import pytest

from backend.api.dependencies import ApiOptions
from backend.errors import InvalidField
from tests.api.conftest import connect

KEYS = ApiOptions(api_keys=("secret",))
WITH_KEY = {"Authorization": "Bearer secret"}


async def test_a_model_is_loaded(services):
    """The answer is the new model's card."""
    async with connect(services, KEYS) as client:
        answer = await client.post("/admin/models", json={"source": "/models/new"}, headers=WITH_KEY)

    assert 200 == answer.status_code
    assert "fake-model" == answer.json()["id"]
    assert ["/models/new"] == services.loader.sources


async def test_a_service_without_keys_refuses(services, client):
    """A service without API_KEYS lets no one replace its model."""
    answer = await client.post("/admin/models", json={"source": "/models/new"}, headers=WITH_KEY)

    assert (401, "unauthorized") == (answer.status_code, answer.json()["code"])
    assert "API_KEYS" in answer.json()["detail"]
    assert not services.loader.sources


async def test_a_wrong_key(services):
    """A wrong key is 401, and nothing is loaded."""
    async with connect(services, KEYS) as client:
        answer = await client.post("/admin/models", json={"source": "x"}, headers={"Authorization": "Bearer other"})

    assert 401 == answer.status_code
    assert not services.loader.sources


@pytest.mark.parametrize("body", [{}, {"source": ""}, {"source": 3}, {"source": "x", "task": "dancing"}])
async def test_bad_requests(services, body):
    """422 or 400 with the field at fault, and nothing is loaded."""
    async with connect(services, KEYS) as client:
        answer = await client.post("/admin/models", json=body, headers=WITH_KEY)

    assert answer.status_code in (400, 422)
    assert answer.json()["error"]["param"] in ("source", "task")
    assert not services.loader.sources


async def test_a_model_that_cannot_be_loaded(services):
    """The caller reads the reason; the old model goes on serving."""
    services.loader.error = InvalidField("source: /models/x has no config.json", param="source")
    async with connect(services, KEYS) as client:
        answer = await client.post("/admin/models", json={"source": "/models/x"}, headers=WITH_KEY)
        embedded = await client.post("/v1/embeddings", json={"input": "x"}, headers=WITH_KEY)

    assert (422, "source") == (answer.status_code, answer.json()["error"]["param"])
    assert "no config.json" in answer.json()["detail"]
    assert 200 == embedded.status_code
