"""One attempt at work that this process holds for a while: a job, or a file to be indexed.

Whoever claimed it renews the claim meanwhile, and stops the attempt where the claim is lost, the work was cancelled, or
the process is closing. What to write about the end is its business, not ours.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

T = TypeVar("T")
StopReason = Literal["cancelled", "lost", "closing"]


@dataclass(frozen=True, slots=True)
class Done(Generic[T]):
    """The work has ended by itself, in time."""

    result: T


@dataclass(frozen=True, slots=True)
class Failed:
    error: BaseException


Ended = Done[T] | Failed | StopReason | Literal["late"]


@dataclass(slots=True, eq=False)
class LeasedRun(Generic[T]):
    """Used on the event loop only."""

    stopped: StopReason | None = None
    _work: asyncio.Task[T] | None = None

    def stop(self, reason: StopReason) -> None:
        """End the work. The first reason counts; it may come before the work has begun."""
        self.stopped = self.stopped or reason
        if self._work is not None:
            self._work.cancel()

    async def ended(self, work: Coroutine[Any, Any, T], limit_s: float) -> Ended[T]:
        """Do the work, and say what became of it. It has ended on return, also where this is cancelled.

        A result that is there is the answer, even if the process is closing; a claim that is lost has none.
        """
        self._work = asyncio.create_task(work)
        if self.stopped:
            self._work.cancel()
        try:
            await asyncio.wait({self._work}, timeout=limit_s)
        finally:
            self._work.cancel()
            await asyncio.wait({self._work})
        if self.stopped in ("cancelled", "lost"):
            return self.stopped
        if self._work.cancelled():
            return self.stopped or "late"
        error = self._work.exception()
        if error is None:
            return Done(self._work.result())
        return self.stopped or Failed(error)
