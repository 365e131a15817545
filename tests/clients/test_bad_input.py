"""Bad and odd input over a real socket and a real model, and its effect on other requests."""

import asyncio
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


@pytest.mark.parametrize("chunked", [False, True])
def test_body_over_the_limit(guarded_server: LiveServer, chunked: bool) -> None:
    """A client that sends too much still sees why, and may go on on the same connection."""
    body = b"x" * 5_000_000
    content = (body[start : start + 50_000] for start in range(0, len(body), 50_000)) if chunked else body
    with guarded_server.client(headers=KEY) as client:
        response = client.post(URL, content=content, headers=JSON)

        problem(response, 413, "too_large", "100000", "LIMIT_BODY_BYTES")
        assert 200 == client.post(URL, json={"input": "a"}).status_code


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
