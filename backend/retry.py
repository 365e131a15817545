"""Trying again what failed for now: how long to wait before, and calls to a store that is away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

from backend.errors import Unavailable

Result = TypeVar("Result")
_DOUBLINGS = 20  # beyond any limit, and no number that overflows


class Backoff(NamedTuple):
    """Twice as long after each failure in a row, up to a limit."""

    first_s: float
    most_s: float

    def wait_s(self, failures: int) -> float:
        """The wait after so many failures, from 1 on."""
        return min(self.first_s * 2.0 ** min(failures - 1, _DOUBLINGS), self.most_s)


class StoreRetry:
    """Repeats calls to a store that is away until it answers or this process stops.

    What a job or a file took is then not lost to a fault that passes.

    Args:
        tries: after so many the fault is raised; None: never.
    """

    def __init__(self, backoff: Backoff = Backoff(0.5, 10.0), tries: int | None = None) -> None:  # noqa: B008 - frozen
        self._backoff, self._tries = backoff, tries
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """The process ends: fail at the next fault instead of waiting."""
        self._stopping.set()

    async def call(self, request: Callable[[], Awaitable[Result]]) -> Result:
        """The answer to ``request``. Raises: Unavailable when `stop` comes first, or it fails for too long."""
        faults = 0
        while True:
            try:
                return await request()
            except Unavailable:
                faults += 1
                if faults == self._tries or await self.stops_within(self._backoff.wait_s(faults)):
                    raise

    async def stops_within(self, seconds: float) -> bool:
        """Wait so long, or until `stop` was called; whether it was."""
        try:
            async with asyncio.timeout(seconds):
                return await self._stopping.wait()
        except TimeoutError:
            return False
