"""One HTTP worker as the service process sees it: its process, its channel, and the items it submitted.

The items of all workers join the one queue, and results go back to each.
"""

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
from typing import Any, Final, cast

import numpy as np

from backend.callers.usage import Slice
from backend.errors import CallerGone, FinanciaError, InferenceFailed, Unavailable
from backend.lanes.batcher import Batcher
from backend.lanes.engine import Engine
from backend.lanes.work_queue import WorkItem
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
from backend.processes.work_messages import (
    AskSamples,
    Finished,
    ModelsTaken,
    Samples,
    Signal,
    Start,
    Submission,
    UsageReport,
    is_result,
    read_cancel,
    read_control,
    read_promote,
    read_submission,
    write_control,
    write_errors,
    write_results,
)
from backend.telemetry import Snapshot, log_event
from backend.tracing.spans import INACTIVE, NO_TRACER, Resumed, Tracer

_log = logging.getLogger(__name__)
# The value of an item that nobody waits for: its worker hears whether it had begun, which its caller pays.
CANCELLED: Final = CallerGone("nobody waits for this item")


class Reply:
    """The future of an item that an HTTP worker waits for: its end is told at once, and nothing awaits it.

    The part of `asyncio.Future` that a `Batcher` and a `WorkItem` use. asyncio's own would run a callback for each item
    in a turn of the loop: a fifth of what an item costs this process.
    """

    __slots__ = ("_ended", "_number", "_tell")

    def __init__(self, number: int, tell: Callable[[int, Any], None]) -> None:
        self._number, self._tell = number, tell
        self._ended = False

    def done(self) -> bool:
        return self._ended

    def cancel(self) -> bool:
        if self._ended:
            return False
        self.set_result(CANCELLED)
        return True

    def set_result(self, result: Any) -> None:
        self._ended = True
        self._tell(self._number, result)

    set_exception = set_result

    def exception(self) -> None:
        """Nothing: an error is told when it is set."""


class WorkerItems:
    """The items of one HTTP worker. Belongs to the loop's thread.

    Args:
        engines: by the number that workers know them by.
    """

    def __init__(
        self, batcher: Batcher, engines: Mapping[int, Engine], channel: Channel, tracer: Tracer = NO_TRACER
    ) -> None:
        self._batcher, self._engines, self._channel, self._tracer = batcher, engines, channel, tracer
        self._items: dict[int, WorkItem] = {}
        self._finished: list[Finished] = []
        self._is_gone = False

    def take(self, message: Message) -> None:
        """Queue, cancel or promote items, as the worker says."""
        if message.kind is Kind.SUBMIT:
            self._submit(read_submission(message))
        elif message.kind is Kind.CANCEL:
            for number in read_cancel(message):
                if item := self._items.get(number):
                    item.abandon()
        elif message.kind is Kind.PROMOTE:
            numbers, priority = read_promote(message)
            self._batcher.promote([item for number in numbers if (item := self._items.get(number))], priority)

    def abandon(self) -> None:
        """The worker is gone: nobody waits for its items."""
        self._is_gone = True
        for item in list(self._items.values()):
            item.abandon()

    def _submit(self, submission: Submission) -> None:
        numbers = range(submission.first, submission.first + len(submission.payloads))
        try:
            engine = self._engines.get(submission.engine_id)
            if engine is None:
                raise Unavailable("the model was replaced while this request was on its way; try again")
            with INACTIVE if submission.span is None else Resumed(self._tracer.resume(submission.span)):
                items = self._batcher.submit(
                    engine,
                    submission.payloads,
                    submission.costs,
                    priority=submission.priority,
                    deadline_s=submission.deadline_s,
                    futures=cast("list[asyncio.Future[Any]]", [Reply(number, self._ended) for number in numbers]),
                    owner=submission.owner,
                )
        except FinanciaError as error:
            self._refuse(submission, error)
            return
        self._items.update(zip(numbers, items, strict=True))

    def _refuse(self, submission: Submission, error: FinanciaError) -> None:
        nowhere: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        item = WorkItem(None, None, 0, submission.priority, submission.deadline_s, 0.0, nowhere)  # type: ignore[arg-type]  # for its times alone
        numbers = range(submission.first, submission.first + len(submission.payloads))
        self._channel.send(*write_errors([Finished(number, error, item) for number in numbers]))

    def _ended(self, number: int, value: Any) -> None:
        item = self._items.pop(number)
        if self._is_gone:
            return
        if not self._finished:
            asyncio.get_running_loop().call_soon(self._send_finished)
        self._finished.append(Finished(number, value, item))

    def _send_finished(self) -> None:
        """All that ended in one step of the loop: a batch or several."""
        finished, self._finished = self._finished, []
        results = [one for one in finished if is_result(one.value)]
        errors = [_error(one) for one in finished if not is_result(one.value)]
        if results:
            self._channel.send(*write_results(results))
        if errors:
            self._channel.send(*write_errors(errors))


def _error(finished: Finished) -> Finished:
    """The item with its error. An answer that is neither error nor array costs this item alone."""
    value = finished.value
    if isinstance(value, FinanciaError):
        return finished
    name = finished.item.engine.name
    log_event(_log, logging.ERROR, "an engine's answer cannot be sent", engine=name, answer=_described(value))
    return finished._replace(
        value=InferenceFailed(
            f"{name} answered this input with {_described(value)}; only an array of numbers of one or two dimensions "
            "can be sent: a fault of the service, not of the input"
        )
    )


def _described(value: Any) -> str:
    kind = type(value).__name__
    return f"{kind} of {value.dtype} in {value.ndim} dimensions" if isinstance(value, np.ndarray) else kind


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
        self.send(Signal.PING)

    def send(self, record: object) -> None:
        """Send one of the records of ``work_messages``."""
        self._channel.send(*write_control(record))

    def kill(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGKILL)

    async def samples(self, number: int) -> None:
        """Ask for its metrics, and wait until ``last_samples`` are those; not beyond its end."""
        if not self.is_ready:
            return
        answered = self._asked[number] = asyncio.Event()
        self.send(AskSamples(number))
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
        if record is Signal.READY:
            self.is_ready = self.was_ready = True
            log_event(_log, logging.INFO, "an HTTP worker listens", pid=self.pid)
        elif isinstance(record, ModelsTaken):
            self.models_version = record.version
        elif isinstance(record, UsageReport):
            self._on_usage(record.slices)
            return
        elif record is Signal.PONG:
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
