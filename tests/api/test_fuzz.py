"""Whatever a body holds, the answer is right or a problem that blames the request; never a 5xx."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backend.api.app import create_app
from tests.api.checks import problem
from tests.api.fakes import fake_services

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
}
BODIES = st.fixed_dictionaries({}, optional=FIELDS).map(lambda body: json.dumps(body).encode()) | st.binary(
    max_size=200
)
PATHS = ["/v1/embeddings", "/embed", "/similarity", "/tokenize"]


@pytest.mark.parametrize("path", PATHS)
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(body=BODIES)
def test_bodies(path: str, body: bytes) -> None:
    """JSON that is nearly right, anything that is JSON, and bytes that are none."""
    response = asyncio.run(_post(path, body, {"Content-Type": "application/json"}))

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
    response = asyncio.run(_post("/embed", b'{"inputs": "a"}', headers))

    _check(response)


def _check(response: httpx.Response) -> None:
    if response.status_code != 200:
        problem(response, response.status_code)
        assert 400 <= response.status_code < 500
        assert response.headers["x-request-id"].isascii()


async def _post(path: str, body: bytes, headers: dict[str, Any]) -> httpx.Response:
    transport = httpx.ASGITransport(create_app(fake_services()))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        return await client.post(path, content=body, headers=headers)
