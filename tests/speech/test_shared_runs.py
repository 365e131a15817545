"""Equal recordings are transcribed once, and no caller fails of another's deadline, haste, or closed file."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from backend.errors import DeadlineExceeded, FinanciaError, InferenceFailed, Overloaded, Unavailable
from backend.files.speech_records import Segment, SpokenLanguage, Transcript
from backend.lanes.inference import Urgency
from backend.lanes.shared_calls import SharedCalls
from backend.lanes.work_queue import Priority
from backend.speech.records import Transcription, TranscriptionCallback, TranscriptionEvent
from backend.speech.transcription import Listener
from backend.telemetry import Telemetry
from tests.fakes import TEST_TIMEOUT_S
from tests.speech.conftest import SpeechFixture, said, words

KEY = b"recording"
SEGMENTS = tuple(Segment(10.0 * place, 10.0 * place + 10, text) for place, text in enumerate(("one", "two", "three")))
RESULT = Transcription(Transcript(30.0, SpokenLanguage("en", 1.0), SEGMENTS), 0.0, 0.0, 0.0)


class Runs:
    """Starts runs, of which the first tells of two segments, waits for ``gate``, and fails; the next ones succeed."""

    def __init__(self, error: FinanciaError) -> None:
        self.error, self.count = error, 0
        self.waits, self.gate = asyncio.Event(), asyncio.Event()
        self.shared = SharedCalls[Transcription, TranscriptionEvent](Telemetry())

    async def start(self, on_event: TranscriptionCallback) -> Transcription:
        self.count += 1
        is_first = self.count == 1
        for segment in SEGMENTS[: 2 if is_first else 3]:
            on_event(TranscriptionEvent(segment.end_s, None, (segment,)))
        if is_first:
            self.waits.set()
            await self.gate.wait()
            raise self.error
        on_event(TranscriptionEvent(30.0, 30.0))
        return RESULT

    def call(
        self, urgency: Urgency, on_event: Callable[[TranscriptionEvent], None]
    ) -> Coroutine[Any, Any, Transcription]:
        return self.shared.run(KEY, urgency, self.start, Listener(on_event).tell)


async def joined(runs: Runs, first: Urgency, second: Urgency) -> tuple[list[Any], list[TranscriptionEvent]]:
    """What two calls give of which the second joins the first, and what the second is told."""
    events = list[TranscriptionEvent]()
    calls = [asyncio.create_task(runs.call(first, lambda _: None))]
    await asyncio.wait_for(runs.waits.wait(), TEST_TIMEOUT_S)
    calls.append(asyncio.create_task(runs.call(second, events.append)))
    await asyncio.sleep(0)
    runs.gate.set()
    return await asyncio.gather(*calls, return_exceptions=True), events


async def test_each_second_is_told_once() -> None:
    """Also to a caller whose run ended at the deadline of another, and began anew."""
    runs = Runs(DeadlineExceeded(1.0))
    [first, second], events = await joined(runs, Urgency(deadline_s=1.0), Urgency(deadline_s=2.0))

    assert isinstance(first, DeadlineExceeded)
    assert second is RESULT
    assert ["one", "two", "three"] == [segment.text for event in events for segment in event.segments]
    assert [(10.0, None), (20.0, None), (20.0, None), (30.0, None), (30.0, 30.0)] == [event[:2] for event in events]


@pytest.mark.parametrize(
    ("error", "first", "second"),
    [
        pytest.param(Overloaded(9, 8, 1.0), Urgency(), Urgency(Priority.BULK), id="background-work-can-wait"),
        pytest.param(Overloaded(9, 8, 1.0), Urgency(deadline_s=1.0), Urgency(deadline_s=2.0), id="there-is-more-time"),
    ],
)
async def test_a_refusal_of_another_is_none(error: FinanciaError, first: Urgency, second: Urgency) -> None:
    """Whoever has more patience than the run that was refused begins its own."""
    runs = Runs(error)
    results, _ = await joined(runs, first, second)

    assert [error, RESULT] == results
    assert 2 == runs.count


@pytest.mark.parametrize(
    ("error", "second"),
    [
        pytest.param(InferenceFailed("broken"), Urgency(Priority.BULK), id="the-files-fault"),
        pytest.param(Overloaded(9, 8, 1.0), Urgency(), id="no-more-patient"),
    ],
)
async def test_what_would_fail_again_fails_both(error: FinanciaError, second: Urgency) -> None:
    """It is not tried a second time."""
    runs = Runs(error)
    results, _ = await joined(runs, Urgency(), second)

    assert [error, error] == results
    assert 1 == runs.count


async def test_the_first_callers_file_may_be_closed(speech: SpeechFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """It left; the file is opened again for the one that stays."""
    opening, entered, gate = speech.readers.open, threading.Event(), threading.Event()

    def refused_once(*args: Any, **options: Any) -> Any:
        if entered.is_set():
            return opening(*args, **options)
        entered.set()
        gate.wait(TEST_TIMEOUT_S)
        raise Unavailable("no process", retry_after_s=0.0)

    monkeypatch.setattr(speech.readers, "open", refused_once)
    urgency = Urgency(Priority.BULK, time.monotonic() + TEST_TIMEOUT_S)
    first = asyncio.create_task(speech.transcribe(*words(3), name="same", urgency=urgency))
    await asyncio.to_thread(entered.wait, TEST_TIMEOUT_S)
    second = asyncio.create_task(speech.transcribe(name="same", urgency=urgency))
    for _ in range(50):
        await asyncio.sleep(0)
    joined_runs = speech.telemetry.total("jobs_coalesced_total")
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    gate.set()

    assert 1 == joined_runs
    assert said(100, 101, 102) == (await second).transcript.text
