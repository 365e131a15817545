"""What a page may cost: its work is limited, and its time on the clock only as a protection against hangs.

On a busy machine a page lane gets a part of a core. A limit on the clock would cut good pages short there.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from backend.reasons import because

WALL_RATIO = 10.0  # seconds on the clock for each second of work that is allowed
_SLACK = 1.25  # an engine that only knows the clock is stopped a little late: what it did is then over the limit
_MEASURABLE_S = 0.1  # shorter pages tell nothing about the lane's share of a core

Clock = Callable[[], float]


def time_is_over(limit_s: float) -> str:
    """What an answer says of a page that was not read to its end."""
    return because("page_time_over", limit_s=limit_s)


@dataclass(slots=True)
class PageBudget:
    """The work that a page may cost one engine. Shared by the lanes that recognise its parts at the same time."""

    limit_s: float
    spent_s: float = 0.0
    deadline_s: float = math.inf  # on the monotonic clock: nobody waits for the page any more
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    @property
    def left_s(self) -> float:
        return self.limit_s - self.spent_s

    def spend(self, worked_s: float) -> None:
        """Count work that was done. Any thread."""
        with self._lock:
            self.spent_s += worked_s


@dataclass(slots=True)
class PartTime:
    """The work and the time of one part of a page. Used on the thread that runs it.

    Args:
        usual_share: of a core that this lane gets, as its last part showed.
    """

    budget: PageBudget
    work_clock: Clock
    clock: Clock
    usual_share: float
    began_work_s: float = 0.0
    began_s: float = 0.0

    def __post_init__(self) -> None:
        self.began_work_s, self.began_s = self.work_clock(), self.clock()

    @property
    def worked_s(self) -> float:
        return self.work_clock() - self.began_work_s

    @property
    def waited_s(self) -> float:
        return self.clock() - self.began_s

    @property
    def share(self) -> float:
        """Of a core that the thread gets."""
        if (waited_s := self.waited_s) < _MEASURABLE_S:
            return self.usual_share
        return min(1.0, max(1 / WALL_RATIO, self.worked_s / waited_s))

    def timeout_s(self) -> float:
        """Seconds on the clock in which the rest of the work should be done; 0 when none is left."""
        left_s = self.budget.left_s - self.worked_s
        wall_left_s = min(WALL_RATIO * self.budget.limit_s - self.waited_s, self.budget.deadline_s - self.clock())
        return max(0.0, min(wall_left_s, _SLACK * left_s / self.share))


@dataclass(slots=True)
class LaneShares:
    """The share of a core that each lane's thread got last."""

    clock: Clock = time.monotonic
    local: threading.local = field(default_factory=threading.local, repr=False)

    def begin(self, budget: PageBudget, work_clock: Clock) -> PartTime:
        """Start the time of a part of a page on this thread. A new thread is thought to have a core."""
        return PartTime(budget, work_clock, self.clock, getattr(self.local, "share", 1.0))

    def end(self, part: PartTime) -> None:
        """Count the work of a part that has ended on this thread, and remember its share."""
        part.budget.spend(part.worked_s)
        self.local.share = part.share
