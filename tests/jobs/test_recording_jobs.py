"""Recordings as jobs of several replicas: cancelled from another one, and carried on after a restart."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from backend.documents.recordings import RecordingExtractor
from backend.documents.records import DocumentAnswer, DocumentEvent, DocumentOptions, Understood
from backend.lanes.cache.store import MemoryTier, TieredCache
from backend.lanes.inference import Urgency
from backend.telemetry import Telemetry
from tests.jobs.replica import FakeProcess
from tests.jobs.test_service_shared import TIMEOUT_S, first_page, idle, open_replica
from tests.speech.conftest import WAV, SpeechFixture, open_speech, said, spoken, words

__all__ = ["open_replica"]
pytestmark = pytest.mark.redis
LEVELS = range(100, 280)  # three minutes, a word a second


class RecordingProcess(FakeProcess):
    """`DocumentService.process` of recordings, without what is made of their text."""

    def __init__(self, speech: SpeechFixture) -> None:
        super().__init__()
        self.speech = speech
        speech.readers.samples = spoken(*words(len(LEVELS), LEVELS[0]))

    async def __call__(
        self,
        upload: Any,
        options: DocumentOptions,
        urgency: Urgency,
        on_event: Callable[[DocumentEvent], Any],
        *,
        owner: str,
    ) -> DocumentAnswer:
        del owner
        extractor = RecordingExtractor(self.speech.service)
        try:
            read = await extractor.extract(upload, options, urgency, on_event, lambda _page: None)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return DocumentAnswer(read, read.document.text, Understood(), options, "cpu", 0.0, 0.0)


class Valve:
    """Lets so many pieces be decoded; the next ones wait at the gate of the scripted model."""

    def __init__(self, speech: SpeechFixture, pieces: int) -> None:
        self._whisper, self._pieces = speech.whisper, pieces
        self._finish = speech.whisper.finish
        speech.whisper.finish = self.finish  # type: ignore[method-assign]

    def finish(self, output: Any) -> Any:
        decoded = self._finish(output)
        if len(self._whisper.pieces) >= self._pieces:
            self._whisper.gate.clear()
        return decoded


async def test_cancelled_by_another_replica(open_replica) -> None:
    """The decoding and what waits for a lane end at once; the minutes so far are every replica's."""
    async with open_speech() as speech:
        Valve(speech, 4)
        here, there = await open_replica(RecordingProcess(speech), lease_s=1000.0), await idle(open_replica)
        job = await here.submit(WAV + b"long", name="hearing.wav")
        await first_page(there, job)
        tasks = here.runs()
        await there.service.cancel(job.id, "")
        async with asyncio.timeout(TIMEOUT_S):
            await asyncio.gather(*tasks)
        ended = await there.ended(job)
        document = await there.service.document(ended)

        assert ("cancelled", 1) == (ended.status, here.process.cancelled)
        assert [(True, True)] == [(file.is_cancelled, file.is_closed) for file in speech.readers.opened]
        assert 0.0 == speech.service.backlog.left
        assert ("audio", "W100.") == (ended.file.kind, document.pages[0].text.split()[0])
        assert len(document.pages) < len(LEVELS) / 60


async def test_a_restart_goes_on_from_the_pieces(open_replica) -> None:
    """What was decoded before SIGTERM is not decoded again, and nothing is missing or doubled."""
    cache = TieredCache(MemoryTier(2**24), None, Telemetry())  # stands for Redis
    async with open_speech(cache) as before, open_speech(cache) as after:
        Valve(before, 4)
        stopping = await open_replica(RecordingProcess(before), lease_s=1000.0)
        job = await stopping.submit(WAV + b"long", name="hearing.wav")
        await first_page(stopping, job)
        await stopping.service.close()
        started = await open_replica(RecordingProcess(after), lease_s=1000.0)
        ended = await started.ended(job)
        document = await started.service.document(ended)
        again = {said(level) for piece in after.whisper.pieces for level in set(piece.samples.tolist())}

        assert ("succeeded", 1) == (ended.status, ended.attempts)
        assert said(*LEVELS).split() == document.text.split()
        assert not again & set(document.pages[0].text.split())
        assert again >= set(map(said, LEVELS[-30:]))
