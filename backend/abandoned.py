"""Ends work once its caller is gone. A thread cannot be stopped, but it can ask whether it is wanted.

What reads texts asks again and again by `require_wanted`, wherever it runs; each caller that can leave says so by
`Abandoned.run`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextvars import ContextVar
from typing import Any, TypeVar, overload

from backend.errors import CallerGone

_Result = TypeVar("_Result")
_A = TypeVar("_A")
_B = TypeVar("_B")
_C = TypeVar("_C")
_D = TypeVar("_D")


class Abandoned:
    """Tells a thread that its caller is gone. Set on the event loop, read on the thread."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        """Nobody waits any more."""
        self._event.set()

    def run(self, work: Callable[[], _Result]) -> _Result:
        """What ``work`` returns. Raises: CallerGone from its next `require_wanted` once nobody waits any more."""
        token = _abandoned.set(self)
        try:
            return work()
        finally:
            _abandoned.reset(token)

    @property
    def is_set(self) -> bool:
        """Whether nobody waits any more."""
        return self._event.is_set()


_abandoned: ContextVar[Abandoned | None] = ContextVar("abandoned", default=None)


def require_wanted() -> None:
    """Raises: CallerGone where nobody waits any more for the work that this thread does."""
    abandoned = _abandoned.get()
    if abandoned is not None and abandoned.is_set:
        raise CallerGone("nobody waits for this answer any more")


async def run_to_end(work: Callable[[], _Result]) -> _Result:
    """Run ``work`` on a thread. A caller that is cancelled tells it so, and is cancelled once the thread has ended.

    So nothing computes or writes behind the back of a lock that the caller holds.
    """
    abandoned = Abandoned()
    running = asyncio.ensure_future(asyncio.to_thread(abandoned.run, work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        abandoned.set()
        await asyncio.wait([running])
        running.exception()  # retrieved: CallerGone, or what else it ended with
        raise


@overload
async def together(
    one: Coroutine[Any, Any, _A],
    two: Coroutine[Any, Any, _B],
    three: Coroutine[Any, Any, _C],
    four: Coroutine[Any, Any, _D],
    /,
) -> tuple[_A, _B, _C, _D]: ...


@overload
async def together(*calls: Coroutine[Any, Any, _Result]) -> Sequence[_Result]: ...


async def together(*calls: Coroutine[Any, Any, Any]) -> Sequence[Any]:
    """The results of calls that run side by side; when one fails, or the caller leaves, the others end."""
    tasks = [asyncio.create_task(call) for call in calls]
    try:
        return tuple(await asyncio.gather(*tasks))
    finally:
        await end_tasks(*tasks)


async def end_tasks(*tasks: asyncio.Task[Any] | None) -> None:
    """Cancel tasks and wait for their end; what they raise is dropped. None: there is none."""
    begun = [task for task in tasks if task is not None]
    for task in begun:
        task.cancel()
    await asyncio.gather(*begun, return_exceptions=True)
