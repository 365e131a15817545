"""Equal requests that are under way at the same time share one transcription."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from backend.errors import DeadlineExceeded, FinanciaError
from backend.files.speech_records import Segment
from backend.lanes.inference import Urgency
from backend.speech.transcription_records import Transcription, TranscriptionCallback, TranscriptionEvent
from backend.telemetry import Telemetry

Start = Callable[[TranscriptionCallback], Coroutine[Any, Any, Transcription]]
_ROUNDED_S = 0.001  # what rounding takes off a segment's times


@dataclass(slots=True, eq=False)
class _Listener:
    """A caller, who may decode of several runs of the same recording, one after the other, and of each second once."""

    on_event: TranscriptionCallback
    told_s: float = -1.0

    def tell(self, event: TranscriptionEvent) -> None:
        """Pass on what is new in an event."""
        if event.done_s < self.told_s:
            return
        new: tuple[Segment, ...] = ()
        if event.done_s > self.told_s:
            least_s = self.told_s - _ROUNDED_S
            new = tuple(part for part in event.segments if (part.start_s + part.end_s) / 2 > least_s)
        self.told_s = event.done_s
        self.on_event(event._replace(segments=new))


@dataclass(slots=True, eq=False)
class _SharedRun:
    urgency: Urgency  # of its first caller
    task: asyncio.Task[Transcription] | None = None
    listeners: list[_Listener] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)  # so far, for those who join
    last: TranscriptionEvent | None = None

    def on_event(self, event: TranscriptionEvent) -> None:
        self.segments += event.segments
        self.last = event
        for listener in list(self.listeners):
            listener.tell(event)

    def join(self, listener: _Listener) -> None:
        if self.last is not None:
            listener.tell(self.last._replace(segments=tuple(self.segments)))
        self.listeners.append(listener)

    def may_fail_sooner(self, error: FinanciaError, urgency: Urgency) -> bool:
        """Whether an error of this run may be none of one that is started with another urgency."""
        is_later = urgency.deadline_s > self.urgency.deadline_s
        is_patient = urgency.priority > self.urgency.priority and not isinstance(error, DeadlineExceeded)
        return error.retryable and (is_later or is_patient)


class SharedRuns:
    """The transcriptions under way by cache key. Event loop only."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._runs: dict[bytes, _SharedRun] = {}
        self._coalesced = telemetry.jobs_coalesced_total

    async def run(self, key: bytes, urgency: Urgency, on_event: TranscriptionCallback, start: Start) -> Transcription:
        """The result of ``start``, or of an equal one that is under way and at least as urgent.

        It ends when its last caller leaves. A caller who joined one with an earlier deadline, or one that waits for no
        room in a queue, starts anew when it fails of that; what was decoded by then is in the cache of pieces.
        """
        listener = _Listener(on_event)
        while True:
            run = self._runs.get(key)
            if run is None or run.urgency.priority > urgency.priority:
                return await self._wait(key, self._start(key, urgency, start), listener)
            self._coalesced.inc()
            try:
                return await self._wait(key, run, listener)
            except FinanciaError as error:
                if not run.may_fail_sooner(error, urgency):
                    raise

    def _start(self, key: bytes, urgency: Urgency, start: Start) -> _SharedRun:
        run = self._runs[key] = _SharedRun(urgency)
        run.task = asyncio.create_task(start(run.on_event))
        run.task.add_done_callback(lambda _: self._forget(key, run))
        return run

    def _forget(self, key: bytes, run: _SharedRun) -> None:
        if self._runs.get(key) is run:
            del self._runs[key]

    async def _wait(self, key: bytes, run: _SharedRun, listener: _Listener) -> Transcription:
        assert run.task is not None
        run.join(listener)
        try:
            return await asyncio.shield(run.task)
        finally:
            run.listeners.remove(listener)
            if not run.listeners and not run.task.done():
                self._forget(key, run)
                run.task.cancel()
                with suppress(asyncio.CancelledError):  # its own: its files and work items are let go before we are
                    await asyncio.wait({run.task})
