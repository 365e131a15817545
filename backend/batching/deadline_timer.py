"""One timer on the loop, at the earliest deadline of all jobs."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable


class Alarm:
    """Rings once, at the time last set. Belongs to the loop's thread."""

    def __init__(self, clock: Callable[[], float], ring: Callable[[], None]) -> None:
        self.at_s = math.inf  # monotonic; inf while it is not set
        self._clock, self._ring = clock, ring
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Ring on ``loop`` from now on."""
        self._loop = loop

    def set(self, at_s: float) -> None:
        """Ring at ``at_s`` and at no other time; inf for never."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self.at_s = None, at_s
        if self._loop is not None and at_s < math.inf:
            self._timer = self._loop.call_later(max(0.0, at_s - self._clock()), self._ring)
