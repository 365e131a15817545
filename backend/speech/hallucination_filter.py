"""What of a piece's text was really said: kept, decoded again, or dropped with a reason. Pure.

Thresholds of compression, probability and silence are OpenAI's own (whisper/transcribe.py).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from backend.normal_forms import normalized
from backend.reasons import because
from backend.speech.records import DecodedPiece, TimedText

MAX_COMPRESSION = 2.4  # text that zlib makes smaller than this repeats itself
MIN_LOGPROB = -1.0  # of a token on average; below it the text is doubtful
MAX_NO_SPEECH = 0.6  # probability that nobody speaks, which counts where the text is doubtful
_TEMPERATURES = (0.2, 0.4, 0.6, 0.8, 1.0)
MAX_ATTEMPTS = 5  # of one piece: as asked, with the whole window, and three temperatures
# Attempts that repeat themselves before a piece is given up: as asked, with the whole window, and by chance. Each runs
# to its last token, which takes longer than any text; a count, not seconds, as a text must not depend on the load.
MAX_LOOPS = 3
_LOOPS = ((1, 8), (2, 5), (4, 4), (8, 3), (30, 3))  # (words of a phrase at most, times one after the other)
_LOOP_SHARE = 0.5  # of a segment's words that must be in the loop
_MIN_REPEATED = 4  # words of a sentence that is said again
_MIN_COPIES = 1.6  # of it: the last one may be cut off
_EQUAL_SHARE = 0.75  # of its words: the copies are not always the same
_MIN_SEGMENT_S = 0.05  # what is said in less was written after the end of the audio
_MIN_GAP_S = 1.5  # of speech without text that is worth another look
# What subtitles of the training data said while nobody spoke. Each is dropped only where more speaks against it.
_PHANTOMS = (
    "subtitulos realizados por la comunidad de amara org", "subtitulos por la comunidad de amara org",
    "subtitulado por la comunidad de amara org", "subtitles by the amara org community", "amara org",
    "gracias por ver el video", "gracias por ver", "muchas gracias por ver el video", "suscribete al canal",
    "suscribete", "no olvides suscribirte", "hasta la proxima", "hasta el proximo video",
    "nos vemos en el proximo video", "mas informacion www alimmenta com", "thanks for watching",
    "thank you for watching", "thank you so much for watching", "thanks for watching and see you next time",
    "please subscribe", "please subscribe to my channel", "like and subscribe", "see you in the next video",
    "see you next time", "subtitles by", "transcription by castingwords",
    "sous titres realises par la communaute d amara org", "sous titrage st 501", "merci d avoir regarde cette video",
    "untertitel der amara org community", "untertitel im auftrag des zdf fur funk 2017", "vielen dank furs zuschauen",
    "sottotitoli creati dalla comunita amara org", "sottotitoli e revisione a cura di qtss",
    "legendas pela comunidade amara org", "obrigado por assistir",
)  # fmt: skip
# That people say as often, and that stand alone in their segment, with the pause after them: only the model's doubt
# counts, or a length that no pause has.
_COURTESIES = ("thank you", "you", "bye")
_LONGEST_COURTESY_S = 10.0  # pieces are cut at longer silences
_PHANTOM_NO_SPEECH, _PHANTOM_LOGPROB = 0.3, -0.7
_FASTEST, _SLOWEST = 30.0, 3.0  # characters a second that somebody says


@dataclass(frozen=True, slots=True)
class Attempt:
    """How a piece is decoded."""

    temperature: float = 0.0
    whole_window: bool = False


@dataclass(frozen=True, slots=True)
class Judgement:
    """What to do with a piece."""

    best: int  # index of the attempt that counts
    again: Attempt | None = None  # decode it once more like this, and judge again
    dropped: Mapping[int, str] = field(default_factory=dict)  # index of a segment of the best -> why, one sentence


def judge(tried: Sequence[DecodedPiece], asked: Attempt) -> Judgement:
    """Whether the last attempt at a piece is good enough, what to try next, and in the end what to keep.

    Args:
        tried: what came of every attempt so far, at least one, in order.
        asked: how the first attempt was made.
    """
    last, following = len(tried) - 1, _attempts(asked)
    is_short = not following[last].whole_window
    if (_is_sound(tried[last]) or _nobody_speaks(tried[last])) and not (is_short and _starts_over(tried[last])):
        return Judgement(last, dropped=_dropped(tried[last]))
    is_looping = sum(map(_repeats, tried)) >= MAX_LOOPS
    if len(tried) < len(following) and not is_looping:
        return Judgement(last, again=following[len(tried)])
    best = max(range(len(tried)), key=lambda index: (not _repeats(tried[index]), tried[index].avg_logprob))
    return Judgement(best, dropped=_dropped(tried[best]))


def undecoded(decoded: DecodedPiece, speech: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Stretches in which somebody speaks and no segment has a text: the model sometimes stops early, or skips.

    Pauses within a stretch belong to it: a phrase is decoded better with its neighbours.

    Args:
        speech: where somebody speaks, in seconds from the piece's beginning, in order.
    """
    gaps: list[tuple[float, float]] = []
    for start_s, end_s in speech:
        at_s = start_s
        for segment in decoded.segments:
            if segment.end_s <= at_s or segment.start_s >= end_s:
                continue
            gaps.append((at_s, segment.start_s))
            at_s = segment.end_s
        gaps.append((at_s, end_s))
    joined: list[tuple[float, float]] = []
    for start_s, end_s in gaps:
        if end_s <= start_s:
            continue
        if joined and not any(joined[-1][1] < segment.end_s <= start_s for segment in decoded.segments):
            joined[-1] = (joined[-1][0], end_s)
        else:
            joined.append((start_s, end_s))
    return [(start_s, end_s) for start_s, end_s in joined if end_s - start_s >= _MIN_GAP_S]


