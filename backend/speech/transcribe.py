"""The engine that writes what is said: Whisper on pieces of all requests, with times and, where asked for, words."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from backend.files.spoken_language import SAMPLE_RATE, HeardLanguage
from backend.lanes.engine import BatchLimits, UnlimitedBatches
from backend.speech.engine_records import HeardPiece, LanguageRun, SpeechPiece, TimedText
from backend.speech.log_mel import HOP, log_mel
from backend.speech.spoken_languages import language_runs
from backend.speech.timed_text import split_by_times
from backend.speech.tokens import MOST_TOKENS, SpeechTokens
from backend.speech.whisper import LoadedWhisper, on_host
from backend.speech.windows import MARGIN, WHOLE_WINDOW, window_frames
from backend.speech.words import align_words, encoded_rows

TASK = "speech"  # the engine's name, and a label of its metrics
# Milliseconds of a batch. On a CPU four short pieces together take 20 % less than alone, and pieces of 26 s nothing
# less (measured, int8, one thread): more would only make a lane's next piece wait.
CPU_BUDGET = 30_000
CUDA_BUDGET = 480_000  # 16 windows of 30 s
_LEAST_SAMPLES = 1600  # 0.1 s: in less nobody says anything
_FIRST_TIME_S = 1.0  # the first time that a text may begin at: the cutter leaves no longer silence
# A piece may get so many, of its own length and not of its window: fast speech in Latin letters has 8 a second, other
# scripts up to 25 with the times; a loop has no end.
_TOKENS, _TOKENS_A_SECOND = 24, 25
_SAMPLED = 5  # texts that are sampled at temperatures above 0; the most likely one is taken


class WhisperLoader(Protocol):
    """Gives the engine its model, once a batch; loads it again where it was unloaded."""

    def get(self) -> LoadedWhisper: ...


class _Call(NamedTuple):
    """What pieces share that one call of the model may hear. Task, language and prompt are each one's own."""

    frames: int  # that the encoder hears
    prompt_tokens: int  # the task and the language among them
    most_tokens: int  # of each text: of a piece alone as in any batch
    beams: int
    temperature: float
    is_written: bool  # only the words of texts that were written before are looked for


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """Pieces that share a call of the model."""

    call: _Call
    indices: list[int]  # in the batch
    pieces: list[SpeechPiece]
    features: NDArray[np.float32]  # (pieces, mels, frames)

    @property
    def seconds(self) -> list[float]:
        return [len(piece.samples) / SAMPLE_RATE for piece in self.pieces]


@dataclass(frozen=True, slots=True, eq=False)
class PreparedPieces:
    """A batch that is ready to run."""

    whisper: LoadedWhisper | None  # None where no piece is long enough to be heard
    groups: list[_Group]
    payloads: Sequence[SpeechPiece]


@dataclass(frozen=True, slots=True)
class SpeechEngine:
    """One Whisper model on one device. Payload: `SpeechPiece`; result: `HeardPiece`."""

    source: WhisperLoader
    budget: int = CPU_BUDGET
    batch_limits: BatchLimits = field(default_factory=UnlimitedBatches)
    name: str = TASK
    padding_cost: float = 1.0
    launch_cost: int = 0

    def on(self, device_index: int) -> SpeechEngine:  # noqa: ARG002 - the model has one device
        return self

    def prepare(self, payloads: Sequence[SpeechPiece]) -> PreparedPieces:
        """Features of each piece; the model is loaded here if it was unloaded. Raises: Unavailable."""
        audible = [index for index, piece in enumerate(payloads) if len(piece.samples) >= _LEAST_SAMPLES]
        if not audible:
            return PreparedPieces(None, [], payloads)
        whisper = self.source.get()
        by_call: dict[_Call, list[int]] = {}
        for index in audible:
            by_call.setdefault(_call(payloads[index], whisper.tokens), []).append(index)
        groups = [
            _Group(
                call,
                indices,
                [payloads[index] for index in indices],
                _features(payloads, indices, whisper, call.frames),
            )
            for call, indices in by_call.items()
        ]
        return PreparedPieces(whisper, groups, payloads)

    def forward(self, prepared: PreparedPieces) -> list[HeardPiece]:
        """Encode, find languages, write, and look for the words' times: group by group."""
        heard = [_nothing(piece) for piece in prepared.payloads]
        for group in prepared.groups:
            assert prepared.whisper is not None
            for index, result in zip(group.indices, _transcribe(prepared.whisper, group), strict=True):
                heard[index] = result
        return heard

    def finish(self, output: list[HeardPiece]) -> Sequence[HeardPiece]:
        return output


def _call(piece: SpeechPiece, tokens: SpeechTokens) -> _Call:
    options, samples = piece.options, len(piece.samples)
    frames = window_frames(samples, whole=options.whole_window)
    if piece.written is not None:
        return _Call(frames, 0, 0, 0, 0.0, is_written=True)
    prompt = tokens.prompt(options.task, next(iter(tokens.languages)), options.prompt)  # as long in every language
    beams = 1 if options.temperature > 0 else options.beams
    return _Call(frames, len(prompt), _most_tokens(samples), beams, options.temperature, is_written=False)


