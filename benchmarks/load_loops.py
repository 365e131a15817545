"""The closed loop (clients that wait for their responses) and the open loop (requests at given times) of load.py.

Both run as callbacks on one event loop, without a task or future per request, and record into a LoadRecorder.
"""

import asyncio
import contextlib
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from time import monotonic

from benchmarks.http_connection import Connection, connect

OK = 200

_CONNECTIONS_MAX = 256  # of an open loop; further requests wait in the generator, which counts as latency
_DRAIN_S = 2.0  # how long an open loop waits for responses after its last request


@dataclass(slots=True)
class LoadRecorder:
    """Records responses inside the measured window.

    Rates refer to ``span_s``, from the last response before the window to the last one inside it: responses arrive in
    batches, and a window that cuts through a batch would count all of it or nothing.
    """

    opens_s: float
    closes_s: float
    latencies_s: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    finished: int = 0  # answered with 200 inside the window, whenever due
    unfinished: int = 0
    lags_s: list[float] = field(default_factory=list)
    _last_before_s: float | None = None  # time of the last 200 before the window
    _last_s: float = 0.0  # time of the last 200 inside it

    @property
    def span_s(self) -> float:
        since_s = self.opens_s if self._last_before_s is None else self._last_before_s
        return self._last_s - since_s if self.finished else self.closes_s - self.opens_s

    def record(self, status: int, *, since_s: float, now_s: float, moment_s: float) -> None:
        """Record a response; ``moment_s`` assigns it to the window: when it was due (open loop) or came (closed)."""
        if status == OK:
            self._finish(now_s)
        if self.opens_s <= moment_s < self.closes_s:
            self.statuses[status] += 1
            if status == OK:
                self.latencies_s.append(now_s - since_s)

    def _finish(self, now_s: float) -> None:
        if now_s < self.opens_s:
            self._last_before_s = now_s
        elif now_s < self.closes_s:
            self.finished += 1
            self._last_s = now_s

    def record_unanswered(self, *, since_s: float, now_s: float) -> None:
        """Record a request without response, at its current age, the lower bound of its latency."""
        if self.opens_s <= since_s < self.closes_s:
            self.unfinished += 1
            self.latencies_s.append(now_s - since_s)


class ClosedLoop:
    """``clients`` connections, each always waiting for exactly one response."""

    def __init__(self, port: int, requests: Iterator[bytes], recorder: LoadRecorder) -> None:
        self._port = port
        self._requests = requests
        self._recorder = recorder
        self._finished = asyncio.Event()
        self._connections: set[Connection] = set()
        self._reconnects: set[asyncio.Task[None]] = set()

    async def run(self, clients: int) -> None:
        """Send until the window closes; when the requests run out, the window ends early."""
        for _ in range(clients):
            await self._open()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._recorder.closes_s - monotonic()):
                await self._finished.wait()
        self._finished.set()
        for connection in self._connections:
            connection.close()
        for task in self._reconnects:
            task.cancel()

    async def _open(self) -> None:
        connection = await connect(self._port, self._on_response)
        self._connections.add(connection)
        self._send(connection, monotonic())

    def _on_response(self, connection: Connection, status: int) -> None:
        now_s = monotonic()
        self._recorder.record(status, since_s=connection.since_s, now_s=now_s, moment_s=now_s)
        if connection.is_open:
            self._send(connection, now_s)
            return
        self._connections.discard(connection)
        task = asyncio.create_task(self._reopen())
        self._reconnects.add(task)
        task.add_done_callback(self._reconnects.discard)

    async def _reopen(self) -> None:
        with contextlib.suppress(OSError):  # the server is gone: this client stops, the rate shows it
            await self._open()

    def _send(self, connection: Connection, now_s: float) -> None:
        if self._finished.is_set():
            return
        request = next(self._requests, None)
        if request is not None:
            connection.send(request, now_s)
            return
        if not any(open_connection.busy for open_connection in self._connections):
            self._recorder.closes_s = min(self._recorder.closes_s, now_s)
            self._finished.set()


