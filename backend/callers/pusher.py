"""Calls a push to a store that may be away: soon after there is something, and again after a fault."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from backend.retry import Backoff
from backend.supervision import Supervisor
from backend.telemetry import BackgroundTask


class Pusher:
    """Pushes in the background. Used on the event loop only.

    Args:
        push: tells everything that is to be told; whether the store has it.
        every_s: at least between two pushes.
        retry: how long to wait after a fault.
    """

    def __init__(self, push: Callable[[], Awaitable[bool]], *, every_s: float, retry: Backoff) -> None:
        self._push, self._every_s, self._retry = push, every_s, retry
        self._wake, self._stopping = asyncio.Event(), asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def wake(self) -> None:
        """There is something to push."""
        self._wake.set()

    def start(self, supervisor: Supervisor, name: BackgroundTask) -> None:
        self._task = supervisor.keep(name, self._run)

    async def close(self, limit_s: float) -> bool:
        """Stop after one last push; whether that was done within its time."""
        self._stopping.set()
        self._wake.set()
        try:
            async with asyncio.timeout(limit_s):
                if self._task is not None:
                    await asyncio.wait({self._task})
                return await self._push()
        except TimeoutError:
            return False
        finally:
            if self._task is not None:
                self._task.cancel()

    async def _run(self) -> None:
        faults = 0
        while not self._stopping.is_set():
            await self._wake.wait()
            self._wake.clear()
            if await self._push():
                faults = 0
                await self._pause(self._every_s)
            else:
                self._wake.set()
                faults += 1
                await self._pause(self._retry.wait_s(faults))

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
