"""How background work on a storage waits for more to do, and how what was deleted is removed slice by slice."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress

from backend.abandoned import end_tasks
from backend.errors import FinanciaError
from backend.supervision import Supervisor
from backend.telemetry import Telemetry, log_event

_log = logging.getLogger(__name__)


class Waker:
    """Lets tasks wait for a time, or until somebody has something for them."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._is_closed = False

    def wake(self) -> None:
        self._event.set()

    def close(self) -> None:
        """Nothing waits any more."""
        self._is_closed = True
        self._event.set()

    async def wait(self, seconds: float) -> None:
        """Return after so long, or at once when there was a `wake` since the last wait ended."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
        if not self._is_closed:
            self._event.clear()

    async def wait_about(self, seconds: float) -> None:
        """`wait` half to one and a half times as long, so that processes do not look at the same moment."""
        await self.wait(seconds * (0.5 + random.random()))  # noqa: S311 - no secret


class Sweeper:
    """Sweeps after each `wake` until nothing is left. Used on the event loop only.

    It is deleted for everybody already, so nobody waits for it; after a fault the next deletion goes on.

    Args:
        sweep: removes a slice; False where nothing was left.
        supervisor: logs and counts what it raises beside faults that pass; of the service, or one of its own.
    """

    def __init__(self, sweep: Callable[[], Awaitable[bool]], supervisor: Supervisor | None = None) -> None:
        self._sweep, self._supervisor = sweep, supervisor or Supervisor(Telemetry())
        self._task: asyncio.Task[None] | None = None
        self._is_due = self._is_closed = False

    def wake(self) -> None:
        self._is_due = True
        if not self._is_closed and (self._task is None or self._task.done()):
            self._task = self._supervisor.run("sweep_search", self._run)

    async def idle(self) -> None:
        """Return when what was deleted before is removed, or cannot be now."""
        if self._task is not None:
            await asyncio.wait({self._task})

    async def close(self) -> None:
        """Stop after the slice that is being removed."""
        self._is_closed = True
        await end_tasks(self._task)

    async def _run(self) -> None:
        while self._is_due:
            self._is_due = False
            try:
                while await self._sweep():
                    pass
            except FinanciaError as error:
                log_event(_log, logging.WARNING, "what was deleted could not be removed yet", reason=str(error))
