"""One recording while it is transcribed: decoded slice by slice, cut, decoded piece by piece, and joined in order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from backend.abandoned import end_tasks
from backend.errors import InferenceFailed
from backend.files.speech_records import SAMPLE_RATE, AudioSlice, DroppedSpeech, Segment, SpokenLanguage, Transcript
from backend.lanes.backlog import Admitted
from backend.reasons import because
from backend.speech.piece_runs import SURE, UNDECODED, DecodedSpeech, LanguageTally, PieceRuns, is_doubtful
from backend.speech.pieces import AudioPiece, PieceLimits, Stretch, cut_pieces
from backend.speech.records import TranscriptionCallback, TranscriptionEvent
from backend.speech.sentences import JOINED_PAUSE_S, SentenceJoiner
from backend.speech.speakers import Voice, tell_apart

if TYPE_CHECKING:
    from numpy import int16
    from numpy.typing import NDArray

ReadSlice = Callable[[int, float], Awaitable[AudioSlice]]  # from a sample on, so many seconds
_FIRST_SLICE_S, _SLICE_S = 30.0, 60.0  # the first is short, so that the lanes begin soon
_PIECES_AHEAD = 8  # for each that may be at a lane: decoded, or still to be, behind one that takes long
_UNDECIDED_S = 120.0  # of audio that waits at most for the language of what follows: music may last for an hour
_SILENT_LEVEL = 33  # of 32768: -60 dB, below what a microphone in a silent room gives


@dataclass(frozen=True, slots=True, eq=False)
class _PlacedPiece:
    """A piece with its audio, which is let go as soon as it was decoded."""

    start: int  # samples of the file before it
    piece: AudioPiece
    samples: NDArray[int16]

    @property
    def end_s(self) -> float:
        return (self.start + len(self.samples)) / SAMPLE_RATE

    @property
    def speech_s(self) -> float:
        return self.piece.speech / SAMPLE_RATE

    @property
    def stretches(self) -> tuple[Stretch, ...]:
        """In which somebody speaks, counted from the piece's beginning."""
        first = self.piece.start
        return tuple(Stretch(start - first, end - first) for start, end in self.piece.stretches)


@dataclass(frozen=True, slots=True, eq=False)
class _Coming:
    """A piece that is being decoded. Where nobody speaks there is only how far the file is silent."""

    until_s: float
    placed: _PlacedPiece | None = None
    task: asyncio.Task[DecodedSpeech] | None = None
    ends_in_speech: bool = False
    ends_sentence: bool = False  # by a pause that follows


@dataclass(slots=True, eq=False)
class _Waiting:
    """A piece that was decoded and is not told yet; with its audio where it may be decoded again."""

    coming: _Coming
    decoded: DecodedSpeech | None
    is_decided: bool

    def __post_init__(self) -> None:
        if self.is_decided:
            self.coming = replace(self.coming, placed=None, task=None)


