"""What all routes that read texts have in common: timings, errors of their services, and cancellation."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from backend.errors import InvalidField, Overloaded, UnknownModel
from backend.text.entities import NoEntityModel
from tests.api.asgi import Call
from tests.api.checks import problem
from tests.api.fakes import FakeServices

BODIES: dict[str, dict[str, Any]] = {
    "entities": {"input": "a"},
    "classify": {"input": "a"},
    "rerank": {"query": "q", "documents": ["a"]},
    "analyze": {"input": "a"},
}
SERVICES = {"entities": "entities", "classify": "classification", "rerank": "reranking", "analyze": "analysis"}


@pytest.mark.parametrize("route", BODIES)
async def test_server_timing_has_the_stages(client: httpx.AsyncClient, route: str) -> None:
    """The Server-Timing header names every stage of inference."""
    header = (await client.post(f"/v1/{route}", json=BODIES[route])).headers["server-timing"]

    assert all(stage in header for stage in ("queue", "tokenize", "inference", "total"))


@pytest.mark.parametrize("route", BODIES)
async def test_a_disconnect_cancels_the_work(services: FakeServices, route: str) -> None:
    """The service's work is cancelled when its client disconnects; the request counts as 499."""
    service = getattr(services, SERVICES[route])
    service.gate = asyncio.Event()
    call = Call(services, f"/v1/{route}", [json.dumps(BODIES[route]).encode()])
    running = asyncio.create_task(call.run())
    await service.entered.wait()

    call.disconnect()
    response = await running

    assert 499 == response.status_code
    assert 1 == service.cancelled


@pytest.mark.parametrize(
    ("route", "error", "status", "code", "words"),
    [
        ("entities", NoEntityModel("ner"), 404, "model_not_found", "set NER_MODEL"),
        ("entities", UnknownModel("x", ("tiny/ner",)), 404, "model_not_found", "tiny/ner"),
        ("entities", InvalidField("types: 'X' is not", param="types"), 422, "invalid_field", "types"),
        ("entities", Overloaded(10, 10, 2.0), 429, "overloaded", ""),
        ("classify", UnknownModel("x", ("document-type",)), 404, "model_not_found", "document-type"),
        ("classify", Overloaded(10, 10, 2.0), 429, "overloaded", ""),
    ],
)
async def test_errors_of_the_service(
    client: httpx.AsyncClient,
    services: FakeServices,
    route: str,
    *,
    error: Exception,
    status: int,
    code: str,
    words: str,
) -> None:
    """An error of the service is answered as a problem with its status, code and message."""
    getattr(services, SERVICES[route]).error = error

    problem(await client.post(f"/v1/{route}", json=BODIES[route]), status, code, words)


@pytest.mark.parametrize("route", ["entities", "classify"])
async def test_nan_is_no_score(client: httpx.AsyncClient, route: str) -> None:
    """Python's json writes NaN, which no score can reach."""
    content = json.dumps({"input": "a", "min_score": float("nan")})
    response = await client.post(f"/v1/{route}", content=content, headers={"content-type": "application/json"})

    assert response.status_code in (400, 422)
