"""What every error must look like, and what becomes of work whose client leaves."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx

from tests.api.asgi import Call
from tests.api.conftest import connect
from tests.api.fakes import FakeServices
from tests.api.text_fakes import Fake

ERROR_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}


def problem(response: httpx.Response, status: int, code: str | None = None, *named: str) -> dict[str, Any]:
    """The problem in ``response``, which must have this status and code and name all of ``named``."""
    assert (status, "application/problem+json") == (response.status_code, response.headers["content-type"]), (
        response.text
    )
    body: dict[str, Any] = response.json()
    assert {"type", "title", "status", "detail", "code", "retryable", "request_id", "error"} <= set(body)
    assert status == body["status"]
    assert body["type"] == f"urn:financia:problem:{body['code']}"
    assert body["request_id"] == response.headers["x-request-id"]
    assert {"message", "type", "code", "param"} == set(body["error"])
    assert (body["detail"], body["code"]) == (body["error"]["message"], body["error"]["code"])
    if code is not None:
        assert code == body["code"]
    for word in named:
        assert word in body["detail"], f"{word!r} is not named in {body['detail']!r}"
    assert "Traceback" not in response.text
    assert ".py" not in response.text
    return body


async def check_told(services: FakeServices, service: Fake, url: str, error: Exception, *expected: Any) -> None:
    """An error of the service reaches its caller as a ``problem`` with what is ``expected`` of it."""
    service.error = error

    async with connect(services) as client:
        response = await client.post(url, json={"input": "a"})

    problem(response, *expected)


async def check_ended(services: FakeServices, service: Fake, url: str, body: dict[str, Any]) -> None:
    """The service's work ends when its client leaves."""
    service.gate = asyncio.Event()
    call = Call(services, url, [json.dumps(body).encode()])
    running = asyncio.create_task(call.run())
    await service.entered.wait()

    call.leave()
    response = await running

    assert 499 == response.status_code
    assert 1 == service.cancelled
