"""Work goes on only while somebody waits for it and its time is not up."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import httpx
import pytest

from backend.api.deps import ApiLimits
from backend.api.disconnect import while_wanted
from backend.errors import CallerGone, DeadlineExceeded
from tests.api.asgi import Call
from tests.api.checks import problem
from tests.api.fakes import FakeServices, fake_services

BODY = b'{"input": "a"}'


async def test_caller_that_leaves_cancels_its_work(services: FakeServices) -> None:
    """A client that goes away while its texts wait takes them out of the queue; the request counts as 499."""
    services.embeddings.gate = asyncio.Event()
    call = Call(services, "/v1/embeddings", [BODY])
    running = asyncio.create_task(call.run())
    await services.embeddings.entered.wait()

    call.leave()
    response = await running

    problem(response, 499, "caller_gone")
    assert 1 == services.embeddings.cancelled
    assert b'requests_total{route="/v1/embeddings",status="499"} 1.0' in services.telemetry.render()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        pytest.param("/embed", b'{"inputs": "a"}', id="embed"),
        pytest.param("/similarity", b'{"inputs": {"source_sentence": "a", "sentences": ["b"]}}', id="similarity"),
    ],
)
async def test_other_routes_watch_too(services: FakeServices, path: str, body: bytes) -> None:
    """The TEI routes let go of abandoned work as well."""
    services.embeddings.gate = asyncio.Event()
    call = Call(services, path, [body])
    running = asyncio.create_task(call.run())
    await services.embeddings.entered.wait()

    call.leave()

    problem(await running, 499)
    assert 1 == services.embeddings.cancelled


async def test_time_is_up() -> None:
    """A request that is not answered within LIMIT_REQUEST_S ends with 504 and lets go of its work."""
    services = fake_services(limits=ApiLimits(request_s=0.05))
    services.embeddings.gate = asyncio.Event()

    response = await Call(services, "/v1/embeddings", [BODY]).run()

    problem(response, 504, "deadline_exceeded", "0.05", "LIMIT_REQUEST_S", "X-Request-Timeout-S")
    assert 1 == services.embeddings.cancelled


async def test_caller_may_ask_for_less(client: httpx.AsyncClient, services: FakeServices) -> None:
    """X-Request-Timeout-S shortens the wait."""
    services.embeddings.gate = asyncio.Event()

    response = await client.post("/v1/embeddings", json={"input": "a"}, headers={"X-Request-Timeout-S": "0.05"})

    problem(response, 504, "deadline_exceeded", "0.05")


@pytest.mark.parametrize(("asked", "expected"), [("5", 5.0), ("1e9", 60.0)])
async def test_deadline_reaches_the_service(
    client: httpx.AsyncClient, services: FakeServices, asked: str, expected: float
) -> None:
    """The service is told until when it is waited for: never longer than LIMIT_REQUEST_S."""
    before_s = time.monotonic()
    await client.post("/v1/embeddings", json={"input": "a"}, headers={"X-Request-Timeout-S": asked})
    after_s = time.monotonic()

    assert before_s + expected <= services.embeddings.calls[0][2]["deadline_s"] <= after_s + expected


@pytest.mark.parametrize("wish", ["0", "-1", "soon", "nan", "inf", ""])
async def test_senseless_wish(client: httpx.AsyncClient, wish: str) -> None:
    """A wish that is no positive number is refused, not ignored."""
    response = await client.post("/v1/embeddings", json={"input": "a"}, headers={"X-Request-Timeout-S": wish})

    problem(response, 422, "invalid_field", "X-Request-Timeout-S", "positive")


class Client:
    """Counts how often it is asked whether it is still there."""

    def __init__(self) -> None:
        self.asked = 0
        self.gone = asyncio.Event()

    async def __call__(self) -> dict[str, Any]:
        self.asked += 1
        await self.gone.wait()
        return {"type": "http.disconnect"}


async def test_nothing_is_watched_when_nothing_waits() -> None:
    """Work that is done in one step never looks at the client."""
    client = Client()

    async def work() -> int:
        return 7

    assert 7 == await while_wanted(work(), client, 60.0)
    await asyncio.sleep(0)

    assert 0 == client.asked
    assert 1 == len(asyncio.all_tasks())


async def test_no_task_is_left_behind() -> None:
    """After the answer the watch is gone too."""
    client = Client()

    async def work() -> int:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return 7

    assert 7 == await while_wanted(work(), client, 60.0)
    await asyncio.sleep(0)

    assert 1 == client.asked
    assert 1 == len(asyncio.all_tasks())


async def test_verdicts() -> None:
    """A client that left and a time that is up are different errors."""
    client = Client()
    client.gone.set()

    with pytest.raises(CallerGone):
        await while_wanted(_forever(), client, 60.0)
    with pytest.raises(DeadlineExceeded):
        await while_wanted(_forever(), Client(), 0.01)
    with pytest.raises(DeadlineExceeded):
        await while_wanted(_forever(), None, 0.01)


async def test_cancelled_from_outside() -> None:
    """A server that cancels a request at shutdown is obeyed, not answered with an error of ours."""
    task = asyncio.create_task(while_wanted(_forever(), Client(), 60.0))
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_errors_of_the_work_pass_through() -> None:
    """What the work raises is what the route sees."""

    async def work() -> None:
        await asyncio.sleep(0)
        raise ValueError("its own")

    with pytest.raises(ValueError, match="its own"):
        await while_wanted(work(), Client(), 60.0)


async def _forever() -> None:
    await asyncio.Event().wait()
