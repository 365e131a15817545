"""One thread that owns one slot of a device: it takes batches, runs them and hands every answer back.

Where an error arises decides who sees it:

    prepare, forward, finish     Exception      the batch is halved until the culprit stands alone
    classify, our own code       anything       the lane dies: its jobs get Unavailable, it starts again
    anywhere                     BaseException  the same
"""

from __future__ import annotations

import logging
import threading
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from backend.batching.job import Job
from backend.batching.policy import halves
from backend.errors import FinanciaError, InferenceFailed
from backend.ml.engine import Engine
from backend.telemetry import log_event

logger = logging.getLogger(__name__)

DEATHS_MAX = 3  # in a row, without a good batch between them; then the lane stays down and readiness shows it

Clock = Callable[[], float]
Classify = Callable[[Exception], FinanciaError]


@dataclass(slots=True)
class Batch:
    """Jobs of one engine that run together, from being taken to their answers."""

    engine: Engine
    jobs: list[Job]
    output: Any = None  # what forward returned
    failure: FinanciaError | None = None  # why prepare, forward or finish failed for the batch as a whole


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

    def take(self) -> Batch | None:
        """Wait for a batch; None means stop."""

    def take_now(self) -> Batch | None:
        """A batch if one waits, without waiting for it."""

    def report(self, outcome: Outcome) -> None:
        """Hand over a batch that has ended."""

    def lost(self, lane: Lane, jobs: Sequence[Job]) -> None:
        """Hand over the jobs of a lane that died; ``lane.alive`` says whether it starts again."""


def inference_failed(error: Exception) -> FinanciaError:
    """What the one job that cannot be run gets: our errors as they are, others as InferenceFailed from their cause."""
    if isinstance(error, FinanciaError):
        return error
    failure = InferenceFailed(f"the model failed on this input ({type(error).__name__})")
    failure.__cause__ = error
    return failure


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
        classify: turns a failure of the engine into the error of the job at fault. It may raise instead
            (a lost device), which ends the lane.
    """

    def __init__(self, index: int, work: Work, *, depth: int, clock: Clock, classify: Classify) -> None:
        self.index = index
        self.alive = False
        self._work, self._depth, self._clock, self._classify = work, depth, clock, classify
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
        while self.alive:
            try:
                self._serve()
                self.alive = False
            except BaseException as error:  # noqa: BLE001 - SystemExit from foreign code must not silence the lane
                self._die(error)

    def _serve(self) -> None:
        while True:
            batch = self._work.take_now() if self._flights else self._work.take()
            if batch is None and not self._flights:
                return
            if batch is not None:
                self._flights.append(batch)
                self._launch(batch)
            if batch is None or len(self._flights) >= self._depth:
                self._land(self._flights[0])
                self._flights.popleft()

    def _launch(self, batch: Batch) -> None:
        try:
            prepared = batch.engine.prepare([job.payload for job in batch.jobs])
            batch.output = batch.engine.forward(prepared)
        except Exception as error:  # noqa: BLE001 - the lane is a border: any engine, any error
            batch.failure = self._judge(error, batch.jobs)

    def _land(self, batch: Batch) -> None:
        values = self._finish(batch)
        failure, batch.failure, batch.output = batch.failure, None, None  # the device's memory is free from here
        if failure is not None:
            values = self._isolate(batch.engine, batch.jobs, failure)
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
            batch.failure = self._judge(error, batch.jobs)
            return ()

    def _isolate(self, engine: Engine, jobs: Sequence[Job], failure: FinanciaError) -> list[Any]:
        if len(jobs) == 1:
            return [failure]
        del failure  # it may hold the failed batch's memory
        return [value for half in halves(jobs) for value in self._retry(engine, half)]

    def _retry(self, engine: Engine, jobs: Sequence[Job]) -> Sequence[Any]:
        batch = Batch(engine, list(jobs))
        self._launch(batch)
        results = self._finish(batch)
        batch.output = None
        return results if batch.failure is None else self._isolate(engine, jobs, batch.failure)

    def _judge(self, error: Exception, jobs: Sequence[Job]) -> FinanciaError:
        # Payloads are token ids and pixels, never texts, so the engine's message cannot quote a document.
        level = logging.ERROR if len(jobs) == 1 else logging.WARNING
        log_event(logger, level, "engine failed", engine=jobs[0].engine.name, jobs=len(jobs), error=repr(error))
        logger.debug("engine failed", exc_info=error)
        failure = self._classify(error)
        traceback.clear_frames(error.__traceback__)  # frees the tensors of the failed run before it is tried again
        return failure

    def _die(self, error: BaseException) -> None:
        self._deaths += 1
        self.alive = self._deaths < DEATHS_MAX
        jobs = [job for batch in self._flights for job in batch.jobs]
        self._flights.clear()
        logger.critical("lane died", exc_info=error, extra={"fields": {"lane": self.index, "starts_again": self.alive}})
        self._work.lost(self, jobs)
