"""Waiting for an answer only as long as somebody wants it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

from backend.errors import CallerGone, DeadlineExceeded

Result = TypeVar("Result")


async def while_wanted(work: Coroutine[Any, Any, Result], receive: Receive | None, limit_s: float) -> Result:
    """The result of ``work``, which is cancelled when the client leaves or the time is up.

    The watch starts only once ``work`` has to wait: what is answered from the cache in one step pays one
    cancelled call of the loop.

    Args:
        receive: the client, whose body must have been read whole, for the watch takes what it brings;
            None watches the clock alone.

    Raises: CallerGone, DeadlineExceeded, and whatever ``work`` raises.
    """
    task = asyncio.current_task()
    assert task is not None, "routes run in a task"
    watch = _Watch(task, receive, limit_s)
    start = watch.loop.call_soon(watch.start)
    try:
        return await work
    except asyncio.CancelledError:
        if watch.verdict is None:  # somebody else ends us, e.g. the server at shutdown
            raise
        task.uncancel()
        raise watch.verdict from None
    finally:
        start.cancel()
        watch.stop()


class _Watch:
    """Cancels one task when its client leaves or its time is up, and remembers which."""

    __slots__ = ("_limit_s", "_reader", "_receive", "_task", "_timer", "loop", "verdict")

    def __init__(self, task: asyncio.Task[Any], receive: Receive | None, limit_s: float) -> None:
        self.loop = task.get_loop()
        self.verdict: CallerGone | DeadlineExceeded | None = None
        self._task = task
        self._receive = receive
        self._limit_s = limit_s
        self._reader: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        if self._receive is not None:
            self._reader = self.loop.create_task(self._read(self._receive))
        self._timer = self.loop.call_later(self._limit_s, self._end, DeadlineExceeded(self._limit_s))

    def stop(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
        if self._timer is not None:
            self._timer.cancel()

    async def _read(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass  # nothing may follow the body; ASGI allows empty messages
        self._end(CallerGone("the client closed the connection before it was answered"))

    def _end(self, verdict: CallerGone | DeadlineExceeded) -> None:
        if self.verdict is None:
            self.verdict = verdict
            self._task.cancel()