@dataclass(slots=True, eq=False)
class RecordingRun:
    """The state of one recording. Used on the event loop only; run once.

    Args:
        asked: the language of the request; None where it is to be found.
        pieces_at_once: that may wait for a lane or be on one: an hour never floods the queue.
        expected_s: what the file says it lasts, for those who wait; nothing else relies on it.
    """

    read: ReadSlice
    runs: PieceRuns
    admitted: Admitted
    on_event: TranscriptionCallback
    asked: str | None
    pieces_at_once: int
    expected_s: float | None = None
    limits: PieceLimits = field(default_factory=PieceLimits)
    total_s: float | None = None  # once the end was decoded
    done_s: float = 0.0
    speech_s: float = 0.0
    tally: LanguageTally = field(default_factory=LanguageTally)
    _segments: list[Segment] = field(default_factory=list)
    _sentences: SentenceJoiner = field(default_factory=SentenceJoiner)
    _told_s: float = 0.0  # of audio whose segments were told
    _spoken: list[tuple[Segment, Voice | None]] = field(default_factory=list)  # where speakers are told apart
    _dropped: list[DroppedSpeech] = field(default_factory=list)
    _coming: asyncio.Queue[_Coming | None] = field(default_factory=asyncio.Queue)
    _tasks: set[asyncio.Task[DecodedSpeech]] = field(default_factory=set)
    _incomplete: str = ""
    _is_cut: bool = False  # the last piece that was told ended amid speech
    _loudest: int = 0
    _room: asyncio.Semaphore = field(init=False)
    _failure: InferenceFailed | None = None

    def __post_init__(self) -> None:
        self._room = asyncio.Semaphore(_PIECES_AHEAD * self.pieces_at_once)

    @property
    def has_failed_pieces(self) -> bool:
        """Another time they may be transcribed: the transcript is not to be kept."""
        return self._failure is not None

    async def transcript(self, model: str) -> Transcript:
        """Everything that is said. Raises: what reading and the lanes raise; nothing runs on then."""
        slots = asyncio.Semaphore(self.pieces_at_once)
        work = [asyncio.create_task(self._cut_all(slots)), asyncio.create_task(self._join_all())]
        try:
            await asyncio.gather(*work)
        finally:
            await end_tasks(*work, *self._tasks)
        if self._spoken:
            self._segments = await asyncio.to_thread(self._told_apart)
        if self._failure is not None and not self._segments:
            raise self._failure
        assert self.total_s is not None
        return Transcript(
            duration_s=round(self.total_s, 3),
            language=self._language(),
            segments=tuple(self._segments),
            dropped=tuple(self._dropped),
            speech_s=round(self.speech_s, 3),
            why=self._why(),
            model=model,
        )

    def _told_apart(self) -> list[Segment]:
        segments, voices = zip(*self._spoken, strict=True)
        speakers = tell_apart(voices, [segment.end_s - segment.start_s for segment in segments])
        numbered = zip(segments, speakers, strict=True)
        final = self._sentences.add(replace(segment, speaker=speaker) for segment, speaker in numbered)
        return final + self._sentences.finish()

    async def _cut_all(self, slots: asyncio.Semaphore) -> None:
        """Decode, and begin to decode every piece."""
        kept, first, start, is_last = np.empty(0, np.int16), 0, 0, False
        known: tuple[Stretch, ...] = ()
        while not is_last:
            part = await self.read(start, _SLICE_S if start else _FIRST_SLICE_S)
            start, is_last = part.start + len(part.samples), part.is_last
            self._note(part)
            audio = np.concatenate([kept, part.samples]) if len(kept) else part.samples
            speech = await self._speech(audio)
            cut = cut_pieces(speech, audio, is_last=is_last, known=known, limits=self.limits)
            for piece in cut.pieces:
                await self._room.acquire()
                await slots.acquire()
                self._begin(_PlacedPiece(first + piece.start, piece, audio[piece.start : piece.end].copy()), slots)
            kept, known, first = audio[cut.keep_from :].copy(), cut.open_speech, first + cut.keep_from
            if is_last:
                self.total_s = start / SAMPLE_RATE
            self._coming.put_nowait(_Coming(first / SAMPLE_RATE))
        self._coming.put_nowait(None)

    def _note(self, part: AudioSlice) -> None:
        self._incomplete = part.incomplete or self._incomplete  # which counts from the beginning of the file
        if len(part.samples):
            self._loudest = max(self._loudest, int(part.samples.max()), -int(part.samples.min()))

    async def _speech(self, audio: NDArray[int16]) -> tuple[tuple[int, int], ...]:
        if not len(audio) or self._loudest <= 1:  # nothing but digital silence so far
            return ()
        return await self.runs.activity(audio)

    def _begin(self, placed: _PlacedPiece, slots: asyncio.Semaphore) -> None:
        self.speech_s += placed.speech_s
        self.runs.telemetry.speech_pieces_total.labels("speech" if placed.piece.ends_in_speech else "pause").inc()
        task = asyncio.create_task(self.runs.decode(placed.samples, placed.start, placed.stretches))
        self._tasks.add(task)
        task.add_done_callback(lambda _: slots.release())
        piece = placed.piece
        ends_sentence = piece.pause / SAMPLE_RATE >= JOINED_PAUSE_S
        self._coming.put_nowait(_Coming(placed.end_s, placed, task, piece.ends_in_speech, ends_sentence))

    async def _join_all(self) -> None:
        """Take the pieces in order; those that are in doubt before the language is known wait for it, a while."""
        waiting: deque[_Waiting] = deque()
        while (coming := await self._coming.get()) is not None:
            decoded = await self._decoded(coming)
            waiting.append(_Waiting(coming, decoded, self._is_decided(decoded)))
            is_due = coming.until_s - self.done_s >= _UNDECIDED_S
            may_decide = is_due or self.tally.is_settled or self._is_whole(coming)
            while waiting and (may_decide or waiting[0].is_decided):
                await self._tell(waiting.popleft())
        while waiting:
            await self._tell(waiting.popleft())

    def _is_decided(self, decoded: DecodedSpeech | None) -> bool:
        """Whether no language that follows makes a piece be decoded again."""
        if self.asked is not None or decoded is None or not decoded.segments or len(decoded.parts) != 1:
            return True
        return decoded.parts[0].own.score >= SURE

    def _is_whole(self, coming: _Coming) -> bool:
        return self.total_s is not None and coming.until_s >= self.total_s

    async def _decoded(self, coming: _Coming) -> DecodedSpeech | None:
        if coming.task is None or coming.placed is None:
            return None
        try:
            decoded = await coming.task
        except InferenceFailed as error:  # on this piece alone: the others are transcribed
            return self._not_decoded(coming, error)
        finally:
            self._tasks.discard(coming.task)
            self._room.release()
        if decoded.segments:
            for part in decoded.parts:
                self.tally.add(part.own, part.taken, part.speech_s)
        return decoded

    def _not_decoded(self, coming: _Coming, error: InferenceFailed) -> DecodedSpeech:
        assert coming.placed is not None
        self._failure = self._failure or error
        start_s = coming.placed.start / SAMPLE_RATE
        return DecodedSpeech((), (DroppedSpeech(start_s, coming.until_s, "", str(error)),), ())

    async def _tell(self, waiting: _Waiting) -> None:
        final = waiting.decoded
        if final is not None and not waiting.is_decided:
            final = await self._in_file_language(waiting.coming, final)
        self._emit(waiting.coming, final)

    async def _in_file_language(self, coming: _Coming, decoded: DecodedSpeech) -> DecodedSpeech:
        """A piece of the beginning, decoded again where the language that followed makes its own doubtful."""
        likely, placed = self.tally.likely, coming.placed
        [part] = decoded.parts
        if placed is None or likely is None or part.taken == likely or not is_doubtful(part.own, likely):
            return decoded
        self.tally.move(part.taken, likely, part.speech_s)
        return await self.runs.decode_in(likely, placed.samples, placed.start, placed.stretches)

    def _emit(self, coming: _Coming, decoded: DecodedSpeech | None) -> None:
        segments = list[Segment]()
        if decoded is not None:
            decoded = self._with_cuts(coming, decoded)
            if self.runs.voices is None:
                segments += self._sentences.add(decoded.segments)
            else:
                self._spoken += zip(decoded.segments, decoded.voices, strict=True)
            self._dropped += decoded.dropped
            self.runs.telemetry.speech_dropped_total.inc(len(decoded.dropped))
        if coming.ends_sentence or self._is_whole(coming):
            segments += self._sentences.finish()
        self._segments += segments
        before_s, self.done_s = self.done_s, max(self.done_s, coming.until_s)
        self.admitted.done(self.done_s - before_s)
        self._told_s = max(self._told_s, self._sentences.final_s(self.done_s))
        if segments or self.done_s > before_s or self._is_whole(coming):
            language = self._language_so_far()
            self.on_event(TranscriptionEvent(self._told_s, self.total_s, tuple(segments), language, self.expected_s))

    def _with_cuts(self, coming: _Coming, decoded: DecodedSpeech) -> DecodedSpeech:
        """A piece whose segments tell where it was cut amid speech."""
        begins, self._is_cut = self._is_cut, coming.ends_in_speech
        last = len(decoded.segments) - 1
        segments = (
            replace(segment, is_cut=(begins and index == 0) or (coming.ends_in_speech and index == last))
            for index, segment in enumerate(decoded.segments)
        )
        return replace(decoded, segments=tuple(segments))

    def _language_so_far(self) -> SpokenLanguage | None:
        if self.asked is None and not self.tally.spoken_s:
            return None
        return self._language()

    def _language(self) -> SpokenLanguage:
        return SpokenLanguage(self.asked, 1.0) if self.asked is not None else self.tally.found()

    def _why(self) -> str:
        """Why the transcript is empty or lacks something."""
        reasons = [self._incomplete] if self._incomplete else []
        if not self._segments and self._dropped:
            reasons.append(because("not_said", reason=self._dropped[0].why))
        elif not self._segments and self.speech_s:
            reasons.append(because("no_words"))
        elif not self._segments:
            reasons.append(self._why_nobody_speaks())
        elif undecoded_s := sum(part.end_s - part.start_s for part in self._dropped if part.why == UNDECODED):
            reasons.append(because("unheard", seconds=undecoded_s))
        if self._failure is not None:
            reasons.append(because("part_failed", error=self._failure))
        return "; ".join(reasons)

    def _why_nobody_speaks(self) -> str:
        if not self.total_s:
            return because("no_sound")
        if self._loudest < _SILENT_LEVEL:
            return because("silent")
        return because("nobody_speaks")
