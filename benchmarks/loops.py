"""The two ways to send: a closed loop of clients that wait, and an open loop that follows a clock.

Both work in callbacks on one event loop, without a task or a future for a request, and count into a Tally.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from benchmarks.ticker import Ticker
from benchmarks.wire import Connection, connect

Clock = Callable[[], float]  # seconds, as time.monotonic

OK = 200

_CONNECTIONS_MAX = 256  # of an open loop; requests due beyond that wait in the generator, their clock running
_DRAIN_S = 2.0  # how long an open loop waits for answers after its last arrival


@dataclass(slots=True)
class Tally:
    """Counts answers whose moment lies in the measured window.

    A rate is answers over ``span_s``, from the last answer before the window to the last inside it: answers come in
    bunches of a batch, and a window cut through one would count it whole or not at all.
    """

    opens_s: float
    closes_s: float
    latencies_s: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    finished: int = 0  # answered with 200 inside the window, whenever they were due
    unfinished: int = 0
    lags_s: list[float] = field(default_factory=list)
    _before_s: float | None = None  # moment of the last 200 before the window
    _last_s: float = 0.0  # moment of the last 200 inside it

    @property
    def span_s(self) -> float:
        since_s = self.opens_s if self._before_s is None else self._before_s
        return self._last_s - since_s if self.finished else self.closes_s - self.opens_s

    def answer(self, status: int, *, since_s: float, now_s: float, moment_s: float) -> None:
        """Note one answer; it belongs to the window by ``moment_s``: when it was due (open loop) or came (closed)."""
        if status == OK:
            self._finish(now_s)
        if self.opens_s <= moment_s < self.closes_s:
            self.statuses[status] += 1
            if status == OK:
                self.latencies_s.append(now_s - since_s)

    def _finish(self, now_s: float) -> None:
        if now_s < self.opens_s:
            self._before_s = now_s
        elif now_s < self.closes_s:
            self.finished += 1
            self._last_s = now_s

    def missing(self, *, since_s: float, now_s: float) -> None:
        """Note a request never answered: its age so far is the least its latency can be."""
        if self.opens_s <= since_s < self.closes_s:
            self.unfinished += 1
            self.latencies_s.append(now_s - since_s)


class ClosedLoop:
    """``clients`` connections, each always waiting for exactly one answer."""

    def __init__(self, port: int, requests: Iterator[bytes], tally: Tally, clock: Clock) -> None:
        self._port = port
        self._requests = requests
        self._tally = tally
        self._clock = clock
        self._over = asyncio.Event()
        self._connections: set[Connection] = set()
        self._reconnects: set[asyncio.Task[None]] = set()

    async def run(self, clients: int) -> None:
        """Send until the window closes or the requests run out; then the window ends at that moment."""
        for _ in range(clients):
            await self._open()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._tally.closes_s - self._clock()):
                await self._over.wait()
        self._over.set()
        for connection in self._connections:
            connection.close()
        for task in self._reconnects:
            task.cancel()

    async def _open(self) -> None:
        connection = await connect(self._port, self._settled)
        self._connections.add(connection)
        self._send(connection, self._clock())

    def _settled(self, connection: Connection, status: int) -> None:
        now_s = self._clock()
        self._tally.answer(status, since_s=connection.since_s, now_s=now_s, moment_s=now_s)
        if connection.is_open:
            self._send(connection, now_s)
            return
        self._connections.discard(connection)
        task = asyncio.create_task(self._reopen())
        self._reconnects.add(task)
        task.add_done_callback(self._reconnects.discard)

    async def _reopen(self) -> None:
        with contextlib.suppress(OSError):  # the server is gone: this client stays silent, the rate shows it
            await self._open()

    def _send(self, connection: Connection, now_s: float) -> None:
        if self._over.is_set():
            return
        request = next(self._requests, None)
        if request is not None:
            connection.send(request, now_s)
            return
        if not any(one.busy for one in self._connections):
            self._tally.closes_s = min(self._tally.closes_s, now_s)
            self._over.set()


class OpenLoop:
    """Requests sent when due, on whichever connection is free; more connections are opened while none is."""

    def __init__(self, port: int, requests: Iterator[bytes], clock: Clock) -> None:
        self._port = port
        self._requests = requests
        self._tally = Tally(0.0, 0.0)  # counts nothing; replaced by ``run``
        self._clock = clock
        self._ticker = Ticker(self._send_due)
        self._due_s: deque[float] = deque()  # arrivals to come
        self._waiting_s: deque[float] = deque()  # due, and no connection free
        self._idle: deque[Connection] = deque()
        self._connections: set[Connection] = set()
        self._opening: set[asyncio.Task[None]] = set()
        self._over = asyncio.Event()

    async def connect(self, connections: int) -> None:
        """Open the first connections, before the clock of any request runs."""
        for _ in range(connections):
            await self._open()

    async def run(self, arrivals_s: Sequence[float], tally: Tally) -> None:
        """Send at each of ``arrivals_s`` (ascending, of the clock); return when all are answered or time is up."""
        self._tally = tally
        self._due_s.extend(arrivals_s)
        self._ticker.start()
        self._ticker.set(self._due_s[0])
        try:
            async with asyncio.timeout(arrivals_s[-1] - self._clock() + _DRAIN_S):
                await self._over.wait()
        except TimeoutError:
            self._note_missing()
        finally:
            self._ticker.close()
            for connection in self._connections:
                connection.close()

    def _send_due(self) -> None:
        now_s = self._clock()
        while self._due_s and self._due_s[0] <= now_s:
            due_s = self._due_s.popleft()
            if connection := self._free():
                self._tally.lags_s.append(now_s - due_s)
                connection.send(next(self._requests), due_s)
            else:
                self._waiting_s.append(due_s)
                self._open_another()
        if self._due_s:
            self._ticker.set(self._due_s[0])

    def _free(self) -> Connection | None:
        while self._idle:
            connection = self._idle.popleft()  # the longest idle, so that no connection reaches the server's idle limit
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
        with contextlib.suppress(OSError):  # refused: the requests go on waiting for the connections there are
            await self._open()

    async def _open(self) -> None:
        connection = await connect(self._port, self._settled)
        self._connections.add(connection)
        self._reuse(connection)

    def _settled(self, connection: Connection, status: int) -> None:
        since_s = connection.since_s
        self._tally.answer(status, since_s=since_s, now_s=self._clock(), moment_s=since_s)
        if connection.is_open:
            self._reuse(connection)
        else:
            self._connections.discard(connection)
            if self._waiting_s:
                self._open_another()
        if not self._due_s and not self._waiting_s and not any(one.busy for one in self._connections):
            self._over.set()

    def _reuse(self, connection: Connection) -> None:
        if self._waiting_s:
            connection.send(next(self._requests), self._waiting_s.popleft())
        else:
            self._idle.append(connection)

    def _note_missing(self) -> None:
        now_s = self._clock()
        for connection in self._connections:
            if connection.busy:
                self._tally.missing(since_s=connection.since_s, now_s=now_s)
        for since_s in (*self._waiting_s, *self._due_s):  # the latter only where this process itself stood still
            self._tally.missing(since_s=since_s, now_s=now_s)
