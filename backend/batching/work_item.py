"""One unit waiting for a lane, and who waits for its answer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from backend.engines.engine import Engine
from backend.errors import DeadlineExceeded


class Priority(IntEnum):
    """Who goes first; the smaller number does."""

    INTERACTIVE = 0
    BULK = 1


@dataclass(slots=True, eq=False)
class Job:
    """A text or a page on its way through a lane.

    ``future`` always ends: with the engine's result, or with an error of our tree. One caller awaits it as it is;
    several callers of one job await ``asyncio.shield(job.future)`` and call ``abandon`` when they leave.
    """

    engine: Engine
    payload: Any  # what engine.prepare takes
    cost: int  # tokens (or pixels), unpadded; counted by the service
    priority: Priority
    deadline_s: float  # monotonic; math.inf for none
    enqueued_s: float  # monotonic; set by the batcher
    future: asyncio.Future[Any]
    waiters: int = 1  # callers that still want the answer; touched on the loop only
    started_s: float = 0.0  # monotonic; when a lane took it
    finished_s: float = 0.0  # monotonic; when its batch ended

    def join(self) -> bool:
        """Count one caller more; False when the job has already ended or been given up."""
        if not self.waiters or self.future.done():
            return False
        self.waiters += 1
        return True

    def abandon(self) -> None:
        """Count one caller less. Without any the job is given up: if it still waits, it never reaches the device."""
        self.waiters = max(0, self.waiters - 1)
        if not self.waiters:
            self.future.cancel()

    def is_wanted(self, now_s: float) -> bool:
        """Whether somebody still waits for the answer and it can still be in time. Safe on any thread."""
        return self.waiters > 0 and now_s < self.deadline_s and not self.future.done()

    def late(self) -> DeadlineExceeded:
        """The error for its callers once the deadline has passed."""
        return DeadlineExceeded(round(self.deadline_s - self.enqueued_s, 3))

    @property
    def queue_s(self) -> float:
        """Seconds it waited for a lane."""
        return self.started_s - self.enqueued_s

    @property
    def inference_s(self) -> float:
        """Seconds from being taken by a lane to its answer."""
        return self.finished_s - self.started_s
