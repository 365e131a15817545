"""POST /admin/models needs a key of ADMIN_KEYS, always, and says why a model cannot be loaded."""

import pytest

from backend.api.request_context import ApiOptions
from backend.errors import InvalidField
from tests.api.checks import problem
from tests.api.conftest import connect
from tests.api.fakes import FakeWishes

KEYS = ApiOptions(api_keys=("other-secret",), admin_keys=("secret",))
WITH_KEY = {"Authorization": "Bearer secret"}


async def test_a_model_is_loaded(services):
    """The answer is the new model's card."""
    async with connect(services, KEYS) as client:
        answer = await client.post("/admin/models", json={"source": "/models/new"}, headers=WITH_KEY)

    assert 200 == answer.status_code
    assert "fake-model" == answer.json()["id"]
    assert ["/models/new"] == services.loader.sources


@pytest.mark.parametrize(
    ("api_keys", "admin_keys"),
    [
        pytest.param((), (), id="no-keys-at-all"),
        pytest.param(("team=secret",), (), id="no-admins"),
        pytest.param(("team=secret",), ("ops=admin-secret",), id="another-is-admin"),
    ],
)
async def test_a_key_that_is_no_admins(services, api_keys, admin_keys):
    """None but ADMIN_KEYS may replace what all others use, not even before its body is read."""
    options = ApiOptions(api_keys=api_keys, admin_keys=admin_keys)
    async with connect(services, options) as client:
        answer = await client.post("/admin/models", content=b"no json", headers=WITH_KEY)

    problem(answer, 403, "forbidden", "ADMIN_KEYS")
    assert "secret" not in answer.text
    assert not services.loader.sources


@pytest.mark.parametrize("body", [{}, {"source": ""}, {"source": 3}])
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


async def test_a_model_for_all_replicas(services):
    """`replicas: all` wishes it of all; `this`, the default, of none."""
    services.rollout = FakeWishes(services.loader)
    async with connect(services, KEYS) as client:
        answers = [
            await client.post("/admin/models", json={"source": "/models/new", **more}, headers=WITH_KEY)
            for more in ({}, {"replicas": "this"}, {"replicas": "all"}, {"replicas": "some"})
        ]

    assert [200, 200, 200, 422] == [answer.status_code for answer in answers]
    assert [("/models/new", "embeddings")] == services.rollout.wished
    assert 3 == len(services.loader.sources)
