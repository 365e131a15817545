"""One HTTP worker as the service process sees it: its process, its channel, and the items it submitted."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from backend.callers.usage import Slice
from backend.lanes.batcher import Batcher
from backend.lanes.engine import Engine
from backend.processes.channel import (
    RING_BYTES,
    Channel,
    Kind,
    Message,
    RingReader,
    RingWriter,
    create_memory,
    map_memory,
)
from backend.processes.engine_host import WorkerItems
from backend.processes.work_messages import (
    AskSamples,
    Drain,
    Keys,
    Models,
    ModelsTaken,
    Ping,
    Pong,
    Ready,
    Samples,
    Start,
    UsageReport,
    read_control,
    write_control,
)
from backend.telemetry import Snapshot, log_event
from backend.tracing.spans import NO_TRACER, Tracer

_log = logging.getLogger(__name__)
_MODULE = "backend.processes.worker"


class WorkerProcess:
    """A started worker. Belongs to the loop's thread.

    Args:
        on_change: called when the worker is ready, and when it took models.
        on_usage: called with what its callers used.
    """

    def __init__(
        self,
        batcher: Batcher,
        engines: Mapping[int, Engine],
        on_change: Callable[[], None],
        on_usage: Callable[[Sequence[Slice]], None] = lambda _slices: None,
        tracer: Tracer = NO_TRACER,
    ) -> None:
        self._on_change, self._on_usage, self._tracer = on_change, on_usage, tracer
        self._batcher, self._engines = batcher, engines
        self._asked: dict[int, asyncio.Event] = {}  # by the number of the question
        self.is_ready = self.was_ready = False
        self.models_version = 0
        self.unanswered_pings = 0
        self._started_s = time.monotonic()
        self.last_samples: Snapshot = []
        self._process: asyncio.subprocess.Process | None = None

    async def spawn(self, listener: socket.socket, page: int) -> None:
        """Start the process, which waits for ``begin``.

        Raises: SetupError without shared memory; OSError where it cannot be started.
        """
        here, there = socket.socketpair()
        written, read = create_memory("to-worker", RING_BYTES), create_memory("from-worker", RING_BYTES)
        descriptors = (there.fileno(), read, written, page, listener.fileno())
        try:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", _MODULE, *map(str, descriptors), pass_fds=descriptors, start_new_session=True
            )
            writer, reader = RingWriter(map_memory(written)), RingReader(map_memory(read))
        except BaseException:
            here.close()
            raise
        finally:
            there.close()
            os.close(written)
            os.close(read)
        loop = asyncio.get_running_loop()
        self._channel = Channel(here, writer, reader, on_message=self._take, on_close=self._lose)
        self._items = WorkerItems(self._batcher, self._engines, self._channel, self._tracer)
        self._channel.start(loop)

    def begin(self, start: Start) -> None:
        """Have it serve."""
        self.models_version = start.models.version
        self._channel.send(*write_control(start))

    def lived_s(self) -> float:
        """Seconds since it was started."""
        return time.monotonic() - self._started_s

    @property
    def pid(self) -> int:
        return 0 if self._process is None else self._process.pid

    async def ended(self) -> int:
        """Wait for the end of the process; its exit code, negative for a signal. Its items are abandoned then."""
        if self._process is None:
            return 0
        code = await self._process.wait()
        self._channel.close()
        self._lose()
        return code

    def ping(self) -> None:
        """Ask it for a sign of life; every message of it is one."""
        self.unanswered_pings += 1
        self._channel.send(*write_control(Ping()))

    def drain(self) -> None:
        """Have it finish what it accepted, and end."""
        self._channel.send(*write_control(Drain()))

    def kill(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGKILL)

    def send_keys(self, keys: Keys) -> None:
        self._channel.send(*write_control(keys))

    def send_models(self, models: Models) -> None:
        self._channel.send(*write_control(models))

    async def samples(self, number: int) -> None:
        """Ask for its metrics, and wait until ``last_samples`` are those; not beyond its end."""
        if not self.is_ready:
            return
        answered = self._asked[number] = asyncio.Event()
        self._channel.send(*write_control(AskSamples(number)))
        try:
            await answered.wait()
        finally:
            del self._asked[number]

    def _take(self, message: Message) -> None:
        self.unanswered_pings = 0
        if message.kind is not Kind.CONTROL:
            self._items.take(message)
            return
        record = read_control(message)
        if isinstance(record, Ready):
            self.is_ready = self.was_ready = True
            log_event(_log, logging.INFO, "an HTTP worker listens", pid=self.pid)
        elif isinstance(record, ModelsTaken):
            self.models_version = record.version
        elif isinstance(record, UsageReport):
            self._on_usage(record.slices)
            return
        elif isinstance(record, Pong):
            return
        elif isinstance(record, Samples):
            self.last_samples = record.rows
            if (answered := self._asked.get(record.number)) is not None:
                answered.set()
        self._on_change()

    def _lose(self) -> None:
        self.is_ready = False
        self._items.abandon()
        for answered in self._asked.values():
            answered.set()
        self._on_change()
