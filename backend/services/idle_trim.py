"""Returns freed memory to the system after work that took much of it: pages, long texts, learning, large uploads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from backend.device.memory.release import trim_heap
from backend.supervision import Supervisor

TRIM_AFTER_S = 10.0  # without such work; getting the memory again costs RapidOCR 0.15 s (measured)


class IdleTrim:
    """Calls ``trim`` once after ``after_s`` seconds without a busy caller. Used on the event loop only.

    One of them serves the whole process: what every kind of work has freed goes back once all have ended.

    Args:
        trim: runs on a thread. ``trim_heap``, not ``release``: a garbage collection would block the event loop.
        supervisor: logs and counts what ``trim`` raises; without one asyncio logs it.
    """

    def __init__(
        self,
        trim: Callable[[], None] = trim_heap,
        after_s: float = TRIM_AFTER_S,
        *,
        supervisor: Supervisor | None = None,
    ) -> None:
        self._supervisor = supervisor
        self._trims: list[Callable[[], None]] = [trim]
        self._after_s = after_s
        self._busy_callers = 0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, release: Callable[[], None]) -> None:
        """Call ``release`` too, before the memory that it frees is returned."""
        self._trims.insert(0, release)

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
                self._timer = asyncio.get_running_loop().call_later(self._after_s, self._start)

    def _start(self) -> None:
        if self._supervisor is None:
            asyncio.get_running_loop().run_in_executor(None, self._run)
        else:
            self._supervisor.run("trim_memory", asyncio.to_thread(self._run))

    def _run(self) -> None:
        for trim in self._trims:
            trim()
