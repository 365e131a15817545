"""A lane: one thread that owns one slot of a device, takes batches, runs them and returns every result.

Where an error arises decides who sees it:

    prepare, forward, finish     Exception      the batch is halved until the faulty item is alone; same for OOM
    anywhere                     a dead context the lane dies for good and all items fail: only a new process can go on
    our own code                 anything       the lane dies: its items get Unavailable, it starts again
    anywhere                     BaseException  the same
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from backend.device.batch_split import bisect_on_failure, release_frames
from backend.device.faults import Fault, FaultKind, classify
from backend.errors import BadInput, DeviceLost, DoesNotFit, FinanciaError, InferenceFailed
from backend.lanes.engine import Engine
from backend.lanes.work_queue import WorkItem, equivalent_count
from backend.telemetry import log_event

logger = logging.getLogger(__name__)

DEATHS_MAX = 3  # in a row, without a successful batch between them; then the lane stays down and readiness shows it

Clock = Callable[[], float]


@dataclass(slots=True)
class Batch:
    """Items of one engine that run together, from being taken to their results."""

    engine: Engine  # the replica on the lane's device
    items: list[WorkItem]
    output: Any = None  # what forward returned
    failure: FinanciaError | None = None  # why prepare, forward or finish failed for the batch as a whole
    work_s: float = 0.0  # time of the lane's thread on a core, for this batch
    oom_count: int = 0  # times that it, or a part of it, ran out of the device's memory
    prepared_s: float = 0.0  # monotonic; when prepare had ended
    launched_s: float = 0.0  # when forward had returned: on a card it is then queued, not done
    awaited_s: float = 0.0  # when the lane began to wait for what it gives

    @property
    def costs(self) -> list[int]:
        """The cost of each item."""
        return [item.cost for item in self.items]


@dataclass(frozen=True, slots=True)
class BatchResult:
    """How a batch ended: one value an item, in order, its result or a FinanciaError."""

    batch: Batch
    values: Sequence[Any]
    finished_s: float
    busy_s: float  # time the lane spent on this batch alone
    split: bool  # it failed as a whole and was run again in parts


class BatchSource(Protocol):
    """Where a lane gets its batches and reports their results; called on the lane's thread."""

    def take(self, device_index: int) -> Batch | None:
        """Wait for a batch; None means stop."""

    def take_now(self, device_index: int) -> Batch | None:
        """A batch if one is queued, without waiting for it."""

    def report(self, result: BatchResult) -> None:
        """Hand over a batch that has ended."""

    def lane_died(self, lane: Lane, items: Sequence[WorkItem], error: BaseException) -> None:
        """Hand over the items of a lane that died; ``lane.alive`` says whether it starts again."""


