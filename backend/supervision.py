"""Keeps the service's long-lived background tasks running, and tells when one of them keeps failing."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass
from typing import Any

from backend.retry import Backoff
from backend.telemetry import BackgroundTask, Telemetry

STABLE_S = 60.0  # a task that ran so long without a failure is well again
FAILING_AFTER = 3  # failures in a row: one may be a fault that passes
_RESTART = Backoff(0.5, 30.0)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Failures:
    """The latest failures in a row of one task."""

    count: int
    last_s: float  # monotonic
    error: str  # the last one's type; its message may quote a document


class Supervisor:
    """Every long-lived task of the service is started here. Belongs to the event loop.

    A failure that nobody handles is logged with its trace and counted in ``background_failures_total``. Without this
    asyncio keeps it until the task is collected, and the work it did silently stops. No task goes on with the trace or
    the id of the request that happened to start it.
    """

    def __init__(
        self,
        telemetry: Telemetry,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._counter = telemetry.background_failures_total
        self._clock, self._sleep = clock, sleep
        self._failures: dict[BackgroundTask, Failures] = {}
        self._once: set[asyncio.Task[None]] = set()

    def keep(self, name: BackgroundTask, work: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        """A task that runs ``work``, and starts it again after a growing pause when it fails.

        It ends when ``work`` returns, or is cancelled.
        """
        return asyncio.create_task(self._keep(name, work), name=name, context=Context())

    def run(self, name: BackgroundTask, work: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        """A task that runs ``work`` once; its failure is logged and counted, and does not reach who awaits it."""
        task = asyncio.create_task(self._run(name, work), name=name, context=Context())
        self._once.add(task)  # the event loop keeps weak references only
        task.add_done_callback(self._once.discard)
        return task

    def failed(self, name: BackgroundTask, error: BaseException) -> Failures:
        """Log and count a failure that its task survived."""
        self._counter.labels(name).inc()
        now_s, before = self._clock(), self._failures.get(name)
        in_a_row = before.count if before is not None and now_s - before.last_s < STABLE_S else 0
        failures = self._failures[name] = Failures(in_a_row + 1, now_s, type(error).__name__)
        fields = {"task": name, "failures": failures.count}
        _log.error("a background task failed", exc_info=error, extra={"fields": fields})
        return failures

    def failing(self) -> tuple[str, ...]:
        """A sentence about each task that keeps failing; empty when all are well."""
        now_s = self._clock()
        return tuple(
            f"the background task {name} has failed {failures.count} times in a row ({failures.error}); see the log"
            for name, failures in self._failures.items()
            if failures.count >= FAILING_AFTER and now_s - failures.last_s < STABLE_S
        )

    async def _keep(self, name: BackgroundTask, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while True:
            try:
                await work()
                return
            except Exception as error:  # noqa: BLE001 - border: whatever a loop raises, its work must go on
                failures = self.failed(name, error)
            await self._sleep(_RESTART.wait_s(failures.count))

    async def _run(self, name: BackgroundTask, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - the same border
            self.failed(name, error)


class Pusher:
    """Pushes in the background. Used on the event loop only.

    Args:
        push: tells everything that is to be told; whether the store has it.
        every_s: at least between two pushes.
        retry: how long to wait after a fault.
    """

    def __init__(self, push: Callable[[], Awaitable[bool]], *, every_s: float, retry: Backoff) -> None:
        self._push, self._every_s, self._retry = push, every_s, retry
        self._wake, self._stopping = asyncio.Event(), asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def wake(self) -> None:
        """There is something to push."""
        self._wake.set()

    def start(self, supervisor: Supervisor, name: BackgroundTask) -> None:
        self._task = supervisor.keep(name, self._run)

    async def close(self, limit_s: float) -> bool:
        """Stop after one last push; whether that was done within its time."""
        self._stopping.set()
        self._wake.set()
        try:
            async with asyncio.timeout(limit_s):
                if self._task is not None:
                    await asyncio.wait({self._task})
                return await self._push()
        except TimeoutError:
            return False
        finally:
            if self._task is not None:
                self._task.cancel()

    async def _run(self) -> None:
        faults = 0
        while not self._stopping.is_set():
            await self._wake.wait()
            self._wake.clear()
            if await self._push():
                faults = 0
                await self._pause(self._every_s)
            else:
                self._wake.set()
                faults += 1
                await self._pause(self._retry.wait_s(faults))

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
