"""Ends work on threads once its caller is gone: a thread cannot be stopped, but it can ask whether it is wanted."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

from backend.errors import CallerGone

Check = Callable[[], None]  # raises where nobody waits for the work any more; called again and again by the work
_Result = TypeVar("_Result")


class Abandoned:
    """Tells a thread that its caller is gone. Set on the event loop, read on the thread."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        """Nobody waits any more."""
        self._event.set()

    def check(self) -> None:
        """Raises: CallerGone once nobody waits any more."""
        if self._event.is_set():
            raise CallerGone("nobody waits for this answer any more")


async def run_to_end(work: Callable[[Check], _Result]) -> _Result:
    """Run ``work`` on a thread. A caller that is cancelled tells it so, and is cancelled once the thread has ended.

    So nothing computes or writes behind the back of a lock that the caller holds.
    """
    abandoned = Abandoned()
    running = asyncio.ensure_future(asyncio.to_thread(work, abandoned.check))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        abandoned.set()
        await asyncio.wait([running])
        running.exception()  # retrieved: CallerGone, or what else it ended with
        raise
