"""Any body gets an answer or a 4xx problem; never a 5xx."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backend.api.app import create_app
from backend.callers.callers import ANYBODY
from backend.search.records import FileRecord, VectorStore
from backend.search.vector_stores import NewFile
from tests.api.checks import problem
from tests.api.fakes import FakeServices, fake_services
from tests.api.search_fakes import indexed

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None), max_size=20)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
NEARLY_INPUTS = (
    st.text(max_size=30)
    | st.lists(st.text(max_size=5), max_size=5)
    | st.lists(st.integers(), max_size=5)
    | st.lists(st.lists(st.integers(), max_size=3), max_size=3)
    | ANYTHING
)
NEARLY_TEXTS = (
    st.lists(
        st.text(max_size=5) | st.dictionaries(st.sampled_from(["text", "title"]), st.text(max_size=3) | ANYTHING),
        max_size=4,
    )
    | ANYTHING
)
FILTERS = st.recursive(
    st.fixed_dictionaries(
        {},
        optional={
            "key": st.sampled_from(["a", ""]) | ANYTHING,
            "type": st.sampled_from(["eq", "in", "gt", "nin", "like"]) | ANYTHING,
            "value": SCALARS | ANYTHING,
        },
    ),
    lambda inner: st.fixed_dictionaries(
        {"type": st.sampled_from(["and", "or"])}, optional={"filters": st.lists(inner, max_size=3) | ANYTHING}
    ),
    max_leaves=6,
)
NEARLY_RANKING = st.fixed_dictionaries(
    {},
    optional={
        "ranker": st.sampled_from(["auto", "none"]) | ANYTHING,
        "score_threshold": SCALARS,
        "hybrid_search": st.fixed_dictionaries({}, optional={"embedding_weight": SCALARS, "text_weight": SCALARS})
        | ANYTHING,
    },
)
FIELDS: dict[str, Any] = {
    "input": NEARLY_INPUTS,
    "inputs": NEARLY_INPUTS
    | st.fixed_dictionaries({}, optional={"source_sentence": NEARLY_INPUTS, "sentences": NEARLY_INPUTS}),
    "parameters": st.dictionaries(st.sampled_from(["truncate", "prompt_name", "truncation_direction"]), ANYTHING)
    | ANYTHING,
    "model": st.sampled_from(["bundled", "nobody", ""]) | ANYTHING,
    "encoding_format": st.sampled_from(["float", "base64"]) | ANYTHING,
    "dimensions": st.integers() | ANYTHING,
    "truncate": st.sampled_from(["end", "start", "none", True, False]) | ANYTHING,
    "truncation_direction": st.sampled_from(["left", "right"]) | ANYTHING,
    "normalize": st.booleans() | ANYTHING,
    "add_special_tokens": st.booleans() | ANYTHING,
    "prompt_name": st.text(max_size=5) | ANYTHING,
    "query": st.text(max_size=5) | ANYTHING,
    "texts": NEARLY_TEXTS,
    "documents": NEARLY_TEXTS,
    "labels": NEARLY_TEXTS | st.dictionaries(st.text(max_size=3), NEARLY_TEXTS, max_size=3),
    "examples": st.lists(
        st.fixed_dictionaries({}, optional={"text": st.text(max_size=3) | ANYTHING, "label": st.text(max_size=3)}),
        max_size=3,
    )
    | ANYTHING,
    "rank_fields": st.lists(st.sampled_from(["text", "title"]), max_size=2) | ANYTHING,
    "top_n": st.integers(0, 3) | ANYTHING,
    "top_k": st.integers(0, 3) | ANYTHING,
    "min_score": st.floats(0, 1) | ANYTHING,
    "multi_label": st.booleans() | ANYTHING,
    "raw_scores": st.booleans() | ANYTHING,
    "hypothesis_template": st.sampled_from(["{}", "{", "{}{x}", "{0}"]) | ANYTHING,
    "features": st.lists(st.sampled_from(["vector", "classes", "language"]), max_size=3) | ANYTHING,
    "sources": st.lists(st.sampled_from(["model", "pattern"]), max_size=2) | ANYTHING,
    "filters": FILTERS | ANYTHING,
    "max_num_results": st.integers(0, 60) | ANYTHING,
    "ranking_options": NEARLY_RANKING | ANYTHING,
    "attributes": st.dictionaries(st.text(max_size=4), SCALARS, max_size=4) | ANYTHING,
    "metadata": st.dictionaries(st.text(max_size=4), st.text(max_size=4) | ANYTHING, max_size=3) | ANYTHING,
    "file_id": st.sampled_from(["file-1", "file-2", ""]) | ANYTHING,
    "file_ids": st.lists(st.sampled_from(["file-1", "file-2", ""]), max_size=3) | ANYTHING,
    "files": st.lists(
        st.fixed_dictionaries({"file_id": st.just("file-1")}, optional={"attributes": ANYTHING}), max_size=3
    )
    | ANYTHING,
    "chunking_strategy": st.fixed_dictionaries(
        {"type": st.sampled_from(["auto", "static", "x"])},
        optional={
            "static": st.fixed_dictionaries(
                {}, optional={"max_chunk_size_tokens": SCALARS, "chunk_overlap_tokens": SCALARS}
            )
            | ANYTHING
        },
    )
    | ANYTHING,
    "expires_after": st.fixed_dictionaries(
        {}, optional={"anchor": st.sampled_from(["last_active_at", "x"]), "days": SCALARS}
    )
    | ANYTHING,
    "name": st.text(max_size=5) | ANYTHING,
    "types": st.lists(st.text(max_size=3), max_size=2) | ANYTHING,
}
FEW = st.lists(st.sampled_from(sorted(FIELDS)), max_size=3, unique=True).flatmap(
    lambda names: st.fixed_dictionaries({name: FIELDS[name] for name in names})
)
MANY = st.fixed_dictionaries({}, optional=FIELDS)
QUERY = {"query": "q"}


def services_with_documents() -> FakeServices:
    """Fake services with one file, in one vector store."""
    services = fake_services()
    services.files.kept["file-1"] = (FileRecord("file-1", ANYBODY.owner, "a.txt", 1, "ab", "batch", 0.0), b"a")
    services.vector_stores.stores["vs_1"] = VectorStore("vs_1", ANYBODY.owner, "a", 0.0, 0.0)
    services.vector_stores.in_stores["vs_1"] = {"file-1": indexed("vs_1", NewFile("file-1"), "a.txt", None)}
    return services


VALID: dict[tuple[str, str], dict[str, Any]] = {  # a valid body of each route
    ("POST", "/v1/embeddings"): {"input": "a"},
    ("POST", "/embed"): {"inputs": "a"},
    ("POST", "/similarity"): {"inputs": {"source_sentence": "a", "sentences": ["b"]}},
    ("POST", "/tokenize"): {"inputs": "a"},
    ("POST", "/predict"): {"inputs": [["a"], ["b", "c"]]},
    ("POST", "/rerank"): {**QUERY, "texts": ["a"]},
    ("POST", "/v1/entities"): {"input": "a"},
    ("POST", "/v1/answer"): {"questions": ["q"], "input": "a"},
    ("POST", "/v1/classify"): {"input": ["a", {"text": "b"}]},
    ("POST", "/v1/similarity"): {"source": "a", "sentences": ["b"]},
    ("POST", "/v1/rerank"): {**QUERY, "documents": ["a", {"text": "b"}]},
    ("POST", "/v1/analyze"): {"input": "a"},
    ("POST", "/v1/vector_stores"): {"name": "a"},
    ("POST", "/v1/vector_stores/vs_1"): {"name": "b"},
    ("POST", "/v1/vector_stores/vs_1/files"): {"file_id": "file-1"},
    ("POST", "/v1/vector_stores/vs_1/files/file-1"): {"attributes": {"a": 1}},
    ("POST", "/v1/vector_stores/vs_1/file_batches"): {"files": [{"file_id": "file-1"}]},
    ("POST", "/v1/vector_stores/vs_1/search"): {"query": "a", "filters": {"key": "a", "type": "eq", "value": 1}},
    ("PUT", "/v1/extractors/mine"): {"examples": [{"input": "a: b", "values": {"a": "b"}}]},
    ("PUT", "/v1/classifiers/mine"): {"examples": [{"text": "a", "label": "b"}]},
}
APP = create_app(services_with_documents())


@pytest.mark.slow
@pytest.mark.parametrize(("method", "path"), VALID)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(changes=FEW)
def test_changed_fields(method: str, path: str, changes: dict[str, Any]) -> None:
    """A valid body with a few changed fields; most are answered, some are refused."""
    body = json.dumps({**VALID[method, path], **changes}).encode()

    _check(asyncio.run(_send(method, path, body, {"Content-Type": "application/json"})))


@pytest.mark.slow
@pytest.mark.parametrize(("method", "path"), VALID)
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(body=MANY.map(lambda body: json.dumps(body).encode()) | st.binary(max_size=200))
def test_bodies(method: str, path: str, body: bytes) -> None:
    """JSON that is nearly valid, any other JSON, and bytes that are not JSON."""
    response = asyncio.run(_send(method, path, body, {"Content-Type": "application/json"}))

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
    response = asyncio.run(_send("POST", "/embed", b'{"inputs": "a"}', headers))

    _check(response)


def _check(response: httpx.Response) -> None:
    if response.status_code != 200:
        problem(response, response.status_code)
        assert 400 <= response.status_code < 500
        assert response.headers["x-request-id"].isascii()


async def _send(method: str, path: str, body: bytes, headers: dict[str, Any]) -> httpx.Response:
    transport = httpx.ASGITransport(APP)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        return await client.request(method, path, content=body, headers=headers)
