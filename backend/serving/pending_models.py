"""Models that are set and could not be fetched from the hub yet, what serves in their place, and how they come."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

from backend.errors import ModelPending, SetupError
from backend.retry import Backoff
from backend.supervision import Supervisor
from backend.telemetry import log_event

PAUSE = Backoff(15.0, 900.0)
_UNDER_WAY_S = 30.0  # Retry-After while it is being fetched: nobody knows how long that takes
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class PendingModel:
    """One of them. Changed by services/model_retry alone."""

    task: str
    source: str  # as the settings have it
    names: tuple[str, ...]  # every name it will answer to
    reason: str  # why the last try failed
    serving: str | None  # the name of the model in its place, None where there is none
    tries: int = 0
    next_try_s: float = 0.0  # monotonic
    is_under_way: bool = False  # being fetched or loaded now

    def failed(self, reason: str, now_s: float) -> None:
        """A try has failed: the next comes after a pause that doubles each time."""
        self.tries += 1
        self.next_try_s = now_s + PAUSE.wait_s(self.tries)
        self.reason, self.is_under_way = reason, False

    def retry_after_s(self, now_s: float) -> float:
        """When a caller should ask again."""
        return _UNDER_WAY_S if self.is_under_way else max(1.0, self.next_try_s - now_s)

    def sentence(self, now_s: float) -> str:
        """What is missing, why, what serves, and when the next try is."""
        serving = f"{self.serving} serves in its place" if self.serving else "no model of its own serves"
        again = "a try is under way" if self.is_under_way else f"next try in {max(0.0, self.next_try_s - now_s):.0f} s"
        return f"the model for {self.task} ({self.source}) is not loaded: {self.reason}; {serving}; {again}"

    def report(self, now_s: float) -> dict[str, object]:
        """For GET /v1/system."""
        return {
            "task": self.task,
            "source": self.source,
            "serving": self.serving,
            "reason": self.reason,
            "tries": self.tries,
            "is_under_way": self.is_under_way,
            "next_try_in_s": None if self.is_under_way else round(max(0.0, self.next_try_s - now_s), 1),
        }


class PendingModels:
    """The pending models by task. Belongs to the loop.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, models: Sequence[PendingModel] = (), *, clock: Callable[[], float] = time.monotonic) -> None:
        self._models = {model.task: model for model in models}
        self._clock = clock

    def of(self, task: str) -> PendingModel | None:
        return self._models.get(task)

    def models(self) -> tuple[PendingModel, ...]:
        return tuple(self._models.values())

    def next(self) -> PendingModel | None:
        """The one whose next try comes first; None once all are there."""
        return min(self._models.values(), key=lambda model: model.next_try_s, default=None)

    def settle(self, task: str) -> None:
        """Some model was loaded for the task on purpose: nothing is pending there any more."""
        self._models.pop(task, None)

    def check(self, name: str) -> None:
        """Raises: ModelPending where ``name`` is one of theirs."""
        now_s = self._clock()
        for model in self._models.values():
            if name in model.names:
                after_s = model.retry_after_s(now_s)
                raise ModelPending(name, model.reason, serving=model.serving, retry_after_s=after_s)

    def sentences(self) -> tuple[str, ...]:
        """One a model, for people."""
        now_s = self._clock()
        return tuple(model.sentence(now_s) for model in self._models.values())

    def report(self) -> list[dict[str, object]]:
        """For GET /v1/system."""
        now_s = self._clock()
        return [model.report(now_s) for model in self._models.values()]


class ModelRetry:
    """Tries each pending model again, after pauses that grow, until it serves. Belongs to the loop.

    Every failure is tried again, also one that is not the network's: a repository may appear, a full disk be cleared.

    Args:
        fulfil: has a model serve whose files are there, and settles what is pending. Raises: SetupError.
        fetch: brings the files of a source for a task onto this machine; runs on a thread of its own.
    """

    def __init__(
        self,
        pending: PendingModels,
        fulfil: Callable[[PendingModel], Awaitable[None]],
        *,
        fetch: Callable[[str, str], object],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._pending, self._fulfil, self._fetch = pending, fulfil, fetch
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
            await self._fulfil(model)
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
