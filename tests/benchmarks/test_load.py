"""The load generator against a tiny server of the test: what it counts, and from when it counts."""

import asyncio
import contextlib
import itertools
import time

import pytest

from benchmarks.http_connection import LOST, request_bytes
from benchmarks.load import percentile
from benchmarks.load_loops import ClosedLoop, LoadRecorder, OpenLoop

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
BUSY = b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n"
LAST = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"
HANG_UP = b""
REQUEST = request_bytes("/", b"{}")
LONG_S = 60.0  # a window no test gets to the end of


class FakeServer:
    """A server that gives its answers in order, over and over; an empty one ends the connection instead."""

    def __init__(self, *answers):
        self._answers = itertools.cycle(answers)
        self._tasks = set()
        self.bodies = []

    async def serve(self, reader, writer):
        self._tasks.add(asyncio.current_task())
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.bodies.append(await reader.readexactly(int(head.lower().split(b"content-length: ")[1])))
                answer = next(self._answers)
                if not answer:
                    break
                writer.write(answer)
        writer.close()

    @contextlib.asynccontextmanager
    async def port(self):
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        yield server.sockets[0].getsockname()[1]
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks)


class SilentServer(FakeServer):
    """A server that takes requests and never answers."""

    async def serve(self, reader, writer):
        self._tasks.add(asyncio.current_task())
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            await reader.read()
        writer.close()


def close_loop(server, *, clients, count, clock=time.monotonic):
    """The tally of ``count`` requests sent by ``clients`` clients."""

    async def scenario():
        recorder = LoadRecorder(0.0, clock() + LONG_S)
        async with server.port() as port:
            await ClosedLoop(port, iter([REQUEST] * count), recorder, clock).run(clients)
        return recorder

    return asyncio.run(scenario())


def open_loop(server, ages_s, *, connections=1):
    """The tally of requests that were due ``ages_s`` ago when the loop starts."""

    async def scenario():
        now_s = time.monotonic()
        recorder = LoadRecorder(0.0, now_s + LONG_S)
        async with server.port() as port:
            loop = OpenLoop(port, itertools.repeat(REQUEST), time.monotonic)
            await loop.connect(connections)
            await loop.run([now_s - age_s for age_s in ages_s], recorder)
        return recorder

    return asyncio.run(scenario())


def test_closed_loop_counts_errors_by_status():
    """Refusals and lost connections are counted apart and give no latency; their clients go on."""
    recorder = close_loop(FakeServer(OK, BUSY, HANG_UP, LAST), clients=1, count=40)

    assert {200: 20, 429: 10, LOST: 10} == recorder.statuses
    assert 20 == recorder.finished == len(recorder.latencies_s)


def test_a_tally_counts_inside_its_window_only():
    """Warm-up and what comes after the end are no part of the numbers."""
    recorder = LoadRecorder(opens_s=10.0, closes_s=20.0)
    for moment_s in (9.9, 10.0, 19.9, 20.0):
        recorder.record(200, since_s=moment_s - 1.0, now_s=moment_s, moment_s=moment_s)

    assert 2 == recorder.finished == recorder.statuses[200] == len(recorder.latencies_s)


def test_a_rate_counts_whole_bunches():
    """Four answers every two seconds are two a second, wherever the window cuts."""
    recorder = LoadRecorder(opens_s=11.0, closes_s=18.9)
    for moment_s in range(0, 30, 2):
        for _ in range(4):
            recorder.record(200, since_s=0.0, now_s=float(moment_s), moment_s=float(moment_s))

    assert 2.0 == recorder.finished / recorder.span_s


def test_open_loop_counts_latency_from_when_a_request_was_due():
    """A request that could not be sent in time carries its waiting in its latency."""
    recorder = open_loop(FakeServer(OK), ages_s=[1.5, 1.0, 0.5])

    assert 3 == recorder.finished
    assert all(
        latency_s >= age_s for latency_s, age_s in zip(sorted(recorder.latencies_s), [0.5, 1.0, 1.5], strict=True)
    )


def test_open_loop_counts_what_was_never_answered():
    """A silent server does not look fast: requests without an answer count at the age they reached."""
    recorder = open_loop(SilentServer(), ages_s=[1.99, 1.98, 1.97], connections=2)

    assert 3 == recorder.unfinished
    assert min(recorder.latencies_s) >= 1.97


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [
        pytest.param([], 0.5, 0.0, id="of-nothing"),
        pytest.param([7.0], 0.99, 7.0, id="of-one"),
        pytest.param([1.0, 2.0, 3.0, 4.0], 0.5, 2.0, id="median-is-a-value-that-occurred"),
        pytest.param([float(value) for value in range(1, 101)], 0.95, 95.0, id="p95-of-100"),
        pytest.param([float(value) for value in range(1, 101)], 0.99, 99.0, id="p99-of-100"),
        pytest.param([float(value) for value in range(1, 101)], 1.0, 100.0, id="the-largest"),
        pytest.param([1.0, 2.0, 3.0], 0.99, 3.0, id="p99-of-few-is-the-largest"),
    ],
)
def test_percentile(values, share, expected):
    """Nearest rank: the smallest value that at least this share does not exceed."""
    assert expected == percentile(values, share)
