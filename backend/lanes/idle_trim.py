"""Returns freed memory to the system after work that took much of it: pages, long texts, learning, large uploads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

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
        self._trim = trim
        self._releases: list[tuple[float, Callable[[], None]]] = []  # with the seconds at rest before each
        self._after_s = after_s
        self._busy_callers = 0
        self._timers: list[asyncio.TimerHandle] = []

    def add(self, release: Callable[[], None], after_s: float | None = None) -> None:
        """Call ``release`` too, before the memory that it frees is returned.

        Args:
            after_s: at rest, where that is longer than for the rest; what is costly to get again is kept longer.
        """
        self._releases.insert(0, (max(self._after_s, after_s or 0.0), release))

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Marks the caller as busy while the block runs. Reentrant."""
        self._busy_callers += 1
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        try:
            yield
        finally:
            self._busy_callers -= 1
            if not self._busy_callers:
                loop = asyncio.get_running_loop()
                delays = sorted({self._after_s, *(after_s for after_s, _ in self._releases)})
                self._timers = [loop.call_later(after_s, self._start, after_s) for after_s in delays]

    async def now(self) -> None:
        """Release and trim at once, where nobody is busy; else trim alone."""
        releases = [] if self._busy_callers else [release for _, release in self._releases]
        await asyncio.to_thread(lambda: [give() for give in (*releases, self._trim)])

    def _start(self, after_s: float) -> None:
        if self._supervisor is None:
            asyncio.get_running_loop().run_in_executor(None, self._run, after_s)
        else:
            self._supervisor.run("trim_memory", partial(asyncio.to_thread, self._run, after_s))

    def _run(self, after_s: float) -> None:
        for rest_s, release in self._releases:
            if rest_s == after_s:
                release()
        self._trim()
