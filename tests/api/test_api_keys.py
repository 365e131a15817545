"""Keys over HTTP: roles by route, expiry, keys that change while the app serves, and whose caches a request uses."""

import json
from dataclasses import replace
from typing import Any

import httpx
import pytest

from backend.api.api_keys import READ_ROUTES, SAFE_METHODS, require_reading
from backend.api.app import ROUTES, create_app
from backend.api.request_context import ApiOptions
from backend.callers.callers import Caller, KeyRing, LiveKeys, Quotas, key_digest, owner_digest
from backend.errors import Forbidden
from backend.lanes.cache.store import owner_scope
from backend.lanes.work_queue import owner_of_work
from tests.api.asgi import Call
from tests.api.checks import problem
from tests.api.conftest import connect
from tests.api.fakes import FakeServices

TEXTS = "/v1/embeddings"
TEAM = Caller("team", owner_digest("name", "team"))
# What keeps, teaches, changes or deletes something: closed to keys of the role "read". A new route stands here or in
# READ_ROUTES.
WRITING = {
    ("POST", "/admin/models"),
    ("POST", "/v1/jobs"),
    ("POST", "/v1/convert/file/async"),
    ("POST", "/v1/convert/source/async"),
    ("POST", "/v1/chunk/{chunker}/file/async"),
    ("POST", "/v1/chunk/{chunker}/source/async"),
    ("POST", "/documentintelligence/documentModels/{model}:analyze"),
    ("DELETE", "/documentintelligence/documentModels/{model}/analyzeResults/{id}"),
    ("POST", "/formrecognizer/documentModels/{model}:analyze"),
    ("DELETE", "/formrecognizer/documentModels/{model}/analyzeResults/{id}"),
    ("POST", "/v1/files"),
    ("POST", "/v1/uploads"),
    ("POST", "/v1/uploads/{id}/parts"),
    ("POST", "/v1/uploads/{id}/complete"),
    ("POST", "/v1/uploads/{id}/cancel"),
    ("POST", "/v1/batches"),
    ("POST", "/v1/batches/{id}/cancel"),
    ("POST", "/v1/vector_stores"),
    ("POST", "/v1/vector_stores/{id}"),
    ("POST", "/v1/vector_stores/{id}/reembed"),
    ("POST", "/v1/vector_stores/{id}/files"),
    ("POST", "/v1/vector_stores/{id}/files/{file_id}"),
    ("POST", "/v1/vector_stores/{id}/file_batches"),
    ("POST", "/v1/vector_stores/{id}/file_batches/{batch_id}/cancel"),
    ("PUT", "/v1/classifiers/{name}"),
    ("PUT", "/v1/extractors/{name}"),
    ("PATCH", "/v1/documents/{id}/fields"),
    ("POST", "/v1/documents/{id}/confirm"),
    ("POST", "/v1/documents/{id}/reopen"),
    ("POST", "/v1/documents/{id}/split"),
    ("DELETE", "/v1/documents/{id}"),
    ("DELETE", "/v1/classifiers/{name}"),
    ("DELETE", "/v1/extractors/{name}"),
    ("DELETE", "/v1/files/{id}"),
    ("DELETE", "/v1/jobs/{id}"),
    ("DELETE", "/v1/vector_stores/{id}"),
    ("DELETE", "/v1/vector_stores/{id}/files/{file_id}"),
}


def ring(**callers: Caller) -> KeyRing:
    """By key."""
    return KeyRing({key_digest(key.encode()): caller for key, caller in callers.items()})


def options(keys: LiveKeys, **more: Any) -> ApiOptions:
    return ApiOptions(keys=keys, **more)


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def test_every_route_is_open_to_readers_or_not() -> None:
    """By its method, or by one of the two lists: this fails until a new route stands in one of them."""
    routes = {(method, route.path_format) for route in ROUTES for method in route.methods or ()}
    changing = {(method, path) for method, path in routes if method not in SAFE_METHODS}

    assert WRITING <= changing
    assert {path for _, path in changing - WRITING} == READ_ROUTES


@pytest.mark.parametrize(("method", "path"), sorted(WRITING))
def test_what_a_reader_may_not(method: str, path: str) -> None:
    """Each of them, with what would help."""
    with pytest.raises(Forbidden, match=r"role is read.*use another key"):
        require_reading(method, path.format(id="a", file_id="b", batch_id="c", name="d", model="m", chunker="hybrid"))


@pytest.mark.parametrize("path", sorted(READ_ROUTES))
def test_what_a_reader_may(path: str) -> None:
    """Inference, and search in a store."""
    require_reading("POST", path.format(id="vs_1", chunker="hybrid", name="bundled"))


