"""One queued input of an engine, and the callers that wait for its result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from backend.errors import DeadlineExceeded
from backend.lanes.engine import Engine
from backend.tracing.context import SpanContext
from backend.tracing.spans import Span

# For whom a task works, entered with `count_started`: owners take turns on the lanes. Unset: all are one.
owner_of_work: ContextVar[str] = ContextVar("owner_of_work", default="")


class Priority(IntEnum):
    """Scheduling class; the smaller number goes first."""

    INTERACTIVE = 0
    BULK = 1


@dataclass(slots=True, eq=False)
class WorkItem:
    """A text or a page that waits for a lane or runs on one.

    ``future`` always ends: with the engine's result, or with a FinanciaError. A single caller awaits it directly;
    callers that share an item await ``asyncio.shield(item.future)`` and call ``abandon`` when they leave.
    """

    engine: Engine
    payload: Any  # what engine.prepare takes
    cost: int  # tokens (or pixels), unpadded; counted by the service
    priority: Priority
    deadline_s: float  # monotonic; math.inf for none
    enqueued_s: float  # monotonic; set by the batcher
    future: asyncio.Future[Any]
    owner: str = ""  # as ``owner_of_work`` was
    turn: int = 0  # where it stands among the items of all owners; set by the queue, in cost
    waiters: int = 1  # callers that still want the result; changed on the event loop only
    started_s: float = 0.0  # monotonic; when a lane took it
    finished_s: float = 0.0  # monotonic; when its batch ended
    lane_s: float = 0.0  # its part of the time that its batch kept the lane, by cost
    work_s: float = 0.0  # its part of the time that the lane's thread was on a core
    tell_begun: Callable[[int], None] | None = None  # called with the cost of one that began before it was cancelled,
    # where that is known later: in another process
    span: Span | None = None  # that its caller works for, where that is recorded
    batch_span: SpanContext | None = None  # of the batch that it ran in, where a span of it was recorded

    def join(self) -> bool:
        """Add a waiter; False when the item has already ended or was abandoned."""
        if not self.waiters or self.future.done():
            return False
        self.waiters += 1
        return True

    def abandon(self) -> None:
        """Remove a waiter. Without waiters the item is cancelled, and dropped if it is still queued."""
        self.waiters = max(0, self.waiters - 1)
        if not self.waiters:
            self.future.cancel()

    def is_wanted(self, now_s: float) -> bool:
        """Whether a caller still waits and the deadline has not passed. Safe on any thread."""
        return self.waiters > 0 and now_s < self.deadline_s and not self.future.done()

    def deadline_error(self) -> DeadlineExceeded:
        """The error for its callers once the deadline has passed."""
        return DeadlineExceeded(round(self.deadline_s - self.enqueued_s, 3))

    @property
    def queue_s(self) -> float:
        """Seconds it waited for a lane."""
        return self.started_s - self.enqueued_s

    @property
    def inference_s(self) -> float:
        """Seconds from a lane taking it to its result."""
        return self.finished_s - self.started_s