class OpenLoop:
    """Sends requests when due, on any idle connection; opens more connections while none is idle."""

    def __init__(self, port: int, requests: Iterator[bytes]) -> None:
        self._port = port
        self._requests = requests
        self._recorder = LoadRecorder(0.0, 0.0)  # empty window; replaced by ``run``
        self._due_s: deque[float] = deque()  # arrivals to come
        self._waiting_s: deque[float] = deque()  # due, waiting for a connection
        self._idle: deque[Connection] = deque()
        self._connections: set[Connection] = set()
        self._opening: set[asyncio.Task[None]] = set()
        self._finished = asyncio.Event()

    async def connect(self, connections: int) -> None:
        """Open the first connections, before any request is due."""
        for _ in range(connections):
            await self._open()

    async def run(self, arrivals_s: Sequence[float], recorder: LoadRecorder) -> None:
        """Send at each of ``arrivals_s`` (ascending, monotonic time); return when all are answered or time is up."""
        self._recorder = recorder
        self._due_s.extend(arrivals_s)
        wake_up = _WakeUp(arrivals_s, self._send_due)
        try:
            async with asyncio.timeout(arrivals_s[-1] - monotonic() + _DRAIN_S):
                await self._finished.wait()
        except TimeoutError:
            self._record_unanswered()
        finally:
            wake_up.close()
            for connection in self._connections:
                connection.close()

    def _send_due(self) -> None:
        now_s = monotonic()
        while self._due_s and self._due_s[0] <= now_s:
            due_s = self._due_s.popleft()
            if connection := self._free():
                self._recorder.lags_s.append(now_s - due_s)
                connection.send(next(self._requests), due_s)
            else:
                self._waiting_s.append(due_s)
                self._open_another()

    def _free(self) -> Connection | None:
        while self._idle:
            connection = self._idle.popleft()  # the longest idle, so that none reaches the server's idle timeout
            if connection.is_open:
                return connection
            self._connections.discard(connection)
        return None

    def _open_another(self) -> None:
        if len(self._connections) + len(self._opening) < _CONNECTIONS_MAX:
            task = asyncio.create_task(self._open_if_possible())
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    async def _open_if_possible(self) -> None:
        with contextlib.suppress(OSError):  # refused: the requests wait for the existing connections
            await self._open()

    async def _open(self) -> None:
        connection = await connect(self._port, self._on_response)
        self._connections.add(connection)
        self._reuse(connection)

    def _on_response(self, connection: Connection, status: int) -> None:
        since_s = connection.since_s
        self._recorder.record(status, since_s=since_s, now_s=monotonic(), moment_s=since_s)
        if connection.is_open:
            self._reuse(connection)
        else:
            self._connections.discard(connection)
            if self._waiting_s:
                self._open_another()
        if (
            not self._due_s
            and not self._waiting_s
            and not any(open_connection.busy for open_connection in self._connections)
        ):
            self._finished.set()

    def _reuse(self, connection: Connection) -> None:
        if self._waiting_s:
            connection.send(next(self._requests), self._waiting_s.popleft())
        else:
            self._idle.append(connection)

    def _record_unanswered(self) -> None:
        now_s = monotonic()
        for connection in self._connections:
            if connection.busy:
                self._recorder.record_unanswered(since_s=connection.since_s, now_s=now_s)
        for since_s in (*self._waiting_s, *self._due_s):  # the latter only if this process was stalled
            self._recorder.record_unanswered(since_s=since_s, now_s=now_s)


class _WakeUp:
    """Calls back on the event loop at each of ``arrivals_s``, from a thread that sleeps until then.

    Timers of the loop are exact to a millisecond: at 300 requests a second that is a visible part of every latency.
    """

    def __init__(self, arrivals_s: Sequence[float], callback: Callable[[], None]) -> None:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(asyncio.get_running_loop(), arrivals_s, callback))
        self._thread.start()

    def close(self) -> None:
        """Call back no more."""
        self._ended.set()
        self._thread.join()

    def _run(self, loop: asyncio.AbstractEventLoop, arrivals_s: Sequence[float], callback: Callable[[], None]) -> None:
        for due_s in arrivals_s:
            if self._ended.wait(max(0.0, due_s - monotonic())):
                return
            loop.call_soon_threadsafe(callback)
