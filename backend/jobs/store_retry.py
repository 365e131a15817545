"""Asking a store that may be away until it answers, or until the process ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from backend.errors import Unavailable

Made = TypeVar("Made")
_AGAIN_S = (0.5, 10.0)  # the first wait for a store that is away, and the longest; each is twice the one before


class Patience:
    """Asks again while the process goes on: what was computed is not thrown away for a fault that passes."""

    def __init__(self) -> None:
        self._ending = asyncio.Event()

    def end(self) -> None:
        """The process ends: nobody waits any longer."""
        self._ending.set()

    async def ask(self, question: Callable[[], Awaitable[Made]]) -> Made:
        """What the store says, as soon as it says something. Raises: Unavailable when we end before."""
        wait_s, most_s = _AGAIN_S
        while True:
            try:
                return await question()
            except Unavailable:
                if await self.ends_within(wait_s):
                    raise
                wait_s = min(wait_s * 2, most_s)

    async def ends_within(self, seconds: float) -> bool:
        """Wait so long, or until the end; whether that has come."""
        try:
            async with asyncio.timeout(seconds):
                return await self._ending.wait()
        except TimeoutError:
            return False
