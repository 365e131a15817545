"""Equal calls that are under way at the same time share one, and what it tells of its progress."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from backend.errors import DeadlineExceeded, FinanciaError
from backend.lanes.inference import Urgency
from backend.telemetry import Telemetry

Result = TypeVar("Result")
Event = TypeVar("Event")


@dataclass(slots=True, eq=False)
class _Call(Generic[Result, Event]):
    urgency: Urgency  # of its first caller
    task: asyncio.Task[Result] | None = None
    listeners: list[Callable[[Event], None]] = field(default_factory=list)  # one a caller
    events: list[Event] = field(default_factory=list)  # so far, for those who join

    def on_event(self, event: Event) -> None:
        self.events.append(event)
        for listener in list(self.listeners):
            listener(event)

    def join(self, listener: Callable[[Event], None]) -> None:
        for event in self.events:
            listener(event)
        self.listeners.append(listener)

    def may_fail_sooner(self, error: FinanciaError, urgency: Urgency) -> bool:
        """Whether an error of this call may be none of one that is started with another urgency."""
        is_later = urgency.deadline_s > self.urgency.deadline_s
        is_patient = urgency.priority > self.urgency.priority and not isinstance(error, DeadlineExceeded)
        return error.retryable and (is_later or is_patient)


class SharedCalls(Generic[Result, Event]):
    """The calls under way by key. Event loop only."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._calls: dict[bytes, _Call[Result, Event]] = {}
        self._coalesced = telemetry.jobs_coalesced_total

    async def run(
        self,
        key: bytes,
        urgency: Urgency,
        start: Callable[[Callable[[Event], None]], Coroutine[Any, Any, Result]],
        listener: Callable[[Event], None] = lambda _: None,
    ) -> Result:
        """The result of ``start``, or of an equal call that is under way and at least as urgent.

        It ends when its last caller leaves. A caller who joined one with an earlier deadline, or one that waits for no
        room in a queue, starts anew when it fails of that.

        Args:
            start: gets what it tells its events to.
            listener: hears every event, those from before it joined too; again from the first where a call starts anew.
        """
        while True:
            call = self._calls.get(key)
            if call is None or call.urgency.priority > urgency.priority:
                return await self._wait(key, self._start(key, urgency, start), listener)
            self._coalesced.inc()
            try:
                return await self._wait(key, call, listener)
            except FinanciaError as error:
                if not call.may_fail_sooner(error, urgency):
                    raise

    def _start(
        self, key: bytes, urgency: Urgency, start: Callable[[Callable[[Event], None]], Coroutine[Any, Any, Result]]
    ) -> _Call[Result, Event]:
        call = self._calls[key] = _Call[Result, Event](urgency)
        call.task = asyncio.create_task(start(call.on_event))
        call.task.add_done_callback(lambda _: self._forget(key, call))
        return call

    def _forget(self, key: bytes, call: _Call[Result, Event]) -> None:
        if self._calls.get(key) is call:
            del self._calls[key]

    async def _wait(self, key: bytes, call: _Call[Result, Event], listener: Callable[[Event], None]) -> Result:
        assert call.task is not None
        call.join(listener)
        try:
            return await asyncio.shield(call.task)
        finally:
            call.listeners.remove(listener)
            if not call.listeners and not call.task.done():
                self._forget(key, call)
                call.task.cancel()
                with suppress(asyncio.CancelledError):  # its files and work items are let go before we are
                    await asyncio.wait({call.task})
