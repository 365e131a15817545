"""Whether work of many pieces can be done before its deadline, behind what others still have."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from backend.errors import Overloaded
from backend.lanes.work_queue import Priority, Throughput, owner_of_work, retry_after_s

# Of the time left. What is admitted takes turns piece by piece, so one that comes later delays those before it, and
# pieces differ.
_SAFE_RATIO = 2 / 3


class Backlog:
    """What admitted requests still have to be done, in one unit, and the speed of the lanes. Event loop only.

    The queue of the lanes cannot tell: a request puts a few of its pieces there at a time. Background work is not
    counted, as its pieces let others go first.

    Args:
        lanes: how many of them work now.
        of: the unit, of other requests, for the refusal: "pages of other documents".
        ignored: so much ahead refuses nobody.
        parts: of a unit that are told apart when the speed is measured.
    """

    def __init__(
        self,
        lanes: Callable[[], int],
        *,
        of: str,
        ignored: float = 0.0,
        parts: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._left: dict[str, float] = {}  # by owner
        self._lanes, self._clock = lanes, clock
        self._of, self._ignored, self._parts = of, ignored, parts
        self._speed = Throughput()

    @property
    def left(self) -> float:
        return sum(self._left.values())

    @property
    def measurements(self) -> int:
        return self._speed.batches

    @property
    def rate(self) -> float:
        """Units a second on all lanes; 0 while too little was measured."""
        return self._speed.settled_per_s / self._parts * self._lanes()

    def measured(self, amount: float, lane_s: float) -> None:
        """Count what was done on a lane in ``lane_s`` seconds; what took no lane tells no speed."""
        if lane_s > 0:
            self._speed = self._speed.after(round(self._parts * amount), lane_s)

    def admit(self, amount: float, priority: Priority, deadline_s: float) -> Admitted:
        """Count a request until it is done or given up.

        Owners take turns on the lanes, so no other has more ahead of it than its own owner has with it.

        Raises: Overloaded when it and those ahead would not be done in time. Never for background work, behind nobody,
            or before a speed is known.
        """
        owner = owner_of_work.get()
        if priority is Priority.BULK:
            return Admitted(self, owner, 0.0)
        rate, left_s = self.rate, deadline_s - self._clock()
        own = self._left.get(owner, 0.0) + amount
        ahead = sum(min(left, own) for left in self._left.values())
        if ahead > self._ignored and rate > 0 and ahead + amount > rate * left_s * _SAFE_RATIO:
            count = round(ahead)
            again_s = retry_after_s(count, rate)
            raise Overloaded.too_late(count, of=self._of, wait_s=ahead / rate, left_s=left_s, again_s=again_s)
        self.count(owner, amount)
        return Admitted(self, owner, amount)

    def count(self, owner: str, amount: float) -> None:
        """Count what came, or what went."""
        self._left[owner] = self._left.get(owner, 0.0) + amount
        if self._left[owner] <= 0:
            del self._left[owner]


@dataclass(slots=True)
class Admitted:
    """The part of the backlog that one request has."""

    backlog: Backlog
    owner: str
    left: float

    def done(self, amount: float) -> None:
        """So much of it has ended, well or not."""
        self._count_out(min(amount, self.left))

    def close(self) -> None:
        """The request has ended; what it has left is given up. May be called again."""
        self._count_out(self.left)

    def _count_out(self, amount: float) -> None:
        self.left -= amount
        self.backlog.count(self.owner, -amount)
