"""Service calls end at their deadline and when their client disconnects; how headers write numbers."""

import asyncio
import math
import time
from typing import Any

import httpx
import pytest

from backend.api.request_context import ApiLimits, number_of, run_until_disconnect
from backend.errors import DeadlineExceeded
from tests.api.asgi import Call
from tests.api.checks import problem
from tests.api.fakes import FakeServices, fake_services

BODY = b'{"input": "a"}'


async def test_the_time_limit() -> None:
    """A request that is not answered within LIMIT_REQUEST_S ends with 504 and its work is cancelled."""
    services = fake_services(limits=ApiLimits(request_s=0.05))
    services.embeddings.gate = asyncio.Event()

    response = await Call(services, "/v1/embeddings", [BODY]).run()

    problem(response, 504, "deadline_exceeded", "0.05", "LIMIT_REQUEST_S", "X-Request-Timeout-S")
    assert 1 == services.embeddings.cancelled


async def test_the_header_shortens_the_wait(client: httpx.AsyncClient, services: FakeServices) -> None:
    """A caller may set a shorter limit with X-Request-Timeout-S."""
    services.embeddings.gate = asyncio.Event()

    response = await client.post("/v1/embeddings", json={"input": "a"}, headers={"X-Request-Timeout-S": "0.05"})

    problem(response, 504, "deadline_exceeded", "0.05")


async def test_the_time_is_that_of_the_request(client: httpx.AsyncClient, services: FakeServices) -> None:
    """Not what was left of it to the last batch, which says so: "not answered within 2.2 s" came after a minute."""
    services.embeddings.error = DeadlineExceeded(2.2)

    response = await client.post("/v1/embeddings", json={"input": "a"}, headers={"X-Request-Timeout-S": "7"})

    problem(response, 504, "deadline_exceeded", "within 7 s")


@pytest.mark.parametrize(("timeout_s", "expected"), [("5", 5.0), ("1e9", 60.0)])
async def test_deadline_reaches_the_service(
    client: httpx.AsyncClient, services: FakeServices, timeout_s: str, expected: float
) -> None:
    """The service gets the deadline, which is never later than LIMIT_REQUEST_S."""
    before_s = time.monotonic()
    await client.post("/v1/embeddings", json={"input": "a"}, headers={"X-Request-Timeout-S": timeout_s})
    after_s = time.monotonic()

    assert before_s + expected <= services.embeddings.calls[0][2]["urgency"].deadline_s <= after_s + expected


@pytest.mark.parametrize("timeout_s", ["0", "nan", "inf", ""])
async def test_invalid_timeout(client: httpx.AsyncClient, timeout_s: str) -> None:
    """A timeout that is no positive number is refused, not ignored."""
    response = await client.post("/v1/embeddings", json={"input": "a"}, headers={"X-Request-Timeout-S": timeout_s})

    problem(response, 422, "invalid_field", "X-Request-Timeout-S", "positive")


class CountingClient:
    """Counts how often the app waits for its messages; disconnects when ``gone`` is set."""

    def __init__(self) -> None:
        self.receives = 0
        self.gone = asyncio.Event()

    async def __call__(self) -> dict[str, Any]:
        self.receives += 1
        await self.gone.wait()
        return {"type": "http.disconnect"}


async def test_work_done_in_one_step_is_not_watched() -> None:
    """Work that never waits does not read the client's messages."""
    client = CountingClient()

    async def work() -> int:
        return 7

    assert 7 == await run_until_disconnect(work(), client, 60.0)
    await asyncio.sleep(0)

    assert 0 == client.receives
    assert 1 == len(asyncio.all_tasks())


async def test_no_task_is_left_behind() -> None:
    """The watcher's task ends with the work."""
    client = CountingClient()

    async def work() -> int:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return 7

    assert 7 == await run_until_disconnect(work(), client, 60.0)
    await asyncio.sleep(0)

    assert 1 == client.receives
    assert 1 == len(asyncio.all_tasks())


async def test_cancelled_from_outside() -> None:
    """When the server cancels a request at shutdown, the cancellation is raised, not an error of ours."""
    task = asyncio.create_task(run_until_disconnect(_forever(), CountingClient(), 60.0))
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def _forever() -> None:
    await asyncio.Event().wait()


async def test_the_body_counts_against_the_deadline(services: FakeServices) -> None:
    """A request has one deadline from its headers on: a slow body leaves less time for the work."""
    call = Call(services, "/v1/embeddings", [BODY])
    receive, reading, sent = call.receive, asyncio.Event(), asyncio.Event()

    async def slow_receive() -> dict[str, Any]:
        reading.set()
        await sent.wait()
        return await receive()

    call.receive = slow_receive  # type: ignore[method-assign]
    running = asyncio.create_task(call.run())
    await reading.wait()
    before_the_body_s = time.monotonic()
    sent.set()
    await running

    assert services.embeddings.calls[0][2]["urgency"].deadline_s <= before_the_body_s + 60.0


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        pytest.param("/v1/embeddings", {"content-type": "application/json"}, id="json"),
        pytest.param("/v1/documents", {"content-type": "application/pdf"}, id="a-file"),
    ],
)
async def test_the_header_ends_a_slow_body(services: FakeServices, path: str, headers: dict[str, str]) -> None:
    """The client's own limit covers sending, too; the answer says what was late."""
    call = Call(services, path, [b"{"], headers={**headers, "x-request-timeout-s": "0.05"}, stalls=True)

    problem(await call.run(), 504, "deadline_exceeded", "the body was not whole after 0.05 s", "X-Request-Timeout-S")


async def test_sending_a_recording_may_take_as_long_as_transcribing_it() -> None:
    """LIMIT_TRANSCRIPTION_S, not LIMIT_REQUEST_S: 100 MB over 10 Mbit/s take 80 s."""
    services = fake_services(limits=ApiLimits(request_s=30.0, transcription_s=0.05))
    call = Call(services, "/v1/audio/transcriptions", [b"RIFF"], headers={"content-type": "audio/wav"}, stalls=True)

    problem(await call.run(), 504, "deadline_exceeded", "not whole after 0.05 s", "LIMIT_TRANSCRIPTION_S")


async def test_an_invalid_timeout_is_told_before_the_body_is_read(services: FakeServices) -> None:
    call = Call(services, "/v1/documents", [b"%PDF"], headers={"x-request-timeout-s": "soon"}, stalls=True)

    problem(await call.run(), 422, "invalid_field", "X-Request-Timeout-S")
    assert 0 == call.received


@pytest.mark.parametrize(("text", "expected"), [(".5", 0.5), ("1e-3", 0.001), ("+2", 2.0)])
def test_numbers(text, expected):
    assert expected == number_of(text)


@pytest.mark.parametrize("text", ["", "nan", "Infinity", "1_0", " 1", "\u0661\u0660", "0x10", "1e", "-", "1" * 41])
def test_what_is_no_number(text):
    """Also what Python's float() would read."""
    assert math.isnan(number_of(text))
