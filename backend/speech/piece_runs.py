"""Runs pieces on the lanes: from the cache where an equal one was decoded, and again where what came is in doubt."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass, field, replace
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from backend.errors import Overloaded
from backend.files.speech_records import SAMPLE_RATE, DroppedSpeech, Segment, SpokenLanguage, SpokenWord
from backend.lanes.batcher import Batcher
from backend.lanes.cache.store import BlobCache, CacheNamespace
from backend.lanes.engine import Engine
from backend.lanes.inference import Urgency, run_one
from backend.lanes.work_queue import WorkItem
from backend.reasons import because
from backend.speech.hallucination_filter import Attempt, judge, undecoded
from backend.speech.pieces import Stretch, quietest
from backend.speech.records import (
    DecodedPiece,
    DecodingOptions,
    LanguageRun,
    SpeechEngines,
    SpeechPiece,
    SpeechSpan,
    TimedText,
    TimedWord,
    activity_cost,
)
from backend.speech.sentences import cut_at_sentences
from backend.speech.speakers import Voice, listened, voice_cost
from backend.telemetry import Telemetry
from backend.tracing.spans import SpanScope, span

if TYPE_CHECKING:
    from numpy import int16
    from numpy.typing import NDArray


SURE = 0.7  # from which a piece may be in another language than the rest of its file
SETTLED_S = 20.0  # of speech, from which the language of a file is taken; its first sentence may be a greeting
KNOWN = 0.5  # below it a file's language is unknown: silence and noise score 0.2 to 0.6 (measured, Whisper base)


@dataclass(slots=True)
class LanguageTally:
    """Scores of languages over pieces, weighted by seconds of speech."""

    _scored_s: dict[str, float] = field(default_factory=dict)  # score x seconds
    _spoken_s: dict[str, float] = field(default_factory=dict)

    @property
    def spoken_s(self) -> float:
        return sum(self._spoken_s.values())

    def add(self, own: SpokenLanguage, taken: str | None, seconds: float) -> None:
        """Count a piece.

        Args:
            own: what it was taken for by itself.
            taken: the language that its text was written in. Where that is another one, its score counts nothing.
        """
        if taken is None:
            return
        self._spoken_s[taken] = self._spoken_s.get(taken, 0.0) + seconds
        score = own.score if own.code == taken else 0.0
        self._scored_s[taken] = self._scored_s.get(taken, 0.0) + score * seconds

    def move(self, before: str | None, taken: str, seconds: float) -> None:
        """Count a piece whose text was written anew in another language, which its own score does not speak for."""
        if before is not None:
            share = seconds / self._spoken_s[before]
            self._spoken_s[before] -= seconds
            self._scored_s[before] -= share * self._scored_s[before]
        self.add(SpokenLanguage(None, 0.0), taken, seconds)

    @property
    def is_settled(self) -> bool:
        """Whether enough was decoded to tell the language of the file."""
        return self.spoken_s >= SETTLED_S

    @property
    def likely(self) -> str | None:
        """The language of most of the speech so far, for pieces that do not tell themselves."""
        return max(self._scored_s, key=self._scored_s.__getitem__, default=None)

    def found(self) -> SpokenLanguage:
        """The language of most of the speech with its mean score; without a code where that is too low."""
        code = self.likely
        if code is None or not self._spoken_s[code]:
            return SpokenLanguage(None, 0.0)
        score = round(self._scored_s[code] / self._spoken_s[code], 4)
        return SpokenLanguage(code if score >= KNOWN else None, score)


def is_doubtful(own: SpokenLanguage, likely: str | None) -> bool:
    """Whether a piece should be decoded again in the language of the rest of its file."""
    return likely is not None and own.code != likely and own.score < SURE


_AROUND = round(1.5 * SAMPLE_RATE)  # how far from where the model says that it changes
_LEAST = SAMPLE_RATE  # of speech in a part: in less the model makes words of anything


class LanguagePart(NamedTuple):
    """Samples of a piece that are said in one language."""

    code: str
    start: int
    end: int
    stretches: tuple[Stretch, ...]  # in which somebody speaks, counted from ``start``

    @property
    def speech(self) -> int:
        """Samples in which somebody speaks."""
        return sum(end - start for start, end in self.stretches)

    def with_next(self, part: LanguagePart, code: str) -> LanguagePart:
        """Both as one."""
        shift = part.start - self.start
        shifted = [Stretch(start + shift, end + shift) for start, end in part.stretches]
        joined = list(self.stretches)
        if joined and shifted and joined[-1].end == shifted[0].start:
            shifted[0] = Stretch(joined.pop().start, shifted[0].end)
        return LanguagePart(code, self.start, part.end, (*joined, *shifted))


def cut_by_language(
    runs: Sequence[LanguageRun], samples: NDArray[int16], stretches: Sequence[Stretch]
) -> Iterator[LanguagePart]:
    """The parts of a piece, which together are all of it.

    Args:
        runs: of the whole piece, in order, at least two.
        stretches: in which somebody speaks.
    """
    borders = [0]
    for before, after in pairwise(runs):
        least = max(borders[-1] + 1, round(before.end_s * SAMPLE_RATE) - _AROUND)
        most = min(len(samples), round(min(after.start_s * SAMPLE_RATE + _AROUND, after.end_s * SAMPLE_RATE)))
        borders.append(_border(least, max(least + 1, most), samples, stretches))
    borders.append(len(samples))
    yield from _joined(_parts(runs, borders, stretches))


def _parts(runs: Sequence[LanguageRun], borders: Sequence[int], stretches: Sequence[Stretch]) -> Iterator[LanguagePart]:
    for run, (start, end) in zip(runs, pairwise(borders), strict=True):
        within = tuple(
            Stretch(max(first, start) - start, min(last, end) - start)
            for first, last in stretches
            if min(last, end) > max(first, start)
        )
        yield LanguagePart(run.code, start, end, within)


def _joined(parts: Iterator[LanguagePart]) -> Iterator[LanguagePart]:
    """Parts in each of which enough is said to be decoded; one with less goes with the one before, or after, it."""
    waiting: LanguagePart | None = None
    for part in parts:
        if waiting is None:
            waiting = part
        elif part.speech < _LEAST:
            waiting = waiting.with_next(part, waiting.code)
        elif waiting.speech < _LEAST:
            waiting = waiting.with_next(part, part.code)
        else:
            yield waiting
            waiting = part
    if waiting is not None:
        yield waiting


def _border(least: int, most: int, samples: NDArray[int16], stretches: Sequence[Stretch]) -> int:
    """The middle of the longest pause between two places, else the quietest place."""
    pauses = [
        (min(later.start, most) - max(earlier.end, least), max(earlier.end, least), min(later.start, most))
        for earlier, later in pairwise(stretches)
    ]
    length, start, end = max(pauses, default=(0, 0, 0))
    return (start + end) // 2 if length > 0 else quietest(samples, least, most)


def segments_of(decoded: DecodedPiece, start_s: float, end_s: float) -> tuple[Segment, ...]:
    """The segments of a piece, in order.

    Args:
        start_s, end_s: of the piece, from the file's beginning. No time lies beyond them.
    """
    segments, after_s = list[Segment](), start_s
    for timed in decoded.segments:
        text = " ".join(timed.text.split())
        if not text:
            continue
        first_s, last_s = _times(timed)
        first_s = _within(start_s + first_s, after_s, end_s)
        last_s = _within(start_s + last_s, first_s, end_s)
        segments.append(
            Segment(
                round(first_s, 3),
                round(last_s, 3),
                text,
                words=tuple(_words(timed.words, text, start_s, (first_s, last_s))),
                tokens=tuple(timed.tokens),
                language=decoded.language.code,
                avg_logprob=decoded.avg_logprob,
                compression_ratio=decoded.compression_ratio,
                no_speech_prob=decoded.no_speech_prob,
                temperature=decoded.temperature,
            )
        )
        after_s = last_s
    return tuple(segments)


def _times(timed: TimedText) -> tuple[float, float]:
    """Of a segment: those of its words, which are finer, where it has any."""
    if not timed.words:
        return timed.start_s, timed.end_s
    return timed.words[0].start_s, max(timed.words[0].start_s, timed.words[-1].end_s)


def _words(
    words: Sequence[TimedWord], whole: str, start_s: float, around_s: tuple[float, float]
) -> Iterator[SpokenWord]:
    """Words in order, within their segment, none beginning before the one before it has ended.

    Args:
        whole: the text of the segment, which says where there are spaces.
    """
    (least_s, most_s), end = around_s, 0
    for word in words:
        text = " ".join(word.text.split())
        if not text:
            continue
        first_s = _within(start_s + word.start_s, least_s, most_s)
        last_s = _within(start_s + word.end_s, first_s, most_s)
        at = whole.find(text, end)
        is_joined = 0 < end == at
        end = end if at < 0 else at + len(text)
        yield SpokenWord(text, round(first_s, 3), round(last_s, 3), word.confidence, is_joined)
        least_s = last_s


def _within(value: float, least: float, most: float) -> float:
    return max(least, min(value, most))


_PIECE_VERSION = "2"  # to be raised when the same engine gives other words: cached pieces are then made again
UNDECODED = because("no_words_here")


@dataclass(frozen=True, slots=True)
class SpokenPart:
    """A part of a piece in one language."""

    own: SpokenLanguage  # what it was taken for by itself
    taken: str | None  # the language its text was written in
    speech_s: float  # in which somebody speaks


@dataclass(frozen=True, slots=True)
class DecodedSpeech:
    """What was made of a piece; seconds from the beginning of the file."""

    segments: tuple[Segment, ...]  # of a sentence each, or a part of one
    dropped: tuple[DroppedSpeech, ...]
    parts: tuple[SpokenPart, ...]  # in order; more than one where the language changes within the piece
    voices: tuple[Voice | None, ...] = ()  # of the segments, where they were asked for


@dataclass(slots=True)
class LaneTime:
    """Seconds of lanes that one recording took, and the speed at which it was decoded."""

    lane_s: float = 0.0  # all of it
    decoded_s: float = 0.0  # of audio that the speech model had on a lane: not silence, nor what was in the cache
    decoding_s: float = 0.0  # of lanes, for that


@dataclass(frozen=True, slots=True)
class PieceRuns:
    """The pieces of one request. Used on the event loop only.

    Args:
        likely: the language of most of the file so far, where that is to be found.
    """

    engines: SpeechEngines
    cache: BlobCache
    telemetry: Telemetry
    urgency: Urgency
    options: DecodingOptions
    likely: Callable[[], str | None] = lambda: None
    with_speakers: bool = False
    time: LaneTime = field(default_factory=LaneTime)

    @property
    def voices(self) -> Engine | None:
        """Makes vectors of who speaks, where speakers are to be told apart."""
        return self.engines.voices if self.with_speakers else None

    async def activity(self, samples: NDArray[int16]) -> tuple[SpeechSpan, ...]:
        """Where somebody speaks in a stretch of audio."""
        lanes, cost = self.engines.activity_lanes, activity_cost(len(samples))
        with span("find speech", {"financia.audio.seconds": round(len(samples) / SAMPLE_RATE, 3)}):
            spans: tuple[SpeechSpan, ...] = await self._on_lane(lanes, self.engines.activity, samples, cost)
        return spans

    async def decode(self, samples: NDArray[int16], start: int, stretches: Sequence[Stretch]) -> DecodedSpeech:
        """What is said in a piece; what the model left out of it is decoded again.

        Args:
            start: samples of the file before it.
            stretches: of it in which somebody speaks, counted from its beginning.
        """
        with _piece_span(samples, start):
            decoded = await self._decode(self.options, samples, start, stretches)
            return await self._with_voices(decoded, samples, start)

    async def decode_in(
        self, language: str, samples: NDArray[int16], start: int, stretches: Sequence[Stretch]
    ) -> DecodedSpeech:
        """The same in a language that the rest of the file told."""
        self._retried("language")
        with _piece_span(samples, start):
            decoded = await self._decode(replace(self.options, language=language), samples, start, stretches)
            return await self._with_voices(decoded, samples, start)

    async def _with_voices(self, decoded: DecodedSpeech, samples: NDArray[int16], start: int) -> DecodedSpeech:
        """The same with a vector of who speaks in each segment, where speakers are to be told apart."""
        engine = self.voices
        if engine is None:
            return decoded
        start_s, voices = start / SAMPLE_RATE, list[Voice | None]()
        for segment in decoded.segments:
            sound = listened(samples, segment.start_s - start_s, segment.end_s - start_s)
            lanes = self.engines.activity_lanes
            voices.append(None if sound is None else await self._on_lane(lanes, engine, sound, voice_cost(sound)))
        return replace(decoded, voices=tuple(voices))

    async def _decode(
        self, options: DecodingOptions, samples: NDArray[int16], start: int, stretches: Sequence[Stretch]
    ) -> DecodedSpeech:
        decoded, dropped, own = await self._best(samples, options)
        if decoded.runs:
            return await self._decode_by_language(decoded.runs, samples, start, stretches)
        parts = [_placed(decoded, dropped, start, len(samples))]
        speech = [(first / SAMPLE_RATE, last / SAMPLE_RATE) for first, last in stretches]
        for start_s, end_s in undecoded(decoded, speech):
            self._retried("unheard")
            first, last = round(start_s * SAMPLE_RATE), round(end_s * SAMPLE_RATE)
            again = replace(options, language=decoded.language.code)
            more, more_dropped, _ = await self._best(samples[first:last], again)
            more_segments, lost = _placed(more, more_dropped, start + first, last - first)
            if not more_segments and not lost:
                lost = [DroppedSpeech((start + first) / SAMPLE_RATE, (start + last) / SAMPLE_RATE, "", UNDECODED)]
            parts.append((more_segments, lost))
        by_start = sorted((segment for part in parts for segment in part[0]), key=lambda segment: segment.start_s)
        split_tokens = self.engines.split_tokens
        segments = chain.from_iterable(cut_at_sentences(segment, split_tokens) for segment in by_start)
        dropped_parts = sorted((loss for part in parts for loss in part[1]), key=lambda loss: loss.start_s)
        spoken_s = sum(last_s - first_s for first_s, last_s in speech)
        return DecodedSpeech(tuple(segments), tuple(dropped_parts), (SpokenPart(own, decoded.language.code, spoken_s),))

    async def _decode_by_language(
        self, runs: Sequence[LanguageRun], samples: NDArray[int16], start: int, stretches: Sequence[Stretch]
    ) -> DecodedSpeech:
        """A piece in which the language changes: each part is decoded by itself, as the model writes one language.

        In the language that its windows told: asked for the part as a whole, Whisper base took 20 s of English for
        Spanish with a score of 0.87.
        """
        segments, dropped, spoken = list[Segment](), list[DroppedSpeech](), list[SpokenPart]()
        for part in cut_by_language(runs, samples, stretches):
            if not part.stretches:
                continue
            self._retried("language")
            options = replace(self.options, language=part.code)
            decoded = await self._decode(options, samples[part.start : part.end], start + part.start, part.stretches)
            segments += decoded.segments
            dropped += decoded.dropped
            spoken += [
                replace(said, own=SpokenLanguage(part.code, _score_of(part.code, runs))) for said in decoded.parts
            ]
        return DecodedSpeech(tuple(segments), tuple(dropped), tuple(spoken))

    async def _best(
        self, samples: NDArray[int16], options: DecodingOptions
    ) -> tuple[DecodedPiece, dict[int, str], SpokenLanguage]:
        """The attempt that counts, the segments of it that were not said with the reason, and the piece's language."""
        decoded = await self._attempt(samples, options)
        own = decoded.language
        if decoded.runs:  # it is decoded again in parts: what came of the whole does not count
            return decoded, {}, own
        if options.language is None and is_doubtful(own, likely := self.likely()):
            self._retried("language")
            options = replace(options, language=likely)
            decoded = await self._attempt(samples, options)
        tried, asked = [decoded], Attempt(options.temperature, options.whole_window)
        while (judgement := judge(tried, asked)).again is not None:
            again = judgement.again
            self._retried("whole_window" if again.temperature == asked.temperature else "temperature")
            changed = replace(options, temperature=again.temperature, whole_window=again.whole_window)
            tried.append(await self._attempt(samples, changed))
        best = tried[judgement.best]
        return best, dict(judgement.dropped), own if options.language is not None else best.language

    async def _attempt(self, samples: NDArray[int16], options: DecodingOptions) -> DecodedPiece:
        """A piece as it was decoded before, or as it is now; of a text that is known the words alone are sought."""
        audio = samples.tobytes()
        as_text, with_words = (
            CacheNamespace("speech piece", _PIECE_VERSION, self.engines.fingerprint, repr(astuple(how))).key(
                "file", audio
            )
            for how in (replace(options, with_words=False), replace(options, with_words=True))
        )
        if options.with_words and (known := await self._known(with_words)) is not None:
            return known
        text = await self._known(as_text)
        if text is not None and not (options.with_words and text.segments and not text.runs):
            return text
        piece = SpeechPiece(samples, options, written=text)
        decoded: DecodedPiece = await self._on_lane(self.engines.lanes, self.engines.speech, piece, piece.cost)
        if options.with_words:
            self.cache.put(with_words, _packed(decoded))
        if text is None:
            self.cache.put(as_text, _packed(_without_words(decoded)))
        return decoded

    async def _known(self, key: bytes) -> DecodedPiece | None:
        packed = await self.cache.get(key)
        return None if packed is None else _unpacked(packed)

    async def _on_lane(self, lanes: Batcher, engine: Engine, payload: Any, cost: int) -> Any:
        """The result of one payload. What the lanes refuse for now is tried again: the recording was admitted."""

        def ended(item: WorkItem) -> None:
            self.time.lane_s += item.lane_s
            if engine is self.engines.speech and item.lane_s:
                self.time.decoded_s += len(payload.samples) / SAMPLE_RATE
                self.time.decoding_s += item.lane_s

        return await run_one(lanes, engine, payload, cost, self.urgency, also=(Overloaded,), ended=ended)

    def _retried(self, reason: str) -> None:
        self.telemetry.speech_retries_total.labels(reason).inc()


