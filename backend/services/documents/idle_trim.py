"""Work for when nothing else is to be done: giving memory back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Rest:
    """Does something once nobody has been busy for a while. Belongs to the loop.

    Args:
        act: runs on a thread, once for each time of rest; asyncio logs what it raises.
        after_s: how long nobody must have been busy.
    """

    def __init__(self, act: Callable[[], None], after_s: float) -> None:
        self._act, self._after_s = act, after_s
        self._busy = 0
        self._alarm: asyncio.TimerHandle | None = None

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Somebody is, for as long as this is entered; any number may be."""
        self._busy += 1
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        try:
            yield
        finally:
            self._busy -= 1
            if not self._busy:
                loop = asyncio.get_running_loop()
                self._alarm = loop.call_later(self._after_s, loop.run_in_executor, None, self._act)