def has_loop(text: str) -> bool:
    """Whether most of a text is one phrase over and over, more often than anybody says it."""
    words = _plain(text).split()
    return any(
        _most_in_a_row(words, length) >= max(_least_times(length) * length, _LOOP_SHARE * len(words))
        for length in range(1, min(_LOOPS[-1][0], len(words) // 3) + 1)
    )


def starts_over(text: str) -> bool:
    """Whether a text is one sentence said twice or more: what the model does when its window ends too soon.

    Somebody may say a thing twice: the same text with the whole window is kept.
    """
    words = _plain(text).split()
    return any(
        _equal_share(words[length:], words) >= _EQUAL_SHARE
        for length in range(_MIN_REPEATED, int(len(words) / _MIN_COPIES) + 1)
    )


def _equal_share(words: Sequence[str], others: Sequence[str]) -> float:
    """Share of the words that are equal to those at the same place."""
    return sum(word == other for word, other in zip(words, others, strict=False)) / len(words)


def _least_times(length: int) -> int:
    return next(times for longest, times in _LOOPS if length <= longest)


def _attempts(asked: Attempt) -> list[Attempt]:
    """All attempts at a piece in order: the cheap one, the one that the model was trained for, then by chance."""
    attempts = [asked]
    if not asked.whole_window:
        attempts.append(Attempt(asked.temperature, whole_window=True))
    attempts += [Attempt(warmer, whole_window=True) for warmer in _TEMPERATURES if warmer > asked.temperature]
    return attempts[:MAX_ATTEMPTS]


def _is_sound(decoded: DecodedPiece) -> bool:
    return decoded.avg_logprob >= MIN_LOGPROB and not _repeats(decoded)


def _starts_over(decoded: DecodedPiece) -> bool:
    text = " ".join(segment.text for segment in decoded.segments)
    spoken_s = sum(segment.end_s - segment.start_s for segment in decoded.segments)
    is_beyond = any(_is_beyond(segment) for segment in decoded.segments)
    return is_beyond or starts_over(text) or len(text) > _FASTEST * max(1.0, spoken_s)


def _is_beyond(segment: TimedText) -> bool:
    return segment.end_s - segment.start_s < _MIN_SEGMENT_S


def _repeats(decoded: DecodedPiece) -> bool:
    return decoded.compression_ratio > MAX_COMPRESSION or any(has_loop(segment.text) for segment in decoded.segments)


def _nobody_speaks(decoded: DecodedPiece) -> bool:
    return decoded.no_speech_prob > MAX_NO_SPEECH and decoded.avg_logprob < MIN_LOGPROB


def _dropped(decoded: DecodedPiece) -> dict[int, str]:
    """Segments that were not said, with the reason."""
    if _nobody_speaks(decoded):
        why = because("text_doubtful", probability=decoded.no_speech_prob)
        return dict.fromkeys(range(len(decoded.segments)), why)
    dropped: dict[int, str] = {}
    repeats = decoded.compression_ratio > MAX_COMPRESSION
    for index, segment in enumerate(decoded.segments):
        if has_loop(segment.text) or (repeats and len(decoded.segments) == 1):
            dropped[index] = because("repeated")
        elif _is_beyond(segment):
            dropped[index] = because("after_end")
        elif why := _phantom(segment, decoded):
            dropped[index] = why
    return dropped


def _phantom(segment: TimedText, decoded: DecodedPiece) -> str:
    """Why a segment is a phrase that nobody said; empty where somebody may have."""
    plain, seconds = _plain(segment.text), segment.end_s - segment.start_s
    is_courtesy = plain in _COURTESIES
    if plain not in _PHANTOMS and not is_courtesy:
        return ""
    rate = len(segment.text) / max(0.01, seconds)
    reasons = [
        f"nobody may be speaking (probability {decoded.no_speech_prob:.2f})"
        * (decoded.no_speech_prob > _PHANTOM_NO_SPEECH),
        "the model doubts it" * (decoded.avg_logprob < _PHANTOM_LOGPROB),
        "nobody says it that fast" * (rate > _FASTEST and not is_courtesy),
        "nobody says it that slowly" * (seconds > _LONGEST_COURTESY_S if is_courtesy else rate < _SLOWEST),
    ]
    first = next((reason for reason in reasons if reason), "")
    return first and because("phantom", reason=first)


def _most_in_a_row(words: Sequence[str], length: int) -> int:
    """Words in the longest run of one phrase of ``length`` words."""
    longest = run = 0
    for index in range(length, len(words)):
        run = run + 1 if words[index] == words[index - length] else 0
        longest = max(longest, run)
    return longest + length if longest else 0


def _plain(text: str) -> str:
    """Lower case, without accents and punctuation."""
    decomposed = normalized("NFD", text.lower())
    kept = (" " if unicodedata.category(char)[0] in "PSZ" else char for char in decomposed if char.isprintable())
    return " ".join("".join(char for char in kept if not unicodedata.combining(char)).split())
