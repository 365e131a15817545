"""One thread that owns one slot of a device: it takes batches, runs them and hands every answer back.

Where an error arises decides who sees it:

    prepare, forward, finish     Exception      the batch is halved until the culprit stands alone; out of memory too
    prepare, forward, finish     a dead context the lane dies for good and all jobs fail: only a new process can go on
    our own code                 anything       the lane dies: its jobs get Unavailable, it starts again
    anywhere                     BaseException  the same
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from backend.batching.verdict import verdict
from backend.batching.work_item import Job
from backend.device.batch_split import bisect_on_failure, release_frames
from backend.engines.engine import Engine
from backend.errors import BadInput, DeviceLost, DoesNotFit, FinanciaError
from backend.telemetry import log_event

logger = logging.getLogger(__name__)

DEATHS_MAX = 3  # in a row, without a good batch between them; then the lane stays down and readiness shows it

Clock = Callable[[], float]


@dataclass(slots=True)
class Batch:
    """Jobs of one engine that run together, from being taken to their answers."""

    engine: Engine  # as it stands on the lane's device
    jobs: list[Job]
    output: Any = None  # what forward returned
    failure: FinanciaError | None = None  # why prepare, forward or finish failed for the batch as a whole
    misses: int = 0  # times that it, or a part of it, ran out of the device's memory

    @property
    def costs(self) -> list[int]:
        """Of its jobs."""
        return [job.cost for job in self.jobs]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a batch ended: one value a job, in order, its result or a FinanciaError."""

    batch: Batch
    values: Sequence[Any]
    finished_s: float
    busy_s: float  # time the lane spent on this batch alone
    split: bool  # it failed as a whole and was run again in parts


class Work(Protocol):
    """Where a lane takes its batches and leaves its outcomes; called on the lane's thread."""

    def take(self, device_index: int) -> Batch | None:
        """Wait for a batch; None means stop."""

    def take_now(self, device_index: int) -> Batch | None:
        """A batch if one waits, without waiting for it."""

    def report(self, outcome: Outcome) -> None:
        """Hand over a batch that has ended."""

    def lost(self, lane: Lane, jobs: Sequence[Job], error: BaseException) -> None:
        """Hand over the jobs of a lane that died; ``lane.alive`` says whether it starts again."""


def results_of(batch: Batch) -> Sequence[Any]:
    """One result a job. A wrong number is a failure: results that cannot be told apart are nobody's."""
    results = batch.engine.finish(batch.output)
    if len(results) != len(batch.jobs):
        raise RuntimeError(f"{batch.engine.name} gave {len(results)} results for {len(batch.jobs)} jobs")
    return results