async def test_a_reader_over_http(services: FakeServices) -> None:
    """It shares what its tenant owns and the tenant's quota; its refusal is a problem and changes nothing."""
    keys = LiveKeys(ring(own=TEAM, read=replace(TEAM, role="read")))
    async with connect(services, options(keys)) as client:
        kept = await client.post("/v1/vector_stores", json={"name": "mine"}, headers=bearer("own"))
        seen = await client.get(f"/v1/vector_stores/{kept.json()['id']}", headers=bearer("read"))
        refused = await client.delete(f"/v1/vector_stores/{kept.json()['id']}", headers=bearer("read"))
        text = await client.post(TEXTS, json={"input": "a"}, headers=bearer("read"))
        still = await client.get(f"/v1/vector_stores/{kept.json()['id']}", headers=bearer("own"))

    assert [200, 200, 403, 200, 200] == [one.status_code for one in (kept, seen, refused, text, still)]
    problem(refused, 403, "forbidden", "role is read", "DELETE /v1/vector_stores/")


async def test_a_reader_sends_no_body_in_vain(services: FakeServices) -> None:
    """It is refused before its file is read."""
    app = create_app(services, options(LiveKeys(ring(read=replace(TEAM, role="read")))))  # type: ignore[arg-type]
    call = Call(services, "/v1/jobs", [b"x" * 100] * 3, headers=bearer("read"), app=app)
    answer = await call.run()

    assert (403, 0) == (answer.status_code, call.received)


async def test_an_expired_key(services: FakeServices) -> None:
    """401 with the name and the time; it costs no request, and the tenant's other key goes on."""
    quotas = Quotas(requests_per_minute=1)
    team = replace(TEAM, quotas=quotas)
    keys = LiveKeys(ring(old=replace(team, expires_s=1_700_000_000.0), new=team))
    async with connect(services, options(keys)) as client:
        old = [await client.post(TEXTS, json={"input": "a"}, headers=bearer("old")) for _ in range(3)]
        new = await client.post(TEXTS, json={"input": "a"}, headers=bearer("new"))

    for answer in old:
        problem(answer, 401, "key_expired", "'team'", "2023-11-14T22:13:20Z")
    assert "Bearer" == old[0].headers["www-authenticate"]
    assert 200 == new.status_code


async def test_keys_that_change_while_the_app_serves(services: FakeServices) -> None:
    """The next request is judged by the new ring, with its quotas; what was used is not forgotten."""
    keys = LiveKeys(ring(one=replace(TEAM, quotas=Quotas(requests_per_minute=2))))
    keys.on_replace(lambda new: services.meters.replace(new.callers))
    async with connect(services, options(keys)) as client:
        first = [await client.get("/v1/models", headers=bearer("one")) for _ in range(3)]
        keys.replace(ring(two=replace(TEAM, quotas=Quotas(requests_per_minute=4))))
        second = [await client.get("/v1/models", headers=bearer(key)) for key in ("one", "two")]
        keys.replace(ring(two=TEAM))
        third = await client.get("/v1/models", headers=bearer("two"))

    assert [200, 200, 429] == [answer.status_code for answer in first]
    assert [401, 429] == [answer.status_code for answer in second]
    assert 200 == third.status_code
    assert "ratelimit" not in third.headers


@pytest.mark.parametrize(("scope", "expected"), [("service", b""), ("key", TEAM.owner.encode())])
async def test_whose_cache_a_request_uses(services: FakeServices, scope: Any, expected: bytes) -> None:
    """Everybody's, or its caller's alone; afterwards nobody's. Its turn on the lanes is its caller's in any case."""
    seen: list[tuple[bytes, str]] = []
    embed = services.embeddings.embed

    async def watching(*arguments: Any, **call: Any) -> Any:
        seen.append((owner_scope(), owner_of_work.get()))
        return await embed(*arguments, **call)

    services.embeddings.embed = watching  # type: ignore[method-assign]
    async with connect(services, options(LiveKeys(ring(one=TEAM)), cache_scope=scope)) as client:
        answer = await client.post(TEXTS, json={"input": "a"}, headers=bearer("one"))

    assert 200 == answer.status_code
    assert [(expected, TEAM.owner)] == seen
    assert (b"", "") == (owner_scope(), owner_of_work.get())


async def test_usage_of_a_service_without_keys(client: httpx.AsyncClient) -> None:
    """Nobody is counted, and the answer says so."""
    answer = (await client.get("/v1/usage")).json()

    assert "no keys" in answer["counted_by"]
    assert [("anybody", 0, [])] == [(one["tenant"], one["month"]["requests"], one["quotas"]) for one in answer["data"]]
    assert {"start", "requests", "tokens", "pages", "refused"} == set(answer["data"][0]["today"])
    assert "null" not in json.dumps(answer)
