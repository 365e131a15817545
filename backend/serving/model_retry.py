"""Fetches the models that the hub did not give at the start, in the background, and swaps them in."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from functools import partial
from typing import Protocol

from backend.errors import SetupError
from backend.serving.pending_models import PendingModel, PendingModels
from backend.supervision import Supervisor
from backend.telemetry import log_event

_log = logging.getLogger(__name__)


class Loader(Protocol):
    """Makes a model serve whose files are there; `ModelSwapper` is one."""

    async def fulfil(self, pending: PendingModel) -> None:
        """Load it, and settle what is pending. Raises: SetupError where that fails."""


class ModelRetry:
    """Tries each pending model again, after pauses that grow, until it serves. Belongs to the loop.

    Every failure is tried again, also one that is not the network's: a repository may appear, a full disk be cleared.

    Args:
        fetch: brings the files of a source for a task onto this machine; runs on a thread of its own.
    """

    def __init__(
        self,
        pending: PendingModels,
        loader: Loader,
        *,
        fetch: Callable[[str, str], object],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._pending, self._loader, self._fetch = pending, loader, fetch
        self._clock, self._sleep = clock, sleep
        self._task: asyncio.Task[None] | None = None

    def start(self, supervisor: Supervisor) -> None:
        if self._pending.next() is not None:
            self._task = supervisor.keep("fetch_models", self._run)

    def stop(self) -> None:
        """Stop trying; a download that runs is left behind, and the next start goes on from what it has written."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        """Until nothing is pending."""
        while (model := self._pending.next()) is not None:
            pause_s = model.next_try_s - self._clock()
            if pause_s > 0:
                await self._sleep(pause_s)
            elif self._pending.of(model.task) is model:
                await self._try(model)

    async def _try(self, model: PendingModel) -> None:
        model.is_under_way = True
        reason = "the last try failed unexpectedly; see the log"
        try:
            await _on_daemon_thread(partial(self._fetch, model.source, model.task))
            await self._loader.fulfil(model)
        except SetupError as error:
            reason = str(error)
        finally:  # also for what the supervisor logs, or the task would try again without a pause
            model.failed(reason, self._clock())
        if self._pending.of(model.task) is model:
            log_event(_log, logging.WARNING, "a model is still not loaded", why=model.sentence(self._clock()))


async def _on_daemon_thread(function: Callable[[], object]) -> None:
    """Run ``function`` on a thread that does not hold up the end of the process, as one of asyncio's pool would."""
    future: Future[None] = Future()

    def run() -> None:
        future.set_running_or_notify_cancel()
        try:
            function()
        except BaseException as error:  # noqa: BLE001 - border: it is raised again on the loop
            future.set_exception(error)
        else:
            future.set_result(None)

    threading.Thread(target=run, name="fetch-model", daemon=True).start()
    await asyncio.wrap_future(future)