class Lane:
    """Pulls a batch when it is free; nobody pushes and no timer runs.

    With ``depth`` 1 a batch is run to its end before the next is taken. With ``depth`` 2 the next one is prepared
    and launched before the previous is finished, so that an asynchronous device never waits for the host.

    Args:
        device_index: which of the placement's devices it owns a slot of.
        niceness: 0 to 19; how readily its thread leaves its core to others. Linux only.
    """

    def __init__(
        self, index: int, work: Work, *, depth: int, clock: Clock, device_index: int = 0, niceness: int = 0
    ) -> None:
        self.index = index
        self.device_index = device_index
        self.alive = False
        self._work, self._depth, self._clock, self._niceness = work, depth, clock, niceness
        self._flights: deque[Batch] = deque()  # taken and not yet reported, oldest first
        self._landed_s = 0.0
        self._deaths = 0
        self._thread = threading.Thread(target=self._live, name=f"lane-{index}", daemon=True)

    def start(self) -> None:
        """Begin to take batches."""
        self.alive = True
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread after its work has said stop."""
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    @property
    def busy_since_s(self) -> float | None:
        """When the oldest batch on the lane was taken; None when it is free. Any thread may ask."""
        try:
            return self._flights[0].jobs[0].started_s
        except IndexError:
            return None

    def _live(self) -> None:
        if self._niceness and sys.platform == "linux":  # where a thread has a niceness of its own
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), self._niceness)
        while self.alive:
            try:
                self._serve()
                self.alive = False
            except BaseException as error:  # noqa: BLE001 - SystemExit from foreign code must not silence the lane
                self._die(error)

    def _serve(self) -> None:
        while True:
            take = self._work.take_now if self._flights else self._work.take
            batch = take(self.device_index)
            if batch is None and not self._flights:
                return
            if batch is not None:
                self._flights.append(batch)
                self._launch(batch)
            if batch is None or len(self._flights) >= self._depth:
                self._land(self._flights[0])
                self._flights.popleft()
            del batch  # a lane that waits must not keep the last batch's model in memory

    def _launch(self, batch: Batch) -> None:
        try:
            prepared = batch.engine.prepare([job.payload for job in batch.jobs])
            batch.output = batch.engine.forward(prepared)
        except Exception as error:  # noqa: BLE001 - the lane is a border: any engine, any error
            batch.failure = self._judge(error, batch, batch.costs)

    def _land(self, batch: Batch) -> None:
        values = self._finish(batch)
        failure, batch.failure, batch.output = batch.failure, None, None  # the device's memory is free from here
        if failure is None:
            batch.engine.batch_limits.succeeded(max(batch.costs), len(batch.jobs))
        else:
            values = self._isolate(batch, failure)
        finished_s = self._clock()
        busy_s = finished_s - max(self._landed_s, batch.jobs[0].started_s)
        self._landed_s = finished_s
        self._deaths = 0
        self._work.report(Outcome(batch, values, finished_s, busy_s, split=failure is not None))

    def _finish(self, batch: Batch) -> Sequence[Any]:
        if batch.failure is not None:
            return ()
        try:
            return results_of(batch)
        except Exception as error:  # noqa: BLE001 - the same border
            batch.failure = self._judge(error, batch, batch.costs)
            return ()

    def _isolate(self, batch: Batch, failure: FinanciaError) -> Sequence[Any]:
        if len(batch.jobs) == 1:
            return [failure]
        del failure  # it may hold the failed batch's memory

        def judge(error: Exception, jobs: Sequence[Job]) -> FinanciaError:
            return self._judge(error, batch, [job.cost for job in jobs])

        def run(jobs: Sequence[Job]) -> Sequence[Any]:
            return _run_now(Batch(batch.engine, list(jobs)))

        middle = len(batch.jobs) // 2
        return [
            value
            for half in (batch.jobs[:middle], batch.jobs[middle:])
            for value in bisect_on_failure(half, run, judge)
        ]

    def _judge(self, error: Exception, batch: Batch, costs: list[int]) -> FinanciaError:
        # Payloads are token ids and pixels, never texts, so the engine's message cannot quote a document.
        level = logging.ERROR if len(costs) == 1 else logging.WARNING
        if isinstance(error, BadInput):  # the file's fault, and its sender is told: a page that takes too long
            level = logging.INFO
        log_event(logger, level, "engine failed", engine=batch.engine.name, jobs=len(costs), error=repr(error))
        logger.debug("engine failed", exc_info=error)
        failure = verdict(error, costs)
        release_frames(error)
        if isinstance(failure, DoesNotFit):
            batch.misses += 1
            batch.engine.batch_limits.out_of_memory(max(costs), len(costs))
        return failure

    def _die(self, error: BaseException) -> None:
        self._deaths += 1
        self.alive = self._deaths < DEATHS_MAX and not isinstance(error, DeviceLost)
        jobs = [job for batch in self._flights for job in batch.jobs]
        self._flights.clear()
        logger.critical("lane died", exc_info=error, extra={"fields": {"lane": self.index, "starts_again": self.alive}})
        self._work.lost(self, jobs, error)


def _run_now(batch: Batch) -> Sequence[Any]:
    """A part of a failed batch, from its payloads to its results."""
    engine = batch.engine
    batch.output = engine.forward(engine.prepare([job.payload for job in batch.jobs]))
    return results_of(batch)
