"""Admits work items, gives batches of them to lanes, and resolves their futures on the event loop.

Thread safety: the work queue is guarded by one lock; futures and the set of unresolved items belong to the loop's
thread. A lane reports to the loop once a batch, by ``call_soon_threadsafe``.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from backend.errors import CallerGone, DeviceLost, DoesNotFit, FinanciaError, Overloaded, TooLarge, Unavailable
from backend.lanes.engine import Engine, unlimited_count
from backend.lanes.lane import Batch, BatchResult, Clock, Lane
from backend.lanes.work_queue import (
    BULK_DIVISOR,
    Admission,
    Priority,
    QueueLimits,
    Throughput,
    WorkItem,
    WorkQueue,
    admit,
    admit_single,
    owner_of_work,
    retry_after_s,
    waits_too_long,
)
from backend.telemetry import Telemetry, log_event
from backend.tracing.spans import LINKS_MAX, record, sampled

logger = logging.getLogger(__name__)

LANE_EXIT_S = 1.0  # a lane that has not left by then hangs in its engine; its thread is a daemon


@dataclass(frozen=True, slots=True)
class BatcherStatus:
    """A snapshot of queue and lanes. Field names are keys of GET /v1/system."""

    lanes: int
    lanes_alive: int
    busy: int  # lanes with a batch
    queued_jobs: int
    queued_tokens: int
    oldest_s: float  # age of the oldest queued item
    running_s: float  # age of the oldest batch on a lane; grows when an engine hangs
    last_batch_age_s: float | None  # since a batch last gave a result; None before the first
    rate_tokens_per_s: float  # all lanes together; 0 before the first batch
    device_fault: str = ""  # why a device is lost for good; the process is about to end


def count_batch(telemetry: Telemetry, result: BatchResult, *, tokens: int, failed: int) -> None:
    """Count one batch. ``tokens``: unpadded ones of all its items; ``failed``: items that got an error."""
    costs, engine = result.batch.costs, result.batch.engine.name
    padded = max(1, max(costs) * len(costs))
    telemetry.batch_jobs.observe(len(costs))
    telemetry.batch_tokens.observe(tokens)
    telemetry.engine_tokens_total.labels(engine).inc(tokens)
    telemetry.batch_padding_ratio.observe(1 - tokens / padded)
    telemetry.batch_duration_seconds.labels(engine).observe(result.busy_s)
    if result.split:
        telemetry.batch_failures_total.inc()
    if failed:
        telemetry.jobs_failed_total.inc(failed)
    if result.batch.oom_count:
        refused = sum(isinstance(value, DoesNotFit) for value in result.values)
        telemetry.oom_recoveries_total.labels(engine, "split").inc(result.batch.oom_count - refused)
        telemetry.oom_recoveries_total.labels(engine, "refused").inc(refused)


def show_gauges(telemetry: Telemetry, status: Callable[[], BatcherStatus]) -> None:
    """Have every scrape read the status at that moment."""
    telemetry.queue_jobs.set_function(lambda: status().queued_jobs)
    telemetry.queue_tokens.set_function(lambda: status().queued_tokens)
    telemetry.queue_oldest_seconds.set_function(lambda: status().oldest_s)
    telemetry.lanes.set_function(lambda: status().lanes_alive)
    telemetry.lanes_busy.set_function(lambda: status().busy)


class _DeadlineTimer:
    """One timer on the event loop, for the earliest deadline of all unresolved items."""

    def __init__(self, clock: Clock, callback: Callable[[], None]) -> None:
        self.at_s = math.inf  # monotonic; inf while it is not set
        self._clock, self._callback = clock, callback
        self._loop: asyncio.AbstractEventLoop | None = None
        self._handle: asyncio.TimerHandle | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run on ``loop`` from now on."""
        self._loop = loop

    def set(self, at_s: float) -> None:
        """Call back at ``at_s`` instead of the time set before; inf for never."""
        if self._handle is not None:
            self._handle.cancel()
        self._handle, self.at_s = None, at_s
        if self._loop is not None and at_s < math.inf:
            self._handle = self._loop.call_later(max(0.0, at_s - self._clock()), self._callback)


