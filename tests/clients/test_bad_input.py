"""Bad and odd input over a real socket and a real model, and its effect on other requests."""

import asyncio
import socket
from contextlib import suppress
from typing import Any

import httpx
import numpy as np
import pytest

from tests.api.checks import problem
from tests.clients.server import MARKS, LiveServer

pytestmark = MARKS
URL = "/v1/embeddings"
JSON = {"Content-Type": "application/json"}
KEY = {"Authorization": "Bearer right-key"}


@pytest.mark.parametrize(
    ("body", "status", "named"),
    [
        pytest.param({"input": ["a"] * 10_000}, 413, ["10000", "2048", "LIMIT_INPUTS"], id="10000-inputs"),
        pytest.param({"input": "a" * 1_000_001}, 413, ["LIMIT_TEXT_CHARS"], id="too-many-characters"),
        pytest.param({"input": "word " * 600, "truncate": "none"}, 413, ["512", "truncate"], id="too-many-tokens"),
        pytest.param({"input": [-1]}, 422, ["-1", "250036"], id="negative-id"),
        pytest.param({"input": [2**62]}, 422, ["250036", "check_embedding_ctx_length"], id="huge-id"),
        pytest.param({"input": [791, 25637, 374]}, 422, ["begin with [0]", "tiktoken"], id="tiktoken-ids"),
        pytest.param({"input": "a", "dimensions": 385}, 422, ["dimensions", "384"], id="too-many-dimensions"),
        pytest.param({"input": "a", "dimensions": 10**30}, 422, ["dimensions"], id="absurd-dimensions"),
        pytest.param({"input": "a", "prompt_name": "nobody"}, 422, ["prompt_name"], id="unknown-prompt"),
        pytest.param({"input": "a", "model": "x" * 10_000}, 404, ["bundled"], id="long-model-name"),
    ],
)
def test_bad_input(live_server: LiveServer, body: Any, status: int, named: list[str]) -> None:
    """The real service answers as the routes' own tests say."""
    with live_server.client() as client:
        problem(client.post(URL, json=body), status, None, *named)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("a\x00b", id="nul"),
        pytest.param("\x00", id="nul-alone"),
        pytest.param("👩‍👩‍👧‍👦 🇪🇸", id="emoji"),
        pytest.param("  \n", id="blank"),
        pytest.param("e\u0301" * 500, id="combining-marks"),
        pytest.param("palabra " * 12_500, id="100k-characters"),
        pytest.param("x" * 100_000, id="100k-characters-in-one-word"),
        pytest.param("漢字" * 50_000, id="100k-han-characters"),
        pytest.param("\U0010fffd\ufdd0\u202e", id="non-characters"),
    ],
)
def test_odd_text(live_server: LiveServer, text: str) -> None:
    """Odd but legal text gets a finite vector of length 1 on every route."""
    with live_server.client() as client:
        vector = client.post(URL, json={"input": text}).json()["data"][0]["embedding"]
        tei_vector = client.post("/embed", json={"inputs": text}).json()[0]
        tokens = client.post("/tokenize", json={"inputs": text})

    assert pytest.approx(1.0, abs=1e-4) == float(np.linalg.norm(vector))
    assert vector == tei_vector
    assert 200 == tokens.status_code


def test_offsets_are_the_callers_own(live_server: LiveServer) -> None:
    """Tokens point into the text as it was sent, in code points, whatever stands before them."""
    text = "👩‍👩‍👧 Señor\x00 e\u0301te"
    with live_server.client() as client:
        pieces = client.post("/tokenize", json={"inputs": text, "add_special_tokens": False}).json()[0]

    assert pieces
    for piece in pieces:
        assert piece["text"] == text[piece["start"] : piece["stop"]]


@pytest.mark.parametrize("chunked", [False, True])
def test_body_over_the_limit(guarded_server: LiveServer, chunked: bool) -> None:
    """A client that sends too much still sees why, and may go on on the same connection."""
    body = b"x" * 5_000_000
    content = (body[start : start + 50_000] for start in range(0, len(body), 50_000)) if chunked else body
    with guarded_server.client(headers=KEY) as client:
        response = client.post(URL, content=content, headers=JSON)

        problem(response, 413, "too_large", "100000", "LIMIT_BODY_BYTES")
        assert 200 == client.post(URL, json={"input": "a"}).status_code


def test_bytes_that_are_not_http(live_server: LiveServer) -> None:
    """Bytes that are no HTTP end their own connection only."""
    host, port = live_server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(b"\x16\x03\x01\x02\x00 no http\r\n\r\n")
        answer = connection.recv(4096)
    with live_server.client() as client:
        assert 200 == client.get("/health/live").status_code

    assert b" 400 " in answer.splitlines()[0]


async def test_bad_requests_do_not_disturb_others(live_server: LiveServer) -> None:
    """Good requests among bad ones and disconnecting clients get the vectors that they get alone."""
    texts = [f"contract number {number} between the parties" for number in range(24)]
    bad: list[Any] = [
        {"input": [999_999]},
        {"input": "w " * 9000, "truncate": "none"},
        {"input": []},
        {"input": [True]},
    ]
    async with httpx.AsyncClient(base_url=live_server.url, timeout=60.0) as client:

        async def vector(text: str) -> list[float]:
            response = await client.post(URL, json={"input": text})
            embedding: list[float] = response.json()["data"][0]["embedding"]
            return embedding

        async def disconnect(number: int) -> None:
            request = client.post(URL, json={"input": [f"abandoned {number} {index}" for index in range(64)]})
            with suppress(TimeoutError):  # a fast machine may have answered already
                await asyncio.wait_for(request, 0.02)

        bad_requests = [client.post(URL, json=bad[number % 4]) for number in range(24)]
        disconnects = [disconnect(number) for number in range(4)]
        among = await asyncio.gather(*map(vector, texts), *bad_requests, *disconnects)
        alone = [await vector(text) for text in texts]

    assert {400, 413, 422} == {response.status_code for response in among[24:48]}
    for left, right in zip(among[:24], alone, strict=True):
        np.testing.assert_allclose(left, right, atol=1e-6)