class Lane:
    """Pulls a batch from its source whenever it is free; nothing is pushed and no timer runs.

    With ``depth`` 1 a batch is run to its end before the next is taken. With ``depth`` 2 the next one is prepared
    and launched before the previous is finished, so that an asynchronous device never waits for the host.

    Args:
        device_index: which of the placement's devices it owns a slot of.
        niceness: 0 to 19; how readily its thread leaves its core to others. Linux only.
    """

    def __init__(
        self, index: int, source: BatchSource, *, depth: int, clock: Clock, device_index: int = 0, niceness: int = 0
    ) -> None:
        self.index = index
        self.device_index = device_index
        self.alive = False
        self._source, self._depth, self._clock, self._niceness = source, depth, clock, niceness
        self._in_flight: deque[Batch] = deque()  # taken and not yet reported, oldest first
        self._last_finished_s = 0.0
        self._deaths = 0
        self._thread = threading.Thread(target=self._run_thread, name=f"lane-{index}", daemon=True)

    def start(self) -> None:
        """Begin to take batches."""
        self.alive = True
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread to end after its source has returned None."""
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    @property
    def busy_since_s(self) -> float | None:
        """When the oldest batch on the lane was taken; None when it is free. Safe on any thread."""
        try:
            return self._in_flight[0].items[0].started_s
        except IndexError:
            return None

    def _run_thread(self) -> None:
        # Of this very thread. Less than it has, where the service was started with `nice`, is for root alone.
        if sys.platform == "linux" and self._niceness > os.getpriority(os.PRIO_PROCESS, 0):
            os.setpriority(os.PRIO_PROCESS, 0, self._niceness)
        while self.alive:
            try:
                self._run_batches()
                self.alive = False
            except BaseException as error:  # noqa: BLE001 - SystemExit from foreign code must not silence the lane
                self._die(error)

    def _run_batches(self) -> None:
        while True:
            take = self._source.take_now if self._in_flight else self._source.take
            batch = take(self.device_index)
            if batch is None and not self._in_flight:
                return
            if batch is not None:
                self._in_flight.append(batch)
                self._launch(batch)
            if batch is None or len(self._in_flight) >= self._depth:
                self._complete(self._in_flight[0])
                self._in_flight.popleft()
            del batch  # a lane that waits must not keep the last batch's model in memory

    def _launch(self, batch: Batch) -> None:
        began_s = time.thread_time()
        try:
            prepared = batch.engine.prepare([item.payload for item in batch.items])
            batch.prepared_s = self._clock()
            batch.output = batch.engine.forward(prepared)
        except Exception as error:  # noqa: BLE001 - the lane is a border: any engine, any error
            batch.failure = self._engine_failed(error, batch, batch.costs)
        batch.launched_s = self._clock()
        batch.work_s += time.thread_time() - began_s

    def _complete(self, batch: Batch) -> None:
        began_s, batch.awaited_s = time.thread_time(), self._clock()
        values = self._finish(batch)
        failure, batch.failure, batch.output = batch.failure, None, None  # the device's memory is free from here
        if failure is None:
            count = equivalent_count(batch.costs, batch.engine.padding_cost)
            batch.engine.batch_limits.succeeded(max(batch.costs), count)
        else:
            values = self._retry_in_parts(batch, failure)
        batch.work_s += time.thread_time() - began_s
        finished_s = self._clock()
        busy_s = finished_s - max(self._last_finished_s, batch.items[0].started_s)
        self._last_finished_s = finished_s
        self._deaths = 0
        self._source.report(BatchResult(batch, values, finished_s, busy_s, split=failure is not None))

    def _finish(self, batch: Batch) -> Sequence[Any]:
        if batch.failure is not None:
            return ()
        try:
            return _results(batch)
        except Exception as error:  # noqa: BLE001 - the same border
            batch.failure = self._engine_failed(error, batch, batch.costs)
            return ()

    def _retry_in_parts(self, batch: Batch, failure: FinanciaError) -> Sequence[Any]:
        if len(batch.items) == 1:
            return [failure]
        del failure  # it may hold the failed batch's memory

        def translate(error: Exception, items: Sequence[WorkItem]) -> FinanciaError:
            return self._engine_failed(error, batch, [item.cost for item in items])

        def run(items: Sequence[WorkItem]) -> Sequence[Any]:
            return _run_to_end(Batch(batch.engine, list(items)))

        middle = len(batch.items) // 2
        halves = (batch.items[:middle], batch.items[middle:])
        return [value for half in halves for value in bisect_on_failure(half, run, translate)]

    def _engine_failed(self, error: Exception, batch: Batch, costs: list[int]) -> FinanciaError:
        """Log the failure, and record it if it was out-of-memory; returns what the item gets if it fails alone."""
        # Payloads are token ids and pixels, never texts, so the engine's message cannot quote a document.
        level = logging.ERROR if len(costs) == 1 else logging.WARNING
        if isinstance(error, BadInput):  # the file's fault, which its sender is told: a page that takes too long
            level = logging.INFO
        log_event(logger, level, "engine failed", engine=batch.engine.name, jobs=len(costs), error=repr(error))
        logger.debug("engine failed", exc_info=error)
        failure = item_error(error, costs)
        release_frames(error)
        if isinstance(failure, DoesNotFit):
            batch.oom_count += 1
            count = equivalent_count(costs, batch.engine.padding_cost)
            batch.engine.batch_limits.out_of_memory(max(costs), count)
        return failure

    def _die(self, error: BaseException) -> None:
        if isinstance(error, Exception) and (lost := device_lost(error)) is not None:
            error = lost  # reading the device's memory raises it too, in the queue and after a batch
        self._deaths += 1
        self.alive = self._deaths < DEATHS_MAX and not isinstance(error, DeviceLost)
        items = [item for batch in self._in_flight for item in batch.items]
        self._in_flight.clear()
        logger.critical("lane died", exc_info=error, extra={"fields": {"lane": self.index, "starts_again": self.alive}})
        self._source.lane_died(self, items, error)


def _run_to_end(batch: Batch) -> Sequence[Any]:
    """Run a part of a failed batch, from its payloads to its results."""
    engine = batch.engine
    batch.output = engine.forward(engine.prepare([item.payload for item in batch.items]))
    return _results(batch)


def _results(batch: Batch) -> Sequence[Any]:
    """One result an item. A wrong number is a failure: results could not be matched to items."""
    results = batch.engine.finish(batch.output)
    if len(results) != len(batch.items):
        raise RuntimeError(f"{batch.engine.name} gave {len(results)} results for {len(batch.items)} jobs")
    return results


def item_error(error: Exception, costs: list[int]) -> FinanciaError:
    """The error that the item gets if it fails alone; a batch of several is halved and run again instead.

    ``DoesNotFit`` says that memory ran out, whatever the number of items. A FinanciaError is returned unchanged.

    Args:
        costs: of the items that ran together, in tokens or pixels.

    Raises: DeviceLost when the device's context is dead: no batch can ever succeed in this process.
    """
    fault = classify(error)  # also of a FinanciaError: it may have been raised from a dead context
    if fault.kind is FaultKind.CONTEXT_LOST:
        raise _device_lost(fault) from error
    out_of_memory = fault.kind is FaultKind.OUT_OF_MEMORY
    if isinstance(error, FinanciaError) and (not out_of_memory or isinstance(error, DoesNotFit)):
        return error
    failure = _does_not_fit(fault, costs) if out_of_memory else _inference_failed(error)
    failure.__cause__ = error
    return failure


def device_lost(error: Exception) -> DeviceLost | None:
    """The error, or what it means where it comes from a dead context; None for any other."""
    if isinstance(error, DeviceLost):
        return error
    fault = classify(error)
    if fault.kind is not FaultKind.CONTEXT_LOST:
        return None
    lost = _device_lost(fault)
    lost.__cause__ = error
    return lost


def _device_lost(fault: Fault) -> DeviceLost:
    return DeviceLost(f"the device's context is dead: {fault.message}; the process ends to be restarted")


def _does_not_fit(fault: Fault, costs: list[int]) -> InferenceFailed:
    return DoesNotFit(
        f"an input of {max(costs)} tokens does not fit the device's memory ({fault.message}); send it in parts, "
        "raise GPU_MEMORY_FRACTION, or free the device of its other users"
    )


def _inference_failed(error: Exception) -> InferenceFailed:
    return InferenceFailed(f"the model failed on this input ({type(error).__name__})")
