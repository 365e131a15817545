"""The front door of the lanes: admits jobs, lets lanes take them, and settles their futures on the loop.

Who owns what: the waiting jobs belong to whoever holds the one lock; futures and the set of open jobs belong to the
loop. A lane crosses over once a batch, by ``call_soon_threadsafe``.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from backend.batching.deadline_timer import Alarm
from backend.batching.lane import Batch, Clock, Lane, Outcome
from backend.batching.lane_stats import BatcherStatus, count_batch
from backend.batching.policy import Admission, QueueLimits, Rate, admit, retry_after_s
from backend.batching.work_item import Job, Priority
from backend.batching.work_queue import Taken, WaitingJobs
from backend.engines.engine import Engine
from backend.errors import CallerGone, DeviceLost, FinanciaError, Overloaded, TooLarge, Unavailable
from backend.telemetry import Telemetry, log_event

logger = logging.getLogger(__name__)

LANE_EXIT_S = 1.0  # a lane that has not left by then hangs in its engine; its thread is a daemon


class Batcher:
    """One set of lanes for all engines.

    ``status`` may be called on any thread; everything else that is public, but the lanes' side, on the loop's. Every
    future that ``submit`` gives ends: by its lane, by its deadline, by ``stop``, or because all lanes are down.
    """

    def __init__(
        self,
        lanes: int,
        limits: QueueLimits,
        telemetry: Telemetry,
        *,
        depth: int = 1,
        devices: int = 1,
        niceness: int = 0,
        clock: Clock = time.monotonic,
    ) -> None:
        """``lanes``: of each of the ``devices``, which all pull from the one queue; ``niceness``: of their threads."""
        self._limits, self._telemetry, self._clock = limits, telemetry, clock
        options: dict[str, Any] = {"depth": depth, "clock": clock, "niceness": niceness}
        self._lanes = [Lane(index, self, device_index=index % devices, **options) for index in range(lanes * devices)]
        self._loop: asyncio.AbstractEventLoop | None = None
        self._refusal: str | None = "the lanes have not started yet"
        self._refuse_with = Unavailable
        self._device_lost = asyncio.Event()
        self._device_fault = ""  # why a device is lost; written once, by the lane that met it

        self._changed = threading.Condition(threading.Lock())  # guards the next five
        self._waiting = WaitingJobs(limits.ageing_s)
        self._idle_lanes = 0
        self._stopped = False
        self._rate = Rate()
        self._last_batch_s: float | None = None

        self._open: set[Job] = set()  # every job whose future has not ended through us; the loop's
        self._all_ended = asyncio.Event()
        self._alarm = Alarm(clock, self.expire)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the lanes; their answers go to ``loop``."""
        self._loop = loop
        self._refusal = None
        self._alarm.start(loop)
        for lane in self._lanes:
            lane.start()

    async def device_lost(self) -> str:
        """Wait until a device is lost for good, and say why: nothing but a new process helps then."""
        await self._device_lost.wait()
        return self._device_fault

    def submit(
        self,
        engine: Engine,
        payloads: Sequence[Any],
        costs: Sequence[int],
        *,
        priority: Priority = Priority.INTERACTIVE,
        deadline_s: float = math.inf,
    ) -> list[Job]:
        """Let jobs wait for a lane, all of them or none, and return at once.

        Raises: Unavailable when not started, draining or without a lane; TooLarge when they alone are over the
        queue's limit; Overloaded when there is no room now.
        """
        loop = self._check_open()
        if not payloads:
            return []
        tokens, now_s = sum(costs), self._clock()
        self._admit(len(payloads), tokens)
        jobs = [
            Job(engine, payload, cost, priority, deadline_s, now_s, loop.create_future())
            for payload, cost in zip(payloads, costs, strict=True)
        ]
        self._open.update(jobs)
        self._all_ended.clear()
        if deadline_s < self._alarm.at_s:
            self._alarm.set(deadline_s)
        with self._changed:
            self._waiting.add(jobs, tokens)
            self._changed.notify(len(jobs))
        return jobs

    def promote(self, job: Job, priority: Priority) -> None:
        """Make a waiting job as urgent as a caller that has joined it."""
        if priority < job.priority:
            with self._changed:
                self._waiting.promote(job, priority)

    async def drain(self, timeout_s: float) -> bool:
        """Refuse new jobs, finish the accepted ones, then stop. False when some had to be failed."""
        self._refusal = "the service is shutting down"
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wait_ended(), timeout_s)
        unfinished = len(self._open)
        self.stop()
        await asyncio.to_thread(self._join_lanes)
        return not unfinished

    def stop(self) -> None:
        """Fail what is left with Unavailable and let the lanes go. Waits for nothing; may be called again."""
        self._refusal = "the service is shutting down"
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._alarm.set(math.inf)
        self._fail_all()

    def expire(self) -> None:
        """End the jobs whose deadline has passed, wherever they are: also behind a lane that hangs."""
        now_s = self._clock()
        late = [job for job in self._open if job.deadline_s <= now_s]
        self._settle(late, [job.late() for job in late], now_s)
        self._alarm.set(min((job.deadline_s for job in self._open), default=math.inf))

    def status(self) -> BatcherStatus:
        """What the lanes are doing now."""
        now_s = self._clock()
        since = [since_s for lane in self._lanes if (since_s := lane.busy_since_s) is not None]
        alive = sum(lane.alive for lane in self._lanes)
        with self._changed:
            return BatcherStatus(
                lanes=len(self._lanes),
                lanes_alive=alive,
                busy=len(since),
                queued_jobs=self._waiting.jobs,
                queued_tokens=self._waiting.tokens,
                oldest_s=self._waiting.oldest_s(now_s),
                running_s=now_s - min(since, default=now_s),
                last_batch_age_s=None if self._last_batch_s is None else now_s - self._last_batch_s,
                rate_tokens_per_s=self._rate.per_s * alive,
                device_fault=self._device_fault,
            )

    # The lanes' side: see lane.Work. Decide under the lock, act outside it.

    def take(self, device_index: int) -> Batch | None:
        """Wait for a batch; None means stop."""
        while (taken := self._wait_for_jobs(device_index)) is not None:
            if (batch := self._batch(taken, device_index)) is not None:
                return batch
        return None

    def take_now(self, device_index: int) -> Batch | None:
        """A batch if one waits, without waiting for it."""
        with self._changed:
            taken = self._waiting.take(self._clock(), self._idle_lanes, device_index)
        return self._batch(taken, device_index)

    def report(self, outcome: Outcome) -> None:
        """Count a batch, then settle it on the loop: who has an answer finds it in the metrics."""
        jobs = outcome.batch.jobs
        tokens = sum(job.cost for job in jobs)
        failed = sum(isinstance(value, FinanciaError) for value in outcome.values)
        count_batch(self._telemetry, outcome, tokens=tokens, failed=failed)
        if failed < len(jobs):
            with self._changed:
                self._rate = self._rate.after(tokens, outcome.busy_s)
                self._last_batch_s = outcome.finished_s
        self._on_loop(self._settle, jobs, outcome.values, outcome.finished_s)

    def lost(self, lane: Lane, jobs: Sequence[Job], error: BaseException) -> None:
        """Fail the jobs of a dead lane; with the last lane, or with a device lost for good, all jobs."""
        if lane.alive:
            self._telemetry.lane_restarts_total.inc()
        self._telemetry.jobs_failed_total.inc(len(jobs))
        if isinstance(error, DeviceLost):
            self._lose_device(str(error))
            return
        died = [Unavailable("the lane that ran this input died; try again") for _ in jobs]
        self._on_loop(self._settle, jobs, died, self._clock())
        if not any(each.alive for each in self._lanes):
            log_event(logger, logging.CRITICAL, "no lane is left", lanes=len(self._lanes))
            self._on_loop(self._close, "no lane is alive; see the log and restart the service")

    def _lose_device(self, fault: str) -> None:
        log_event(logger, logging.CRITICAL, "device lost", fault=fault)
        self._device_fault = self._device_fault or fault
        self._telemetry.device_lost.set(1)
        self._on_loop(self._close, fault, DeviceLost)
        self._on_loop(self._device_lost.set)

    def _wait_for_jobs(self, device_index: int) -> Taken | None:
        with self._changed:
            while not self._stopped:
                if self._waiting.jobs:
                    return self._waiting.take(self._clock(), self._idle_lanes, device_index)
                self._idle_lanes += 1
                self._changed.wait()
                self._idle_lanes -= 1
        return None

    def _batch(self, taken: Taken, device_index: int) -> Batch | None:
        now_s = self._clock()
        if taken.dropped:
            self._drop(taken.dropped, now_s)
        if not taken.jobs:
            return None
        for job in taken.jobs:
            job.started_s = now_s
        return Batch(taken.jobs[0].engine.on(device_index), taken.jobs)

    def _drop(self, jobs: Sequence[Job], now_s: float) -> None:
        late = {job for job in jobs if job.deadline_s <= now_s}
        self._telemetry.jobs_dropped_total.labels("deadline").inc(len(late))
        self._telemetry.jobs_dropped_total.labels("caller_gone").inc(len(jobs) - len(late))
        values = [job.late() if job in late else CallerGone("nobody waits for this answer any more") for job in jobs]
        self._on_loop(self._settle, jobs, values, now_s)

    def _on_loop(self, act: Callable[..., None], *arguments: Any) -> None:
        with suppress(RuntimeError):  # the loop has closed: nobody is left to tell
            if self._loop is not None:
                self._loop.call_soon_threadsafe(act, *arguments)

    # The loop's side.

    def _settle(self, jobs: Sequence[Job], values: Sequence[Any], finished_s: float) -> None:
        """End each job with its value unless it has ended already; the only place that ends one."""
        for job, value in zip(jobs, values, strict=True):
            job.finished_s = finished_s
            if job.future.done():
                continue
            if isinstance(value, FinanciaError):
                job.future.set_exception(value)
                job.future.exception()  # marks it as seen: a caller that has left must cause no noise
            else:
                job.future.set_result(value)
        self._open.difference_update(jobs)
        if not self._open:
            self._all_ended.set()

    def _check_open(self) -> asyncio.AbstractEventLoop:
        if self._refusal is not None or self._loop is None:
            raise self._refuse_with(f"not accepting work: {self._refusal}")
        return self._loop

    def _admit(self, jobs: int, tokens: int) -> None:
        queued, limit = self._waiting.tokens, self._limits.queue_tokens  # only the loop adds: room can only grow
        admission = admit(queued, tokens, limit)
        if admission is Admission.NEVER:
            raise TooLarge(
                "tokens of the request", tokens, limit, "LIMIT_QUEUE_TOKENS", advice="Send fewer inputs in one request."
            )
        if admission is Admission.FULL:
            self._telemetry.jobs_shed_total.inc(jobs)
            raise Overloaded(queued, limit, retry_after_s(queued, self.status().rate_tokens_per_s))

    def _close(self, refusal: str, refuse_with: type[Unavailable] = Unavailable) -> None:
        self._refusal, self._refuse_with = refusal, refuse_with
        self._fail_all()

    def _fail_all(self) -> None:
        with self._changed:
            self._waiting.clear()
        if self._loop is None or self._loop.is_closed():
            self._open.clear()  # futures of a closed loop cannot end, and nobody can wait for them
            return
        errors = [self._refuse_with(f"not answered: {self._refusal}") for _ in self._open]
        self._settle(list(self._open), errors, self._clock())

    async def _wait_ended(self) -> None:
        if self._open:
            await self._all_ended.wait()

    def _join_lanes(self) -> None:
        for lane in self._lanes:
            lane.join(LANE_EXIT_S / len(self._lanes))
