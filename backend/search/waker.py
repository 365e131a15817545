"""How background work on a storage waits for more to do."""

from __future__ import annotations

import asyncio
from contextlib import suppress


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
