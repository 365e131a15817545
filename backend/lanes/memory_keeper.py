"""Keeps the process within MEMORY_LIMIT_BYTES: gives back what can be had again, step by step, then refuses bodies.

Allocators and networks keep what a burst of mixed work needed, and nothing in the process counts it all. So the keeper
looks at what the kernel counts. `IdleTrim` gives freed pages back after work that took much.
"""

from __future__ import annotations

import asyncio
import ctypes
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import psutil

from backend.device.facts.host import resident_bytes
from backend.device.memory.device_memory import trim_heap
from backend.errors import Overloaded
from backend.supervision import Supervisor

LOOK_S = 1.0  # between two looks: a burst takes seconds to fill memory
_FULL_RATIO = 0.9  # of the limit, from which memory is given back
_PAUSE_S = 15.0  # after all steps, which cost others their caches and models
_AGAIN_S = 5.0  # Retry-After

Step = Callable[[], Awaitable[None]]
TRIM_AFTER_S = 10.0  # without such work; getting the memory again costs RapidOCR 0.15 s (measured)


class MemoryKeeper:
    """Looks at the memory of the process. Belongs to the loop's thread.

    Args:
        limit_bytes: MEMORY_LIMIT_BYTES, or the container's share; None: nothing is given back before its time, and
            nothing refused.
        steps: what gives memory back, by name, in the order in which they are tried.
        parts: the bytes of what is known to hold memory, by name, for the report.
        resident: the bytes of the process that are in memory.
    """

    def __init__(
        self,
        limit_bytes: int | None,
        steps: Mapping[str, Step],
        parts: Mapping[str, Callable[[], int]],
        *,
        resident: Callable[[], int] = resident_bytes,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit_bytes, self._steps, self._parts = limit_bytes, steps, parts
        self._resident, self._clock = resident, clock
        self._taken: Counter[str] = Counter()
        self._next_s = clock()
        self._task: asyncio.Task[None] | None = None
        self.full_bytes = 0  # what was resident, while it is too much

    def start(self, supervisor: Supervisor) -> None:
        """Look again and again, where there is a limit."""
        if self._limit_bytes is not None:
            self._task = supervisor.keep("keep_memory", self._keep)

    def stop(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()

    async def _keep(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Take one step after the other while too much is resident; where all did not help, refuse and pause."""
        limit_bytes = self._limit_bytes or sys.maxsize
        if self._clock() >= self._next_s:
            for name, step in self._steps.items():
                if self._resident() <= _FULL_RATIO * limit_bytes:
                    break
                self._taken[name] += 1
                await step()
            else:
                self._next_s = self._clock() + _PAUSE_S
        resident = self._resident()
        self.full_bytes = resident if resident > limit_bytes else 0

    def require_room(self) -> None:
        """Raises: Overloaded while more is resident than MEMORY_LIMIT_BYTES, whatever was given back."""
        if self.full_bytes:
            raise Overloaded(
                self.full_bytes,
                self._limit_bytes or 0,
                _AGAIN_S,
                f"memory: {self.full_bytes} bytes of the service are resident, over the limit of "
                f"{self._limit_bytes} (MEMORY_LIMIT_BYTES); try again in {_AGAIN_S:.0f} s, or raise the limit",
            )

    def report(self) -> dict[str, Any]:
        """What is resident and who holds it, for GET /v1/system.

        ``models_and_others`` is what else is allocated; ``freed_or_unknown`` what the C library keeps of freed memory,
        and what libraries map without it.
        """
        resident, held = self._resident(), {name: count() for name, count in self._parts.items()}
        others = max(0, allocated_bytes() - sum(held.values()))
        mapped = mapped_bytes()
        parts = {**held, "models_and_others": others, "mapped_files": mapped}
        return {
            "resident_bytes": resident,
            "limit_bytes": self._limit_bytes,
            "parts": {**parts, "freed_or_unknown": max(0, resident - sum(parts.values()))},
            "steps": {name: self._taken[name] for name in self._steps},
        }


_MALLINFO = ["arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"]


class _MallInfo(ctypes.Structure):
    """glibc's struct mallinfo2."""

    _fields_ = [(name, ctypes.c_size_t) for name in _MALLINFO]


def allocated_bytes() -> int:
    """What the C library has given out; 0 where it does not tell (glibc before 2.33, musl, macOS)."""
    if sys.platform != "linux" or (mallinfo := getattr(ctypes.CDLL(None), "mallinfo2", None)) is None:
        return 0
    mallinfo.restype = _MallInfo
    found = mallinfo()
    return int(found.uordblks + found.hblkhd)


def mapped_bytes() -> int:
    """The pages of files that are in memory: weights and libraries, which the kernel may drop and read again."""
    return int(getattr(psutil.Process().memory_info(), "shared", 0))


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
