"""How background work on a storage waits: for a storage that is away, and for more to do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from backend.errors import Unavailable

Result = TypeVar("Result")
_WAITS_S = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0, 10.0, 10.0)  # some minute; then the claim is given up


class StorageRetry:
    """Repeats calls to a storage that is away for about a minute, or until this process stops.

    What a file's reading took is then not lost to a fault that passes.
    """

    def __init__(self, waits_s: tuple[float, ...] = _WAITS_S) -> None:
        self._waits_s = waits_s
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """The process ends: fail at the next fault instead of waiting."""
        self._stopping.set()

    async def call(self, request: Callable[[], Awaitable[Result]]) -> Result:
        """The answer to ``request``. Raises: Unavailable when it fails for too long, or `stop` comes first."""
        for wait_s in self._waits_s:
            try:
                return await request()
            except Unavailable:
                if self._stopping.is_set():
                    raise
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._stopping.wait()
        return await request()


class Waker:
    """Lets tasks wait for a time, or until somebody has something for them."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._is_closed = False

    def wake(self) -> None:
        self._event.set()

    def close(self) -> None:
        """Nothing waits any more."""
        self._is_closed = True
        self._event.set()

    async def wait(self, seconds: float) -> None:
        """Return after so long, or at once when there was a `wake` since the last wait ended."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
        if not self._is_closed:
            self._event.clear()