def _features(
    payloads: Sequence[SpeechPiece], indices: Sequence[int], whisper: LoadedWhisper, frames: int
) -> NDArray[np.float32]:
    for index in indices:
        if len(payloads[index].samples) > WHOLE_WINDOW * HOP:
            raise ValueError(f"a piece of {len(payloads[index].samples)} samples is over {WHOLE_WINDOW * HOP}")
    return np.stack([log_mel(payloads[index].samples, whisper.mels, frames) for index in indices])


def _nothing(piece: SpeechPiece) -> HeardPiece:
    return HeardPiece((), HeardLanguage(piece.options.language, 0.0), 0.0, 1.0, 0.0, piece.options.temperature)


def _transcribe(whisper: LoadedWhisper, group: _Group) -> Iterator[HeardPiece]:
    import ctranslate2  # loaded with the model

    encoded = whisper.model.encode(ctranslate2.StorageView.from_array(group.features))
    if group.call.is_written:
        heard = [piece.written for piece in group.pieces if piece.written is not None]
    else:
        heard = list(_written(whisper, encoded, group))
    texts = align_words(
        whisper,
        encoded,
        [_to_align(piece, result) for piece, result in zip(group.pieces, heard, strict=True)],
        languages=[result.language for result in heard],
        tasks=[piece.options.task for piece in group.pieces],
        seconds=group.seconds,
    )
    for result, segments in zip(heard, texts, strict=True):
        yield replace(result, segments=segments or result.segments)


def _to_align(piece: SpeechPiece, heard: HeardPiece) -> tuple[TimedText, ...]:
    """The texts of a piece whose words are wanted; none of one in several languages, which is heard again in parts."""
    return heard.segments if piece.options.with_words and not heard.runs else ()


def _written(whisper: LoadedWhisper, encoded: Any, group: _Group) -> Iterator[HeardPiece]:
    """What the model writes for each piece, without words."""
    tokens, pieces = whisper.tokens, group.pieces
    languages = _languages(whisper, encoded, pieces)
    prompts = [
        tokens.prompt(piece.options.task, language.code or "en", piece.options.prompt)
        for piece, language in zip(pieces, languages, strict=True)
    ]
    results = whisper.model.generate(encoded, prompts, **_decoding(group.call))
    runs = _runs(whisper, encoded, group, languages)
    for piece, result, language, seconds, spoken in zip(pieces, results, languages, group.seconds, runs, strict=True):
        segments = split_by_times(result.sequences_ids[0], tokens, seconds)
        yield _heard(result, language, segments, piece.options.temperature, spoken)


def _runs(
    whisper: LoadedWhisper, encoded: Any, group: _Group, languages: Sequence[HeardLanguage]
) -> list[tuple[LanguageRun, ...]]:
    """Where which language is spoken in each piece, unless one was asked for."""
    asked = [piece.options.language for piece in group.pieces]
    if all(asked) or not whisper.tokens.is_multilingual:
        return [()] * len(languages)
    return [
        () if code else language_runs(whisper, rows, seconds, language.code or "en")
        for code, rows, seconds, language in zip(asked, on_host(encoded), group.seconds, languages, strict=True)
    ]


def _languages(whisper: LoadedWhisper, encoded: Any, pieces: Sequence[SpeechPiece]) -> list[HeardLanguage]:
    """The language that was asked for, else each piece's own with its score."""
    if not whisper.tokens.is_multilingual:
        return [HeardLanguage("en", 1.0)] * len(pieces)
    languages = [HeardLanguage(piece.options.language, 1.0) for piece in pieces]
    unknown = [index for index, language in enumerate(languages) if language.code is None]
    if unknown:
        found = whisper.model.detect_language(encoded_rows(encoded, unknown))
        for index, scores in zip(unknown, found, strict=True):
            languages[index] = HeardLanguage(scores[0][0][2:-2], round(float(scores[0][1]), 4))
    return languages


def _most_tokens(samples: int) -> int:
    """Tokens that a text of so much audio may have; the same for all whose window ends in the same step."""
    frames = window_frames(samples, whole=False) - MARGIN
    return min(MOST_TOKENS, _TOKENS + _TOKENS_A_SECOND * max(100, frames) // 100)


def _decoding(call: _Call) -> dict[str, Any]:
    """CTranslate2's arguments."""
    decoding: dict[str, Any] = {
        "max_length": min(MOST_TOKENS, call.prompt_tokens + call.most_tokens),
        "return_scores": True,
        "return_no_speech_prob": True,
        "max_initial_timestamp_index": round(_FIRST_TIME_S * 50),
        "beam_size": call.beams,
    }
    if call.temperature > 0:
        decoding |= {"sampling_topk": 0, "sampling_temperature": call.temperature, "num_hypotheses": _SAMPLED}
    return decoding


def _heard(
    result: Any,
    language: HeardLanguage,
    segments: tuple[TimedText, ...],
    temperature: float,
    runs: tuple[LanguageRun, ...],
) -> HeardPiece:
    count = len(result.sequences_ids[0])
    return HeardPiece(
        segments=segments,
        language=language,
        avg_logprob=float(result.scores[0]) * count / (count + 1),  # the end token counts; CTranslate2 leaves it out
        no_speech_prob=float(result.no_speech_prob),
        compression_ratio=compression_ratio(" ".join(segment.text for segment in segments)),
        temperature=temperature,
        runs=runs,
    )


def compression_ratio(text: str) -> float:
    """How many times zlib makes a text smaller; of a text that repeats itself more than twice. 0 of an empty text."""
    content = text.encode()
    return len(content) / len(zlib.compress(content)) if content else 0.0
