"""Transcription on real lanes, with recordings whose samples tell what is said in them.

Every tenth of a second is silent (0) or says one word: its level. Levels from 20,000 on are in English. A pause ends a
sentence.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from backend.errors import FinanciaError, InferenceFailed
from backend.files.limits import FileLimits
from backend.files.records import FileInfo
from backend.files.speech_records import SAMPLE_RATE, AudioInfo, AudioSlice, SpokenLanguage
from backend.files.stored_file import StoredFile
from backend.lanes.batcher import Batcher
from backend.lanes.cache.store import BlobCache, MemoryTier, TieredCache
from backend.lanes.inference import Urgency
from backend.lanes.memory_keeper import IdleTrim
from backend.lanes.work_queue import QueueLimits
from backend.speech.records import (
    DecodedPiece,
    LanguageRun,
    SpeechEngines,
    SpeechPiece,
    SpeechSpan,
    TimedText,
    TimedWord,
    Transcription,
    TranscriptionEvent,
    TranscriptionOptions,
)
from backend.speech.transcription import TranscriptionService
from backend.telemetry import Telemetry
from tests.fakes import GatedEngine
from tests.tiny_whispers import tiny_whispers

__all__ = ["tiny_whispers"]
ENGLISH = 20_000
WAV = b"RIFF\x24\x00\x00\x00WAVEfmt \x10\x00\x00\x00"


def spoken(*parts: tuple[int, float]) -> NDArray[np.int16]:
    """Audio of (level, seconds), one after the other."""
    return np.concatenate([np.full(round(seconds * SAMPLE_RATE), level, np.int16) for level, seconds in parts])


def said(*levels: int) -> str:
    """What is written of levels with pauses between them."""
    return " ".join(f"W{level}." for level in levels)


def words(count: int, first: int = 100, *, said_s: float = 0.5, pause_s: float = 0.5) -> list[tuple[int, float]]:
    """So many different words with pauses after them."""
    return [part for word in range(first, first + count) for part in ((word, said_s), (0, pause_s))]


class ActivityEngine(GatedEngine):
    """Somebody speaks where a sample is not 0."""

    def finish(self, output: Any) -> Sequence[Any]:
        return [_spans(samples) for samples in output]

    def forward(self, prepared: Any) -> Any:
        self.batches.append(list(prepared))
        return prepared


class ScriptedWhisper(GatedEngine):
    """Writes the levels of a piece as words, a segment for every pause; waits for ``gate``.

    Asked for one language of a piece in two it writes nonsense, as Whisper does.
    """

    def __init__(self) -> None:
        super().__init__(name="speech", budget=120_000)
        self.gate.set()
        self.pieces: list[SpeechPiece] = []
        self.scores: dict[int, SpokenLanguage] = {}  # by the first level of a piece, asked for as a whole
        self.failing: set[int] = set()  # first levels of pieces that cannot be decoded
        self.doubted: set[int] = set()  # whose first attempt is doubtful
        self.phantoms: dict[int, str] = {}  # what is written instead
        self.skipped: set[int] = set()  # levels of which nothing is written
        self.unended: set[int] = set()  # levels after which a sentence goes on

    def finish(self, output: Any) -> Sequence[Any]:
        self.pieces += output
        return [self._decoded(piece) for piece in output]

    def _decoded(self, piece: SpeechPiece) -> DecodedPiece | FinanciaError:
        decoded = self._written(piece)
        if isinstance(decoded, FinanciaError) or piece.options.with_words:
            return decoded
        return replace(decoded, segments=tuple(text._replace(words=()) for text in decoded.segments))

    def _written(self, piece: SpeechPiece) -> DecodedPiece | FinanciaError:
        level = int(piece.samples[piece.samples != 0][0])
        if level in self.failing:
            return InferenceFailed("scripted")
        asked = piece.options.language
        own = self.scores.get(level, SpokenLanguage("en" if level >= ENGLISH else "es", 0.9))
        spans = (span for span in _spans(piece.samples) if piece.samples[span.end - 1] not in self.skipped)
        texts = tuple(_text(piece.samples, *span, self.unended) for span in spans)
        if level in self.phantoms:
            texts = (texts[0]._replace(text=self.phantoms[level]),)
        runs = _language_runs(piece.samples) if asked is None else ()
        if runs:
            texts = (texts[0]._replace(text="nonsense"),)
        is_doubtful = level in self.doubted and not piece.options.whole_window
        return DecodedPiece(
            texts,
            own if asked is None else SpokenLanguage(asked, 1.0),
            avg_logprob=-2.0 if is_doubtful else -0.1,
            no_speech_prob=0.9 if level in self.phantoms else 0.1,
            compression_ratio=1.0,
            temperature=piece.options.temperature,
            runs=runs,
        )


def _language_runs(samples: NDArray[np.int16]) -> tuple[LanguageRun, ...]:
    """Where which language is said, to half a second; empty where it is one."""
    said = samples != 0
    codes = np.where(samples[said] >= ENGLISH, "en", "es")
    changes = np.flatnonzero(codes[1:] != codes[:-1])
    if not len(changes):
        return ()
    places = np.flatnonzero(said)
    borders = [0.0, *((places[changes + 1] / SAMPLE_RATE + 0.5).tolist()), len(samples) / SAMPLE_RATE]
    spoken = [str(codes[0]), *(str(codes[change + 1]) for change in changes)]
    return tuple(LanguageRun(code, *times, 0.9) for code, times in zip(spoken, pairwise(borders), strict=True))


def _spans(samples: NDArray[np.int16]) -> tuple[SpeechSpan, ...]:
    edges = np.flatnonzero(np.diff(np.concatenate([[False], samples != 0, [False]]).astype(np.int8)))
    return tuple(SpeechSpan(int(start), int(end)) for start, end in edges.reshape(-1, 2))


def _text(samples: NDArray[np.int16], start: int, end: int, unended: set[int]) -> TimedText:
    levels = samples[start:end]
    borders = [0, *(np.flatnonzero(np.diff(levels)) + 1).tolist(), len(levels)]
    stop = "" if levels[-1] in unended else "."
    timed = tuple(
        TimedWord(
            f" W{levels[first]}{stop if last == len(levels) else ''}",
            (start + first) / SAMPLE_RATE,
            (start + last) / SAMPLE_RATE,
            0.5,
        )
        for first, last in pairwise(borders)
    )
    text = "".join(word.text for word in timed).strip()
    return TimedText(start / SAMPLE_RATE, end / SAMPLE_RATE, text, (1, 2), timed)


@dataclass
class ScriptedFile:
    """Stands for `OpenFile`."""

    info: FileInfo
    is_cancelled: bool = False
    is_closed: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True

    def close(self) -> None:
        self.is_closed = True


@dataclass
class ScriptedReaders:
    """Stands for `FileReaders`: gives the samples of ``audio``, or raises."""

    samples: NDArray[np.int16] = field(default_factory=lambda: spoken((100, 1.0)))
    declared_s: float | None = None
    incomplete: str = ""
    error_at: tuple[int, FinanciaError] | None = None  # from a sample on
    limits: FileLimits = field(default_factory=FileLimits)
    opened: list[ScriptedFile] = field(default_factory=list)
    slices: list[tuple[int, float]] = field(default_factory=list)

    def open(self, upload: StoredFile, *, password: str | None = None, deadline_s: float | None = None) -> ScriptedFile:
        info = AudioInfo("pcm_s16le", SAMPLE_RATE, 1, self.declared_s)
        sha256 = upload.sha256
        upload.close()
        self.opened.append(ScriptedFile(FileInfo("audio", 0, (), {}, sha256, audio=info)))
        return self.opened[-1]

    def audio(self, file: ScriptedFile, start: int, seconds: float, *, deadline_s: float | None = None) -> AudioSlice:
        assert not file.is_closed
        self.slices.append((start, seconds))
        if self.error_at is not None and start >= self.error_at[0]:
            raise self.error_at[1]
        part = self.samples[start : start + round(seconds * SAMPLE_RATE)]
        is_last = start + len(part) >= len(self.samples)
        return AudioSlice(part, start, is_last, self.incomplete if is_last else "")


@dataclass
class SpeechFixture:
    """The service, with what is below it."""

    service: TranscriptionService
    readers: ScriptedReaders
    whisper: ScriptedWhisper
    activity: ActivityEngine
    telemetry: Telemetry
    lanes: Batcher
    released: asyncio.Event
    events: list[TranscriptionEvent] = field(default_factory=list)
    uploads: int = 0

    async def transcribe(
        self, *parts: tuple[int, float], urgency: Urgency | None = None, name: str = "", **options: Any
    ) -> Transcription:
        """Transcribe what is said; files of one name are equal."""
        if parts:
            self.readers.samples = spoken(*parts)
        self.uploads += 1
        stored = StoredFile.of(WAV + (name or str(self.uploads)).encode(), self.readers.limits)
        try:
            return await self.service.transcribe(stored, TranscriptionOptions(**options), urgency, self.events.append)
        finally:
            stored.close()


PIECES_AT_ONCE = 3


@pytest.fixture
async def speech() -> AsyncIterator[SpeechFixture]:
    async with open_speech() as opened:
        yield opened


@asynccontextmanager
async def open_speech(
    cache: TieredCache | None = None, voices: GatedEngine | None = None
) -> AsyncIterator[SpeechFixture]:
    """The service of a process; with ``cache`` that of another one's, with ``voices`` one that tells speakers apart."""
    telemetry, readers, released = Telemetry(), ScriptedReaders(), asyncio.Event()
    cache = cache or TieredCache(MemoryTier(2**24), None, telemetry)
    lanes = Batcher(2, QueueLimits(1_000_000), telemetry)
    loop = asyncio.get_running_loop()
    lanes.start(loop)
    whisper, activity = ScriptedWhisper(), ActivityEngine(name="speech_activity", budget=6000)

    def release() -> None:
        loop.call_soon_threadsafe(released.set)

    engines = SpeechEngines(
        speech=whisper,
        lanes=lanes,
        activity=activity,
        activity_lanes=lanes,
        names=("whisper-test", "whisper-1"),
        languages=frozenset({"es", "en", "de"}),
        fingerprint="scripted",
        encode_prompt=lambda text: tuple(map(ord, text)),
        split_tokens=lambda tokens, texts: [tuple(tokens), *(() for _ in texts[1:])],
        beams=2,
        release=release,
        report=dict,
        voices=voices,
    )
    service = TranscriptionService(
        readers,  # type: ignore[arg-type]
        engines,
        BlobCache(cache),
        telemetry,
        pieces_at_once=PIECES_AT_ONCE,
        idle_trim=IdleTrim(trim=lambda: None, after_s=0.0),
    )
    try:
        yield SpeechFixture(service, readers, whisper, activity, telemetry, lanes, released)
    finally:
        whisper.gate.set()
        service.close()
        await lanes.drain(5.0)
