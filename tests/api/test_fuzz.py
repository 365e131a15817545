"""Any body gets an answer or a 4xx problem; never a 5xx."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backend.api.app import create_app
from backend.callers.callers import ANYBODY
from tests.api.checks import problem
from tests.api.fakes import fake_services
from tests.search.samples import store_file, upload, vector_store

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None), max_size=20)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


async def app_with_documents() -> Any:
    """The app with one file, in one vector store."""
    services = fake_services()
    await upload(services.storage, "file-1", owner=ANYBODY.owner)
    await services.storage.add_store(vector_store(owner=ANYBODY.owner), [store_file("file-1")])
    return create_app(services)


VALID: dict[tuple[str, str], dict[str, Any]] = {  # a valid body of each route
    ("POST", "/v1/embeddings"): {"input": "a"},
    ("POST", "/embed"): {"inputs": "a"},
    ("POST", "/similarity"): {"inputs": {"source_sentence": "a", "sentences": ["b"]}},
    ("POST", "/tokenize"): {"inputs": "a"},
    ("POST", "/predict"): {"inputs": [["a"], ["b", "c"]]},
    ("POST", "/rerank"): {"query": "q", "texts": ["a"]},
    ("POST", "/v1/entities"): {"input": "a"},
    ("POST", "/v1/answer"): {"questions": ["q"], "input": "a"},
    ("POST", "/v1/classify"): {"input": ["a", {"text": "b"}]},
    ("POST", "/v1/similarity"): {"source": "a", "sentences": ["b"]},
    ("POST", "/v1/rerank"): {"query": "q", "documents": ["a", {"text": "b"}]},
    ("POST", "/v1/analyze"): {"input": "a"},
    ("POST", "/v1/vector_stores"): {"name": "a", "expires_after": {"anchor": "last_active_at", "days": 1}},
    ("POST", "/v1/vector_stores/vs_1"): {"name": "b"},
    ("POST", "/v1/vector_stores/vs_1/files"): {
        "file_id": "file-1",
        "chunking_strategy": {"type": "static", "static": {"max_chunk_size_tokens": 100, "chunk_overlap_tokens": 9}},
    },
    ("POST", "/v1/vector_stores/vs_1/files/file-1"): {"attributes": {"a": 1}},
    ("POST", "/v1/vector_stores/vs_1/file_batches"): {"files": [{"file_id": "file-1"}]},
    ("POST", "/v1/vector_stores/vs_1/search"): {
        "query": "a",
        "filters": {"type": "and", "filters": [{"key": "a", "type": "eq", "value": 1}]},
        "ranking_options": {"ranker": "auto", "hybrid_search": {"embedding_weight": 1, "text_weight": 0}},
    },
    ("PUT", "/v1/extractors/mine"): {"examples": [{"input": "a: b", "values": {"a": "b"}}]},
    ("PUT", "/v1/classifiers/mine"): {"examples": [{"text": "a", "label": "b"}]},
}
LOOP = asyncio.Runner()  # one for all requests: the storage stays open
APP = LOOP.run(app_with_documents())


async def _send(method: str, path: str, body: bytes, headers: dict[str, Any]) -> httpx.Response:
    transport = httpx.ASGITransport(APP)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        return await client.request(method, path, content=body, headers=headers)


def nearly(value: Any) -> st.SearchStrategy[Any]:
    """The value, one with other members or items, or anything."""
    if isinstance(value, dict):
        return st.fixed_dictionaries({}, optional={name: nearly(one) for name, one in value.items()}) | ANYTHING
    if isinstance(value, list) and value:
        return st.lists(st.one_of([nearly(one) for one in value[:2]]), max_size=4) | ANYTHING
    return st.just(value) | SCALARS | ANYTHING


def members_of(value: Any) -> Iterator[tuple[str, Any]]:
    """Every member of a body, also those of its parts."""
    if isinstance(value, dict):
        yield from value.items()
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from members_of(part)


def documented(node: Any, schemas: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every member that schemas and examples below a node of an OpenAPI document know."""
    if isinstance(node, dict):
        for name, schema in node.get("properties", {}).items():
            yield from ((name, value) for value in (schema.get("enum", [None]) if isinstance(schema, dict) else ()))
        for name in ("example", "examples"):
            yield from members_of(node.get(name))
        if (schema := schemas.pop(node.get("$ref", "").rpartition("/")[2], None)) is not None:
            yield from documented(schema, schemas)
    for part in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from documented(part, schemas)


def fields() -> dict[str, st.SearchStrategy[Any]]:
    """Members of bodies, as they are documented and otherwise."""
    found: dict[str, dict[str, Any]] = {}
    document = LOOP.run(_send("GET", "/openapi.json", b"", {})).json()
    bodies = [route.get("requestBody") for routes in document["paths"].values() for route in routes.values()]
    for name, value in [*members_of(list(VALID.values())), *documented(bodies, document["components"]["schemas"])]:
        found.setdefault(name, {})[json.dumps(value)] = value
    return {name: st.one_of([nearly(value) for value in list(values.values())[:4]]) for name, values in found.items()}


FIELDS = fields()


def some(most: int) -> st.SearchStrategy[dict[str, Any]]:
    """So many of the fields."""
    names = st.lists(st.sampled_from(sorted(FIELDS)), max_size=most, unique=True)
    return names.flatmap(lambda names: st.fixed_dictionaries({name: FIELDS[name] for name in names}))


@pytest.mark.slow
@pytest.mark.parametrize(("method", "path"), VALID)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(changes=some(3))
def test_changed_fields(method: str, path: str, changes: dict[str, Any]) -> None:
    """A valid body with a few changed fields; most are answered, some are refused."""
    body = json.dumps({**VALID[method, path], **changes}).encode()

    _check(LOOP.run(_send(method, path, body, {"Content-Type": "application/json"})))


@pytest.mark.slow
@pytest.mark.parametrize(("method", "path"), VALID)
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(body=some(12).map(lambda body: json.dumps(body).encode()) | st.binary(max_size=200))
def test_bodies(method: str, path: str, body: bytes) -> None:
    """JSON that is nearly valid, any other JSON, and bytes that are not JSON."""
    response = LOOP.run(_send(method, path, body, {"Content-Type": "application/json"}))

    _check(response)


@settings(max_examples=100, deadline=None)
@given(
    headers=st.dictionaries(
        st.sampled_from(["Content-Type", "Content-Encoding", "X-Request-Id", "X-Request-Timeout-S", "Authorization"]),
        st.binary(max_size=40).map(lambda value: value.replace(b"\n", b"").replace(b"\r", b"").strip()),
    )
)
def test_headers(headers: dict[str, bytes]) -> None:
    """Headers of any bytes that HTTP lets through."""
    response = LOOP.run(_send("POST", "/embed", b'{"inputs": "a"}', headers))

    _check(response)


def _check(response: httpx.Response) -> None:
    if response.status_code != 200:
        problem(response, response.status_code)
        assert 400 <= response.status_code < 500
        assert response.headers["x-request-id"].isascii()
