"""Returns freed memory to the system after no page has been recognised for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class IdleTrim:
    """Calls ``trim`` once after ``after_s`` seconds without a busy caller. Used on the event loop only.

    Args:
        trim: runs on a thread; asyncio logs what it raises.
    """

    def __init__(self, trim: Callable[[], None], after_s: float) -> None:
        self._trim, self._after_s = trim, after_s
        self._busy_callers = 0
        self._timer: asyncio.TimerHandle | None = None

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Marks the caller as busy while the block runs. Reentrant."""
        self._busy_callers += 1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        try:
            yield
        finally:
            self._busy_callers -= 1
            if not self._busy_callers:
                loop = asyncio.get_running_loop()
                self._timer = loop.call_later(self._after_s, loop.run_in_executor, None, self._trim)
