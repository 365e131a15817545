"""What requests hold while they are under way has a bound, in all and for each caller."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from backend.api.app import create_app
from backend.api.request_context import ApiLimits, ApiOptions
from backend.api.traffic import Traffic
from backend.files.limits import FileLimits
from backend.lanes.memory_keeper import MemoryKeeper
from tests.api.asgi import Call
from tests.api.fakes import FakeServices

MIB = 2**20
TEXTS = {"content-type": "application/json"}
FILE = {"content-type": "application/pdf"}


@asynccontextmanager
async def stalled(call: Call, chunks: int) -> AsyncIterator[None]:
    """While the client has sent so many pieces of its body and sends no more."""
    task = asyncio.create_task(call.run())
    for _ in range(100):  # turns of the loop
        await asyncio.sleep(0)
    assert chunks == call.received
    yield
    call.disconnect()
    await task


def app_with(services: FakeServices, traffic: Traffic, *keys: str) -> Any:
    services.limits, services.file_limits = ApiLimits(), FileLimits()
    return create_app(services, ApiOptions(api_keys=keys, traffic=traffic))


@pytest.mark.parametrize(("path", "headers"), [("/v1/embeddings", TEXTS), ("/v1/ocr", FILE)])
async def test_bodies_that_never_end(services, path, headers):
    """Above its half of LIMIT_IN_FLIGHT_BYTES a caller gets 429; others are served, and it is again later."""
    traffic = Traffic(most_bytes=8 * MIB)
    app = app_with(services, traffic, "a=first", "b=second")

    def upload(key: str, *, stalls: bool = True) -> Call:
        signed = {**headers, "authorization": f"Bearer {key}"}
        return Call(services, path, [b" " * MIB] * 3, headers=signed, stalls=stalls, app=app)

    async with stalled(upload("first"), 3):
        refused = await upload("first").run()
        async with stalled(upload("second"), 3):
            assert 7 * MIB >= traffic.total_bytes
    again = await upload("first", stalls=False).run()

    assert (429, "overloaded") == (refused.status_code, refused.json()["code"])
    assert "LIMIT_IN_FLIGHT_BYTES" in refused.json()["detail"]
    assert "1" == refused.headers["retry-after"]
    assert 429 != again.status_code
    assert 0 == traffic.total_bytes


async def test_a_body_that_is_announced_too_large(services):
    """It is refused before it is read."""
    app = app_with(services, Traffic(most_bytes=8 * MIB))
    async with stalled(Call(services, "/v1/ocr", [b" " * MIB] * 2, headers=FILE, stalls=True, app=app), 2):
        call = Call(services, "/v1/ocr", headers={**FILE, "content-length": str(3 * MIB)}, app=app)
        refused = await call.run()

    assert (429, 0) == (refused.status_code, call.received)


async def test_the_largest_file_is_always_admitted(services):
    """Whatever the setting says: else nobody could send it."""
    traffic = Traffic(most_bytes=1, largest_bytes=5 * MIB)
    call = Call(services, "/v1/ocr", [b" " * MIB] * 5, headers=FILE, app=app_with(services, traffic))

    assert 429 != (await call.run()).status_code


async def test_requests_of_one_caller_at_once(services):
    """A caller may have half of the connections answered; probes are answered always."""
    app = app_with(services, Traffic(most_requests=4))

    def call(path: str = "/v1/ocr", method: str = "POST") -> Call:
        return Call(services, path, headers=FILE, stalls=method == "POST", method=method, app=app)

    async with stalled(call(), 1), stalled(call(), 1):
        refused, probe = await call().run(), await call("/health/live", "GET").run()

    assert (429, "overloaded") == (refused.status_code, refused.json()["code"])
    assert "LIMIT_CONNECTIONS" in refused.json()["detail"]
    assert 200 == probe.status_code


async def test_metrics_tell_the_in_flight_bytes(services):
    app = app_with(services, Traffic())
    async with stalled(Call(services, "/v1/ocr", [b" " * 1000], headers=FILE, stalls=True, app=app), 1):
        text = (await Call(services, "/metrics", method="GET", headers={}, app=app).run()).text

    assert "\nfinancia_in_flight_bytes 1000.0\n" in text


async def test_a_process_without_memory(services):
    """Bodies are refused; what has none is answered, and so is how the service is."""
    keeper = MemoryKeeper(8, {}, {}, resident=lambda: 9)
    await keeper.look()
    app = app_with(services, Traffic(memory=keeper))
    refused = await Call(services, "/v1/embeddings", [b"{}"], headers=TEXTS, app=app).run()
    answered = await Call(services, "/v1/models", [], method="GET", app=app).run()

    assert (429, "5") == (refused.status_code, refused.headers["retry-after"])
    assert 200 == answered.status_code