def _piece_span(samples: NDArray[int16], start: int) -> SpanScope:
    place = {"start_s": start / SAMPLE_RATE, "seconds": len(samples) / SAMPLE_RATE}
    return span("speech piece", {f"financia.audio.{name}": round(value, 3) for name, value in place.items()})


def _score_of(code: str, runs: Sequence[LanguageRun]) -> float:
    """Of a language in a piece: the mean of its runs, by their seconds."""
    own = [(run.score, run.end_s - run.start_s) for run in runs if run.code == code]
    return round(sum(score * seconds for score, seconds in own) / sum(seconds for _, seconds in own), 4)


def _placed(
    decoded: DecodedPiece, dropped: dict[int, str], start: int, samples: int
) -> tuple[tuple[Segment, ...], list[DroppedSpeech]]:
    """Segments that are kept, and those that are not, with seconds from the beginning of the file."""
    start_s, end_s = start / SAMPLE_RATE, (start + samples) / SAMPLE_RATE
    kept = tuple(text for index, text in enumerate(decoded.segments) if index not in dropped)
    lost = [
        DroppedSpeech(start_s + text.start_s, min(end_s, start_s + text.end_s), text.text.strip(), dropped[index])
        for index, text in enumerate(decoded.segments)
        if index in dropped
    ]
    return segments_of(replace(decoded, segments=kept), start_s, end_s), lost


def _without_words(decoded: DecodedPiece) -> DecodedPiece:
    return replace(decoded, segments=tuple(text._replace(words=()) for text in decoded.segments))


def _packed(decoded: DecodedPiece) -> bytes:
    segments = [[*text[:4], [list(word) for word in text.words]] for text in decoded.segments]
    numbers = [decoded.avg_logprob, decoded.no_speech_prob, decoded.compression_ratio, decoded.temperature]
    runs = [list(run) for run in decoded.runs]
    return orjson.dumps([segments, list(decoded.language), numbers, runs], option=orjson.OPT_SERIALIZE_NUMPY)


def _unpacked(packed: bytes) -> DecodedPiece | None:
    try:
        segments, language, numbers, runs = orjson.loads(packed)
        texts = tuple(
            TimedText(start_s, end_s, text, tuple(tokens), tuple(TimedWord(*word) for word in words))
            for start_s, end_s, text, tokens, words in segments
        )
        in_languages = tuple(LanguageRun(*run) for run in runs)
        logprob, no_speech, compression, temperature = numbers
        return DecodedPiece(
            texts, SpokenLanguage(*language), logprob, no_speech, compression, temperature, in_languages
        )
    except (ValueError, TypeError):
        return None
