"""A transcription service that hears two sentences in any file, so that only HTTP is tested."""

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

from backend.files.speech_records import DroppedSpeech, Segment, SpokenLanguage, SpokenWord, Transcript
from backend.files.stored_file import StoredFile
from backend.lanes.inference import Urgency
from backend.speech.records import (
    Transcription,
    TranscriptionCallback,
    TranscriptionEvent,
    TranscriptionOptions,
    ignore_event,
)
from tests.api.text_fakes import FakeService

NAMES = ("whisper-base", "bundled", "whisper-1")


def segment(text: str, start_s: float, *, seconds: float = 1.0, language: str = "es") -> Segment:
    """A segment whose words share its time out evenly."""
    texts = text.split()
    each_s = seconds / max(1, len(texts))
    words = tuple(
        SpokenWord(word, start_s + index * each_s, start_s + (index + 1) * each_s, 0.5)
        for index, word in enumerate(texts)
    )
    return Segment(
        start_s,
        start_s + seconds,
        text,
        words,
        tokens=(50364, 7),
        language=language,
        avg_logprob=-0.25,
        compression_ratio=1.5,
        no_speech_prob=0.125,
    )


def transcript() -> Transcript:
    """A minute and a half: Spanish, English, and a stretch that was dropped."""
    return Transcript(
        duration_s=90.5,
        language=SpokenLanguage("es", 0.75),
        segments=(segment("La factura vence <hoy>.", 1.0, seconds=4.0), segment("Thank you.", 70.0, language="en")),
        dropped=(DroppedSpeech(80.0, 82.0, "Thanks for watching!", "nobody speaks there"),),
        speech_s=5.0,
        why="from 88 s on the file is damaged",
        model=NAMES[0],
    )


@dataclass
class FakeSpeech(FakeService):
    """Answers ``heard``; each segment is an event. Fails after ``fails_after`` of them where ``failure`` is set."""

    names: tuple[str, ...] = NAMES
    tells_speakers: bool = False
    heard: Transcript = field(default_factory=transcript)
    fails_after: int = 0
    failure: Exception | None = None
    step: asyncio.Event | None = None  # waited for after each event

    async def transcribe(
        self,
        upload: StoredFile,
        options: TranscriptionOptions,
        urgency: Urgency | None = None,
        on_event: TranscriptionCallback = ignore_event,
    ) -> Transcription:
        await self.enter(upload.content(), options, urgency)
        for index, one in enumerate(self.heard.segments):
            if self.failure is not None and index == self.fails_after:
                raise self.failure
            words = one.words if options.with_words else ()
            on_event(TranscriptionEvent(one.end_s, self.heard.duration_s, (replace(one, words=words),)))
            await self._wait()
        segments = tuple(replace(one, words=one.words if options.with_words else ()) for one in self.heard.segments)
        return Transcription(replace(self.heard, segments=segments), 0.25, 0.5, 1.0)

    async def _wait(self) -> None:
        if self.step is None:
            return
        try:
            await self.step.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    def report(self) -> dict[str, Any]:
        placement = {"device": "cpu", "precision": "int8"}
        return {"model": NAMES[0], "source": "bundled", "revision": "d01c3014881c", "placement": placement}
