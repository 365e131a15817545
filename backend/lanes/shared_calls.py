"""Equal calls that are under way at the same time share one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from backend.lanes.inference import Urgency
from backend.telemetry import Telemetry

Result = TypeVar("Result")


@dataclass(slots=True, eq=False)
class _Call(Generic[Result]):
    urgency: Urgency  # of its first caller
    task: asyncio.Task[Result]
    waiting: int = 0

    def serves(self, urgency: Urgency) -> bool:
        """Whether it is as urgent, and has as much time; else it may fail of what the other would not."""
        return self.urgency.priority <= urgency.priority and self.urgency.deadline_s >= urgency.deadline_s


class SharedCalls(Generic[Result]):
    """The calls under way by key. Event loop only."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._calls: dict[bytes, _Call[Result]] = {}
        self._coalesced = telemetry.jobs_coalesced_total

    async def run(self, key: bytes, urgency: Urgency, start: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """The result of ``start``, or of an equal call under way that is at least as urgent and patient.

        It ends when its last caller leaves. A deadline of its own is the caller's business.
        """
        call = self._calls.get(key)
        if call is not None and call.serves(urgency):
            self._coalesced.inc()
        else:
            call = self._calls[key] = _Call(urgency, asyncio.create_task(start()))
            call.task.add_done_callback(lambda _: self._forget(key, call))
        call.waiting += 1
        try:
            return await asyncio.shield(call.task)
        finally:
            call.waiting -= 1
            if not call.waiting and not call.task.done():
                self._forget(key, call)
                call.task.cancel()
                with suppress(asyncio.CancelledError):  # its files and work items are let go before we are
                    await asyncio.wait({call.task})

    def _forget(self, key: bytes, call: _Call[Result]) -> None:
        if self._calls.get(key) is call:
            del self._calls[key]
