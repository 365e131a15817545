"""A transcription that is sent while it goes on: OpenAI's server-sent events from a service's callbacks."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import suppress
from typing import Any, Protocol

import orjson
from starlette.types import Receive

from backend.api.problems import openai_error, problem_of
from backend.api.service_call import run_until_disconnect
from backend.api.sse import HEARTBEAT_S, ServerEvent
from backend.errors import DeadlineExceeded, FinanciaError
from backend.files.speech_records import Segment, Transcript
from backend.speech.transcription_records import Transcription, TranscriptionCallback, TranscriptionEvent


class WriteDelta(Protocol):
    """Writes the event of a segment; ``before`` is the text of the one before it."""

    def __call__(self, segment: Segment, *, before: str, total_s: float | None) -> dict[str, Any]: ...


class TranscriptStream:
    """Runs a transcription in a task of its own and makes an event of each segment. Used on the event loop only.

    Args:
        work: the transcription; takes the callback.
        delta, done: write the events.
        on_progress: called with the seconds that are done.
        late: the error for a stream that is not done in time.
    """

    def __init__(
        self,
        work: Callable[[TranscriptionCallback], Coroutine[Any, Any, Transcription]],
        delta: WriteDelta,
        done: Callable[[Transcript], dict[str, Any]],
        *,
        on_progress: Callable[[float], None],
        late: Callable[[], DeadlineExceeded],
    ) -> None:
        self._work, self._delta, self._done = work, delta, done
        self._on_progress, self._late = on_progress, late
        self._waiting: deque[tuple[Segment, float | None]] = deque()
        self._changed = asyncio.Event()
        self._told = ""  # the text of the last segment
        self._task: asyncio.Task[Transcription] | None = None

    def start(self, limit_s: float, deadline_s: float) -> None:
        """Begin; at ``deadline_s`` on the monotonic clock it is cancelled."""
        run = run_until_disconnect(self._work(self._on_event), None, limit_s, deadline_s)
        self._task = asyncio.create_task(run)
        self._task.add_done_callback(lambda _task: self._changed.set())

    async def wait_for_first(self, receive: Receive) -> None:
        """Until there is something to send, or for as long as a client waits without a sign of life.

        Raises: CallerGone, and whatever the transcription raised before its first segment.
        """
        task = self._running()
        with suppress(DeadlineExceeded):
            until_s = time.monotonic() + HEARTBEAT_S
            await run_until_disconnect(self._changed.wait(), receive, HEARTBEAT_S, until_s)
        if task.done() and not self._waiting:
            self._result(task)

    async def events(self) -> AsyncGenerator[ServerEvent, None]:
        """The events up to the last, which has the whole text or, where the transcription failed, its error."""
        task = self._running()
        while True:
            await self._changed.wait()
            self._changed.clear()
            while self._waiting:
                segment, total_s = self._waiting.popleft()
                yield _event(self._delta(segment, before=self._told, total_s=total_s))
                self._told = segment.text
            if task.done():
                break
        try:
            last = self._done(self._result(task).transcript)
        except FinanciaError as error:
            problem = problem_of(error, "")
            last = {"error": {**openai_error(problem), "status": problem.status, "retryable": problem.retryable}}
        yield _event(last)

    async def close(self) -> None:
        """End the work, done or not."""
        task = self._running()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    def _on_event(self, event: TranscriptionEvent) -> None:
        self._on_progress(event.done_s)
        self._waiting.extend((segment, event.total_s) for segment in event.segments if segment.text)
        if self._waiting:
            self._changed.set()

    def _result(self, task: asyncio.Task[Transcription]) -> Transcription:
        try:
            return task.result()
        except DeadlineExceeded as error:
            raise self._late() from error

    def _running(self) -> asyncio.Task[Transcription]:
        assert self._task is not None, "start() comes first"
        return self._task


def _event(data: dict[str, Any]) -> ServerEvent:
    return ServerEvent("", "", orjson.dumps(data))
