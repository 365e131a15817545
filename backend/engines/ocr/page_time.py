"""What a page may cost: its work is limited, and its time on the clock only as a protection against hangs.

On a busy machine a page lane gets a part of a core. A limit on the clock would refuse good pages there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from backend.errors import TooLarge, Unavailable

WALL_RATIO = 3.0  # seconds on the clock for each second of work that is allowed
_SLACK = 1.25  # an engine that only knows the clock is stopped a little late: what it did is then over the limit
_MEASURABLE_S = 0.1  # shorter pages tell nothing about the lane's share of a core

Clock = Callable[[], float]


def too_long(spent_s: float, limit_s: float, advice: str) -> TooLarge:
    """The error for a page that costs more work than its limit."""
    what = "file: seconds of OCR for a page"
    return TooLarge(what, round(spent_s, 1), limit_s, "LIMIT_PAGE_S", advice=advice, param="file")


def too_slow(waited_s: float, worked_s: float, limit_s: float) -> Unavailable:
    """The error for a page that did not get enough of a core: the same page may be read later, or elsewhere."""
    return Unavailable(
        f"a page was given up after {waited_s:.1f} s with {worked_s:.1f} s of OCR, within its limit of {limit_s:g} s "
        "of work (LIMIT_PAGE_S): this machine is too busy; try again, or send the file to /v1/jobs",
        kind="starved",
    )


@dataclass(slots=True)
class PageTime:
    """The work and the time of one page. Used on the thread that runs it.

    Args:
        share: of a core that this lane gets, as its last page showed; 1/3 where nothing is known.
    """

    limit_s: float  # of work
    work_clock: Clock
    clock: Clock
    share: float
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

    def timeout_s(self) -> float:
        """Seconds on the clock in which the rest of the work should be done. Raises: TimeoutError when none is left."""
        left_s = self.limit_s - self.worked_s
        wall_left_s = WALL_RATIO * self.limit_s - self.waited_s
        if left_s <= 0 or wall_left_s <= 0:
            raise TimeoutError
        return min(wall_left_s, _SLACK * left_s / self.share)

    def error(self, advice: str) -> TooLarge | Unavailable:
        """Why a page was given up: for its work, which is its own fault, or for waiting."""
        worked_s = self.worked_s
        if worked_s >= self.limit_s:
            return too_long(worked_s, self.limit_s, advice)
        return too_slow(self.waited_s, worked_s, self.limit_s)


@dataclass(slots=True)
class LaneShares:
    """The share of a core that each lane's thread got for its last page."""

    clock: Clock = time.monotonic
    local: threading.local = field(default_factory=threading.local, repr=False)

    def begin(self, limit_s: float, work_clock: Clock) -> PageTime:
        """Start the time of a page on this thread."""
        return PageTime(limit_s, work_clock, self.clock, getattr(self.local, "share", 1 / WALL_RATIO))

    def end(self, page: PageTime) -> None:
        """Remember the share of a page that has ended on this thread."""
        if (waited_s := page.waited_s) >= _MEASURABLE_S:
            self.local.share = min(1.0, max(1 / WALL_RATIO, page.worked_s / waited_s))
