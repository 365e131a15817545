"""The engine that writes what is said: Whisper on pieces of all requests, with times and, where asked for, words."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from backend.files.speech_records import SAMPLE_RATE, SpokenLanguage
from backend.lanes.engine import BatchLimits, UnlimitedBatches
from backend.speech.model_files import MAX_TOKENS, SpeechTokens
from backend.speech.records import (
    MARGIN,
    WHOLE_WINDOW,
    DecodedPiece,
    LanguageRun,
    SpeechPiece,
    TimedText,
    window_frames,
)
from backend.speech.whisper import LoadedWhisper, WhisperSource, on_host
from backend.speech.words import align_words, encoded_rows


def split_by_times(written: Sequence[int], tokens: SpeechTokens, duration_s: float) -> tuple[TimedText, ...]:
    """The segments of what the model wrote for a piece, in order; a text without an end lasts to the piece's.

    A piece ends where nobody speaks, so that a last text without a time after it is whole, too.
    """
    segments: list[TimedText] = []
    start_s, own = 0.0, []
    has_text = False
    for token in written:
        own.append(token)
        if not tokens.is_time(token):
            has_text = has_text or token < tokens.end
            continue
        at_s = min(tokens.seconds(token), duration_s)
        if has_text:
            _append(segments, tokens, start_s, at_s, own)
            own, has_text = [], False
        else:
            own = [token]  # the time that the next text begins at
        start_s = at_s
    if has_text:
        _append(segments, tokens, start_s, duration_s, own)
    return tuple(segments)


def _append(segments: list[TimedText], tokens: SpeechTokens, start_s: float, end_s: float, own: list[int]) -> None:
    text = tokens.decode(own).strip()
    if text:
        segments.append(TimedText(start_s, max(start_s, end_s), text, tuple(own)))


HOP = 160  # samples between two frames: 100 frames a second
_WINDOW = 400  # samples of a frame
_RANGE = 8.0  # what is quieter than the loudest value by more than this, in powers of ten, is silence
_MIN_POWER = 1e-10
_LINEAR_HZ, _MEL_STEP_HZ = 1000.0, 200.0 / 3  # Slaney's scale: linear below, logarithmic above
_LOG_STEP = np.log(6.4) / 27.0


def log_mel(samples: NDArray[np.int16], mels: int, frames: int) -> NDArray[np.float32]:
    """The features of audio that is followed by silence up to ``frames``, as OpenAI's code and transformers have them.

    Shapes: samples (n) -> (mels, frames) float32. Audio beyond ``frames`` is left out.
    """
    audio = np.zeros(min(frames * HOP, len(samples) + _WINDOW), np.float32)  # the last frames reach into the silence
    count = min(len(samples), len(audio))
    audio[:count] = samples[:count]
    audio /= 32768.0
    if len(audio) <= _WINDOW:
        audio = np.pad(audio, (0, _WINDOW))
    log_power = np.log10(np.maximum(_mel_filters(mels) @ _power(audio), _MIN_POWER))[:, :frames]
    floor = max(float(log_power.max(initial=np.log10(_MIN_POWER))) - _RANGE, float(np.log10(_MIN_POWER)))
    features = np.full((mels, frames), floor, np.float32)
    np.maximum(log_power, floor, out=features[:, : log_power.shape[1]])
    features += 4.0
    features /= 4.0
    return features


def _power(audio: NDArray[np.float32]) -> NDArray[np.float32]:
    """Power by frequency and frame. Shapes: (n) -> (201, n // 160) float32."""
    padded = np.pad(audio, _WINDOW // 2, mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, _WINDOW)[::HOP][: len(audio) // HOP]
    spectrum = np.fft.rfft(windows * _hann(), axis=-1)
    power: NDArray[np.float32] = (spectrum.real**2 + spectrum.imag**2).T.astype(np.float32)
    return power


@cache
def _hann() -> NDArray[np.float32]:
    return np.hanning(_WINDOW + 1)[:-1].astype(np.float32)


@cache
def _mel_filters(mels: int) -> NDArray[np.float32]:
    """Triangular filters on Slaney's scale, each of area one. Shapes: (mels, 201).

    Source: librosa.filters.mel, which OpenAI's mel_filters.npz was made with.
    """
    top = _LINEAR_HZ / _MEL_STEP_HZ + np.log(SAMPLE_RATE / 2 / _LINEAR_HZ) / _LOG_STEP
    points = np.linspace(0.0, top, mels + 2)
    linear_points = _LINEAR_HZ / _MEL_STEP_HZ
    edges_hz = np.where(
        points < linear_points, points * _MEL_STEP_HZ, _LINEAR_HZ * np.exp(_LOG_STEP * (points - linear_points))
    )
    bins_hz = np.fft.rfftfreq(_WINDOW, 1.0 / SAMPLE_RATE)
    rising = (bins_hz - edges_hz[:-2, None]) / (edges_hz[1:-1] - edges_hz[:-2])[:, None]
    falling = (edges_hz[2:, None] - bins_hz) / (edges_hz[2:] - edges_hz[1:-1])[:, None]
    weights = np.maximum(0.0, np.minimum(rising, falling)) * (2.0 / (edges_hz[2:] - edges_hz[:-2]))[:, None]
    filters: NDArray[np.float32] = weights.astype(np.float32)
    return filters


_ROWS_A_SECOND = 50  # of the encoder's output
_MIN_S = 4.0  # a shorter piece is in one language
_WINDOW_S = 4.0  # in which a language is told well
_FINER_S, _STEP_S = 3.0, 1.0  # windows that overlap, which tell where a language changes
_SURE = 0.7  # score of a window from which its language counts
_SUSPECT = 0.5  # score of the piece's own language in a window, below which windows that overlap are looked at
_DENIED, _MIN_DENIED = 0.1, 5  # so many windows that give the piece's own language less say another, if unsurely
_MIN_SCORE = 0.01  # a score below says no more than this
_SWITCH = 4.0  # what a change of language must gain, in nats: about one second of clear speech

Scores = Mapping[str, float]


def language_runs(whisper: LoadedWhisper, encoded: NDArray[Any], seconds: float, own: str) -> tuple[LanguageRun, ...]:
    """Where which language is spoken in a piece; empty where it is one.

    Shapes: encoded (rows of 0.02 s, width).

    Args:
        own: the language of the piece as a whole.
    """
    if seconds < _MIN_S:
        return ()
    count = max(1, round(seconds / _WINDOW_S))
    coarse = _scores(whisper, encoded, [index * seconds / count for index in range(count)], seconds / count)
    if all(scores.get(own, 0.0) >= _SUSPECT for scores in coarse):
        return ()
    length_s = min(_FINER_S, seconds)
    starts_s = [_STEP_S * index for index in range(1 + int((seconds - length_s) / _STEP_S))]
    finer = _scores(whisper, encoded, starts_s, length_s)
    codes = _sure_of([*coarse, *finer], own)
    if len(codes) == 1:
        return ()
    evidence = np.zeros((math.ceil(seconds / _STEP_S), len(codes)))
    for start_s, scores in zip(starts_s, finer, strict=True):
        first = int(start_s / _STEP_S)
        evidence[first : first + round(length_s / _STEP_S)] += [_log(scores, code) for code in codes]
    path = _best_path(evidence * _STEP_S / _FINER_S)  # at the ends fewer windows speak, and say less
    return _runs_of_codes([codes[index] for index in path], finer, seconds)


def _scores(whisper: LoadedWhisper, encoded: NDArray[Any], starts_s: Sequence[float], length_s: float) -> list[Scores]:
    """The scores of all languages in windows of one length."""
    import ctranslate2  # loaded with the model

    rows = min(len(encoded), int(length_s * _ROWS_A_SECOND))
    firsts = [min(round(start_s * _ROWS_A_SECOND), len(encoded) - rows) for start_s in starts_s]
    windows = np.ascontiguousarray(np.stack([encoded[first : first + rows] for first in firsts]))
    found = whisper.model.detect_language(ctranslate2.StorageView.from_array(windows))
    return [{token[2:-2]: float(score) for token, score in scores} for scores in found]


def _sure_of(windows: Sequence[Scores], own: str) -> list[str]:
    """The languages that may be spoken: the piece's own, those that a window is sure of, and what others rather are."""
    codes = [own]
    for scores in windows:
        code = max(scores, key=scores.__getitem__)
        if scores[code] >= _SURE and code not in codes:
            codes.append(code)
    denied = [scores for scores in windows if scores.get(own, 0.0) < _DENIED]
    if len(denied) >= _MIN_DENIED:
        others = sorted({code for scores in denied for code in scores} - {own})
        code = max(others, key=lambda other: sum(scores.get(other, 0.0) for scores in denied))
        codes += [] if code in codes else [code]
    return codes


def _log(scores: Scores, code: str) -> float:
    return math.log(max(_MIN_SCORE, scores.get(code, 0.0)))


def _best_path(evidence: NDArray[np.float64]) -> list[int]:
    """The column of each row, such that their sum less the cost of changes is the highest (Viterbi)."""
    best, came_from = evidence[0], []
    for row in evidence[1:]:
        other = int(np.argmax(best))
        stays = best >= best[other] - _SWITCH
        came_from.append(np.where(stays, np.arange(len(best)), other))
        best = np.where(stays, best, best[other] - _SWITCH) + row
    path = [int(np.argmax(best))]
    for columns in reversed(came_from):
        path.append(int(columns[path[-1]]))
    return path[::-1]


def _runs_of_codes(codes: Sequence[str], windows: Sequence[Scores], seconds: float) -> tuple[LanguageRun, ...]:
    """The runs of equal codes, one a step.

    Args:
        windows: that begin a step after another; the last steps have none of their own.
    """
    runs, at = [], 0
    for code, steps in groupby(codes):
        end = at + len(list(steps))
        own = windows[min(at, len(windows) - 1) : end]
        score = sum(scores.get(code, 0.0) for scores in own) / len(own)
        runs.append(LanguageRun(code, at * _STEP_S, min(seconds, end * _STEP_S), round(score, 4)))
        at = end
    return tuple(runs) if len(runs) > 1 else ()


TASK = "speech"  # the engine's name, and a label of its metrics
# Milliseconds of a batch. On a CPU four short pieces together take 20 % less than alone, and pieces of 26 s nothing
# less (measured, int8, one thread): more would only make a lane's next piece wait.
CPU_BUDGET = 30_000
WINDOW_MS = 30_000  # that the encoder hears at once
CUDA_BUDGET = 16 * WINDOW_MS
_MIN_SAMPLES = 1600  # 0.1 s: in less nobody says anything
_FIRST_TIME_S = 1.0  # the first time that a text may begin at: the cutter leaves no longer silence
# A piece may get so many, of its own length and not of its window: fast speech in Latin letters has 8 a second, other
# scripts up to 25 with the times; a loop has no end.
_TOKENS, _TOKENS_A_SECOND = 24, 25
_SAMPLED = 5  # texts that are sampled at temperatures above 0; the most likely one is taken


class _Call(NamedTuple):
    """What pieces share that one call of the model may decode. Task, language and prompt are each one's own."""

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

    whisper: LoadedWhisper | None  # None where no piece is long enough to be decoded
    groups: list[_Group]
    payloads: Sequence[SpeechPiece]


@dataclass(frozen=True, slots=True)
class SpeechEngine:
    """One Whisper model on one device. Payload: `SpeechPiece`; result: `DecodedPiece`."""

    source: WhisperSource
    budget: int = CPU_BUDGET
    batch_limits: BatchLimits = field(default_factory=UnlimitedBatches)
    name: str = TASK
    padding_cost: float = 1.0
    launch_cost: int = 0

    def on(self, device_index: int) -> SpeechEngine:  # noqa: ARG002 - the model has one device
        return self

    def prepare(self, payloads: Sequence[SpeechPiece]) -> PreparedPieces:
        """Features of each piece; the model is loaded here if it was unloaded. Raises: Unavailable."""
        audible = [index for index, piece in enumerate(payloads) if len(piece.samples) >= _MIN_SAMPLES]
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

    def forward(self, prepared: PreparedPieces) -> list[DecodedPiece]:
        """Encode, find languages, write, and look for the words' times: group by group."""
        decoded = [_nothing(piece) for piece in prepared.payloads]
        for group in prepared.groups:
            assert prepared.whisper is not None
            for index, result in zip(group.indices, _transcribe(prepared.whisper, group), strict=True):
                decoded[index] = result
        return decoded

    def finish(self, output: list[DecodedPiece]) -> Sequence[DecodedPiece]:
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


def _nothing(piece: SpeechPiece) -> DecodedPiece:
    return DecodedPiece((), SpokenLanguage(piece.options.language, 0.0), 0.0, 1.0, 0.0, piece.options.temperature)


def _transcribe(whisper: LoadedWhisper, group: _Group) -> Iterator[DecodedPiece]:
    import ctranslate2  # loaded with the model

    encoded = whisper.model.encode(ctranslate2.StorageView.from_array(group.features))
    if group.call.is_written:
        decoded = [piece.written for piece in group.pieces if piece.written is not None]
    else:
        decoded = list(_written(whisper, encoded, group))
    texts = align_words(
        whisper,
        encoded,
        [_to_align(piece, result) for piece, result in zip(group.pieces, decoded, strict=True)],
        languages=[result.language for result in decoded],
        tasks=[piece.options.task for piece in group.pieces],
        seconds=group.seconds,
    )
    for result, segments in zip(decoded, texts, strict=True):
        yield replace(result, segments=segments or result.segments)


def _to_align(piece: SpeechPiece, decoded: DecodedPiece) -> tuple[TimedText, ...]:
    """The texts of a piece whose words are wanted; none where it is decoded again by language."""
    return decoded.segments if piece.options.with_words and not decoded.runs else ()


def _written(whisper: LoadedWhisper, encoded: Any, group: _Group) -> Iterator[DecodedPiece]:
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
        yield _decoded(result, language, segments, piece.options.temperature, spoken)


def _runs(
    whisper: LoadedWhisper, encoded: Any, group: _Group, languages: Sequence[SpokenLanguage]
) -> list[tuple[LanguageRun, ...]]:
    """Where which language is spoken in each piece, unless one was asked for."""
    asked = [piece.options.language for piece in group.pieces]
    if all(asked) or not whisper.tokens.is_multilingual:
        return [()] * len(languages)
    return [
        () if code else language_runs(whisper, rows, seconds, language.code or "en")
        for code, rows, seconds, language in zip(asked, on_host(encoded), group.seconds, languages, strict=True)
    ]


def _languages(whisper: LoadedWhisper, encoded: Any, pieces: Sequence[SpeechPiece]) -> list[SpokenLanguage]:
    """The language that was asked for, else each piece's own with its score."""
    if not whisper.tokens.is_multilingual:
        return [SpokenLanguage("en", 1.0)] * len(pieces)
    languages = [SpokenLanguage(piece.options.language, 1.0) for piece in pieces]
    unknown = [index for index, language in enumerate(languages) if language.code is None]
    if unknown:
        found = whisper.model.detect_language(encoded_rows(encoded, unknown))
        for index, scores in zip(unknown, found, strict=True):
            languages[index] = SpokenLanguage(scores[0][0][2:-2], round(float(scores[0][1]), 4))
    return languages


def _most_tokens(samples: int) -> int:
    """Tokens that a text of so much audio may have; the same for all whose window ends in the same step."""
    frames = window_frames(samples, whole=False) - MARGIN
    return min(MAX_TOKENS, _TOKENS + _TOKENS_A_SECOND * max(100, frames) // 100)


def _decoding(call: _Call) -> dict[str, Any]:
    """CTranslate2's arguments."""
    decoding: dict[str, Any] = {
        "max_length": min(MAX_TOKENS, call.prompt_tokens + call.most_tokens),
        "return_scores": True,
        "return_no_speech_prob": True,
        "max_initial_timestamp_index": round(_FIRST_TIME_S * 50),
        "beam_size": call.beams,
    }
    if call.temperature > 0:
        decoding |= {"sampling_topk": 0, "sampling_temperature": call.temperature, "num_hypotheses": _SAMPLED}
    return decoding


def _decoded(
    result: Any,
    language: SpokenLanguage,
    segments: tuple[TimedText, ...],
    temperature: float,
    runs: tuple[LanguageRun, ...],
) -> DecodedPiece:
    count = len(result.sequences_ids[0])
    return DecodedPiece(
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
