"""What all routes that read texts have in common: timings and cancellation."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from tests.api.asgi import Call
from tests.api.checks import problem
from tests.api.fakes import FakeServices

TEXT: dict[str, Any] = {"input": "a"}
ROUTES: dict[str, tuple[str, dict[str, Any]]] = {  # each with its service and a body
    "embeddings": ("embeddings", TEXT),
    "entities": ("entities", TEXT),
    "classify": ("classification", TEXT),
    "rerank": ("reranking", {"query": "q", "documents": ["a"]}),
    "analyze": ("analysis", TEXT),
}


@pytest.mark.parametrize("route", ROUTES)
async def test_server_timing_has_the_stages(client: httpx.AsyncClient, route: str) -> None:
    """The Server-Timing header names every stage of inference."""
    header = (await client.post(f"/v1/{route}", json=ROUTES[route][1])).headers["server-timing"]

    assert all(stage in header for stage in ("queue", "tokenize", "inference", "total"))


@pytest.mark.parametrize("route", ROUTES)
async def test_a_disconnect_cancels_the_work(services: FakeServices, route: str) -> None:
    """The service's work is cancelled when its client disconnects; the request counts as 499."""
    name, body = ROUTES[route]
    service = getattr(services, name)
    service.gate = asyncio.Event()
    call = Call(services, f"/v1/{route}", [json.dumps(body).encode()])
    running = asyncio.create_task(call.run())
    await service.entered.wait()

    call.disconnect()
    response = await running

    problem(response, 499, "caller_gone")
    assert 1 == service.cancelled
    assert f'requests_total{{route="/v1/{route}",status="499"}} 1.0' in services.telemetry.render().decode()


@pytest.mark.parametrize("route", ["entities", "classify"])
async def test_nan_is_no_score(client: httpx.AsyncClient, route: str) -> None:
    """Python's json writes NaN, which no score can reach."""
    content = json.dumps({"input": "a", "min_score": float("nan")})
    response = await client.post(f"/v1/{route}", content=content, headers={"content-type": "application/json"})

    assert response.status_code in (400, 422)