class Batcher:
    """One work queue and one set of lanes for all engines.

    ``status`` is safe on any thread; ``take``, ``take_now``, ``report`` and ``lane_died`` are for the lanes' threads;
    everything else belongs to the loop's thread. Every future from ``submit`` is resolved: by its lane, by its
    deadline, by ``stop``, or because all lanes are down.
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
        """``lanes``: per device; all ``devices`` pull from the one queue. ``niceness``: of the lanes' threads."""
        self._limits, self._telemetry, self._clock = limits, telemetry, clock
        options: dict[str, Any] = {"depth": depth, "clock": clock, "niceness": niceness}
        self._lanes = [Lane(index, self, device_index=index % devices, **options) for index in range(lanes * devices)]
        self._loop: asyncio.AbstractEventLoop | None = None
        self._refusal: str | None = "the lanes have not started yet"
        self._refuse_with = Unavailable
        self._device_lost = asyncio.Event()
        self._device_fault = ""  # why a device is lost; written once, by the lane that found out

        self._lock = threading.Lock()  # guards the next five; entered by itself, a condition takes three times as long
        self._changed = threading.Condition(self._lock)
        self._queue = WorkQueue(limits.ageing_s)
        self._idle_lanes = 0
        self._stopped = False
        self._throughput = Throughput()
        self._last_batch_s: float | None = None

        self._unresolved: set[WorkItem] = set()  # every item whose future ``_resolve`` has not ended; the loop's
        self._all_resolved = asyncio.Event()
        self._timer = _DeadlineTimer(clock, self.expire)

    @property
    def limit_tokens(self) -> int:
        """LIMIT_QUEUE_TOKENS: more of them are never admitted together."""
        return self._limits.queue_tokens

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the lanes; futures are resolved on ``loop``."""
        self._loop = loop
        self._refusal = None
        self._timer.start(loop)
        for lane in self._lanes:
            lane.start()

    @property
    def bulk_tokens(self) -> int:
        """How many tokens bulk work should submit at once, so that it fits beside what already waits."""
        return max(1, self._limits.queue_tokens // BULK_DIVISOR)

    async def device_lost(self) -> str:
        """Wait until a device is lost for good, and return why: only a new process can use it again."""
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
        futures: Sequence[asyncio.Future[Any]] = (),
        owner: str | None = None,
    ) -> list[WorkItem]:
        """Queue one work item per payload, all of them or none, and return at once.

        Args:
            futures: of the caller's, one a payload; made here by default.
            owner: for whom it works; by default as ``owner_of_work`` says.

        Raises: Unavailable when not started, draining or without a lane; TooLarge when several items alone are over
        the queue's limit; Overloaded when the queue or its owner's share is full now, or what goes first takes longer
        than an interactive item may wait.
        """
        loop = self._check_open()
        if not payloads:
            return []
        futures = futures or [loop.create_future() for _ in payloads]
        owner = owner_of_work.get() if owner is None else owner
        tokens, now_s = sum(costs), self._clock()
        self._admit(len(payloads), tokens, owner)
        if priority is Priority.INTERACTIVE:
            ahead = self._queue.tokens_before(owner, tokens)  # whole numbers without the lock; so is the throughput
            self._check_wait(len(payloads), deadline_s - now_s, ahead)
        span = sampled()
        items = [
            WorkItem(engine, payload, cost, priority, deadline_s, now_s, future, owner, span=span)
            for payload, cost, future in zip(payloads, costs, futures, strict=True)
        ]
        self._unresolved.update(items)
        self._all_resolved.clear()
        if deadline_s < self._timer.at_s:
            self._timer.set(deadline_s)
        with self._lock:
            self._queue.add(items, tokens)
            if self._idle_lanes:
                self._changed.notify(len(items))
        return items

    def promote(self, items: Sequence[WorkItem], priority: Priority) -> None:
        """Raise queued items to the priority of a caller that has joined them."""
        if later := [item for item in items if priority < item.priority]:
            with self._changed:
                self._queue.promote(later, priority)

    async def drain(self, timeout_s: float) -> bool:
        """Refuse new items, finish the accepted ones, then stop. False when some had to be failed."""
        self._refusal = "the service is shutting down"
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._wait_resolved()
        unfinished = len(self._unresolved)
        self.stop()
        await asyncio.to_thread(self._join_lanes)
        return not unfinished

    def stop(self) -> None:
        """Fail what is left with Unavailable and end the lanes. Waits for nothing; may be called again."""
        self._refusal = "the service is shutting down"
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._timer.set(math.inf)
        self._fail_all()

    def expire(self) -> None:
        """Fail the items whose deadline has passed, queued or running: also those on a lane that hangs."""
        now_s = self._clock()
        late = [item for item in self._unresolved if item.deadline_s <= now_s]
        self._resolve(late, [item.deadline_error() for item in late], now_s)
        self._timer.set(min((item.deadline_s for item in self._unresolved), default=math.inf))

    def status(self) -> BatcherStatus:
        """A snapshot of queue and lanes."""
        now_s = self._clock()
        since = [since_s for lane in self._lanes if (since_s := lane.busy_since_s) is not None]
        alive = sum(lane.alive for lane in self._lanes)
        with self._changed:
            return BatcherStatus(
                lanes=len(self._lanes),
                lanes_alive=alive,
                busy=len(since),
                queued_jobs=self._queue.items,
                queued_tokens=self._queue.tokens,
                oldest_s=self._queue.oldest_s(now_s),
                running_s=now_s - min(since, default=now_s),
                last_batch_age_s=None if self._last_batch_s is None else now_s - self._last_batch_s,
                rate_tokens_per_s=self._throughput.per_s * alive,
                device_fault=self._device_fault,
            )

    # lane.BatchSource, called on the lanes' threads. Decide under the lock, act outside it.

    def take(self, device_index: int) -> Batch | None:
        """Wait for a batch; None means stop."""
        while self._wait_for_items():
            if (batch := self._take_batch(device_index)) is not None:
                return batch
        return None

    def take_now(self, device_index: int) -> Batch | None:
        """A batch if one is queued, without waiting for it."""
        return self._take_batch(device_index)

    def report(self, result: BatchResult) -> None:
        """Count a batch, then resolve its futures on the loop: a caller with a result finds it in the metrics."""
        items = result.batch.items
        tokens = sum([item.cost for item in items])
        failed = sum([isinstance(value, FinanciaError) for value in result.values])
        busy_s, work_s = result.busy_s / max(1, tokens), result.batch.work_s / max(1, tokens)
        for item in items:
            item.lane_s, item.work_s = item.cost * busy_s, item.cost * work_s
        count_batch(self._telemetry, result, tokens=tokens, failed=failed)
        trace_batch(result, tokens=tokens, failed=failed)
        if failed < len(items):
            with self._changed:
                self._throughput = self._throughput.after(tokens, result.busy_s)
                self._last_batch_s = result.finished_s
        self._on_loop(self._resolve, items, result.values, result.finished_s)

    def lane_died(self, lane: Lane, items: Sequence[WorkItem], error: BaseException) -> None:
        """Fail the items of a dead lane; with the last lane, or with a device lost for good, all items."""
        if lane.alive:
            self._telemetry.lane_restarts_total.inc()
        self._telemetry.jobs_failed_total.inc(len(items))
        with self._changed:
            self._changed.notify_all()  # what it left in the queue was told to this lane alone
        if isinstance(error, DeviceLost):
            self._lose_device(str(error))
            return
        errors = [Unavailable("the lane that ran this input died; try again", kind="lane_died") for _ in items]
        self._on_loop(self._resolve, items, errors, self._clock())
        if not any(other.alive for other in self._lanes):
            log_event(logger, logging.CRITICAL, "no lane is left", lanes=len(self._lanes))
            self._on_loop(self._close, "no lane is alive; see the log and restart the service")

    def _lose_device(self, fault: str) -> None:
        log_event(logger, logging.CRITICAL, "device lost", fault=fault)
        self._device_fault = self._device_fault or fault
        self._telemetry.device_lost.set(1)
        self._on_loop(self._close, fault, DeviceLost)
        self._on_loop(self._device_lost.set)

    def _wait_for_items(self) -> bool:
        with self._changed:
            while not self._stopped:
                if self._queue.items:
                    return True
                self._idle_lanes += 1
                self._changed.wait()
                self._idle_lanes -= 1
        return False

    def _take_batch(self, device_index: int) -> Batch | None:
        with self._changed:
            turn = self._queue.next_turn(self._clock())
        # What fits is read from the driver, which may hang: not under the lock that the loop takes to add items.
        capacity = unlimited_count if turn is None else turn.engine.on(device_index).batch_limits.capacity()
        with self._changed:
            dequeued = self._queue.take(turn, capacity, self._clock(), self._idle_lanes, device_index)
        now_s = self._clock()
        if dequeued.dropped:
            self._drop(dequeued.dropped, now_s)
        if not dequeued.items:
            return None
        for item in dequeued.items:
            item.started_s = now_s
        return Batch(dequeued.items[0].engine.on(device_index), dequeued.items)

    def _drop(self, items: Sequence[WorkItem], now_s: float) -> None:
        late = {item for item in items if item.deadline_s <= now_s}
        self._telemetry.jobs_dropped_total.labels("deadline").inc(len(late))
        self._telemetry.jobs_dropped_total.labels("caller_gone").inc(len(items) - len(late))
        values = [
            item.deadline_error() if item in late else CallerGone("nobody waits for this answer any more")
            for item in items
        ]
        self._on_loop(self._resolve, items, values, now_s)

    def _on_loop(self, act: Callable[..., None], *arguments: Any) -> None:
        with suppress(RuntimeError):  # the loop has closed: no caller is left
            if self._loop is not None:
                self._loop.call_soon_threadsafe(act, *arguments)

    # On the loop's thread.

    def _resolve(self, items: Sequence[WorkItem], values: Sequence[Any], finished_s: float) -> None:
        """Resolve each item with its value unless it has ended already; the only place that resolves one."""
        for item, value in zip(items, values, strict=True):
            item.finished_s = finished_s
            if item.future.done():
                continue
            if isinstance(value, FinanciaError):
                item.future.set_exception(value)
                item.future.exception()  # marks it as retrieved: asyncio logs errors that no caller retrieves
            else:
                item.future.set_result(value)
        self._unresolved.difference_update(items)
        if not self._unresolved:
            self._all_resolved.set()

    def _check_open(self) -> asyncio.AbstractEventLoop:
        if self._refusal is not None or self._loop is None:
            raise self._refuse_with(f"not accepting work: {self._refusal}", kind="for_good")
        return self._loop

    def _admit(self, items: int, tokens: int, owner: str) -> None:
        queued, limit = self._queue.tokens, self._limits.queue_tokens  # only the loop adds: free capacity can only grow
        own = self._queue.tokens_of(owner) if owner else None
        admission = (admit_single if items == 1 else admit)(queued, tokens, limit, own)
        if admission is Admission.NEVER:
            raise TooLarge(
                "tokens of the request", tokens, limit, "LIMIT_QUEUE_TOKENS", advice="Send fewer inputs in one request."
            )
        if admission is Admission.FULL:
            self._telemetry.jobs_shed_total.inc(items)
            raise Overloaded(queued, limit, retry_after_s(queued, self.status().rate_tokens_per_s))

    def _check_wait(self, items: int, left_s: float, queued: int) -> None:
        if not queued:
            return
        rate_per_s = self._throughput.settled_per_s * sum([lane.alive for lane in self._lanes])
        if waits_too_long(queued, rate_per_s, left_s):
            self._telemetry.jobs_shed_total.inc(items)
            wait_s, again_s = queued / rate_per_s, retry_after_s(queued, rate_per_s)
            raise Overloaded.too_late(queued, wait_s=wait_s, left_s=left_s, again_s=again_s)

    def _close(self, refusal: str, refuse_with: type[Unavailable] = Unavailable) -> None:
        self._refusal, self._refuse_with = refusal, refuse_with
        self._fail_all()

    def _fail_all(self) -> None:
        with self._changed:
            self._queue.clear()
        if self._loop is None or self._loop.is_closed():
            self._unresolved.clear()  # futures of a closed loop cannot end, and nobody can wait for them
            return
        errors = [self._refuse_with(f"not answered: {self._refusal}", kind="for_good") for _ in self._unresolved]
        self._resolve(list(self._unresolved), errors, self._clock())

    async def _wait_resolved(self) -> None:
        if self._unresolved:
            await self._all_resolved.wait()

    def _join_lanes(self) -> None:
        for lane in self._lanes:
            lane.join(LANE_EXIT_S / len(self._lanes))


def trace_batch(result: BatchResult, *, tokens: int, failed: int) -> None:
    """Record the batch and its stages, where a request in it is sampled. Runs on the lane.

    The batch belongs to the trace of its first sampled item, and links to the spans of the others; each item learns
    the batch's identity, so that its own trace can link to it.
    """
    batch = result.batch
    recorded = [item.span for item in batch.items if item.span is not None]
    if not recorded:
        return
    spans = {span.context: span for span in recorded}
    first, *others = spans.values()
    span = first.child("batch", started_s=batch.items[0].started_s)
    span.links = [other.context for other in others[:LINKS_MAX]]
    costs = batch.costs
    span.attributes |= {
        "financia.engine": batch.engine.name,
        "financia.batch.items": len(costs),
        "financia.batch.requests": len(spans),  # sampled ones
        "financia.batch.tokens": tokens,
        "financia.batch.padding_ratio": round(1 - tokens / max(1, max(costs) * len(costs)), 4),
    }
    if failed or result.split:
        span.attributes |= {"financia.batch.failed_items": failed, "financia.batch.split": result.split}
    for name, started_s, ended_s in (
        ("prepare", span.started_s, batch.prepared_s),
        ("forward", batch.prepared_s, batch.launched_s),
        ("finish", batch.awaited_s, result.finished_s),
    ):
        if 0 < started_s <= ended_s:
            span.child(name, started_s=started_s).end(ended_s)
    span.end(result.finished_s)
    for item in batch.items:
        item.batch_span = span.context


def record_items(items: Sequence[WorkItem]) -> None:
    """The time of one request's items in the queue and in batches, as Server-Timing has it, with links to the batches.

    Items that joined those of another request may have begun before this one did.
    """
    ran = [item for item in items if item.finished_s]
    if not ran:
        return
    enqueued_s, started_s = min(item.enqueued_s for item in ran), max(item.started_s for item in ran)
    attributes = {"financia.inputs": len(ran), "financia.tokens": sum(item.cost for item in ran)}
    batches = list({item.batch_span: None for item in ran if item.batch_span is not None})
    record("queue", enqueued_s, started_s, attributes)
    first_s, last_s = min(item.started_s for item in ran), max(item.finished_s for item in ran)
    record("inference", first_s, last_s, attributes, batches)
