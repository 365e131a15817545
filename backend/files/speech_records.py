"""Records of speech: audio as it is decoded, and what was said in it, with seconds from the beginning of the file."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from numpy import int16
    from numpy.typing import NDArray

SAMPLE_RATE = 16_000  # Hz, mono: what the models hear
SpeechTask = Literal["transcribe", "translate"]  # translate: into English


class SpokenLanguage(NamedTuple):
    """A language with its score, 0 to 1, over the pieces it was looked for in."""

    code: str | None  # ISO 639-1; None where it is unknown
    score: float


# Ideographs, kana, and the punctuation that goes with them. Thai and its neighbours do part their phrases by spaces.
_WIDE = re.compile(
    "[\u2e80-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff01-\uff60\U00020000-\U0003ffff]"
)

_WORD = re.compile(r"\S+")


def gap(before: str, after: str) -> str:
    """What stands between two texts that follow each other: a space, or nothing between wide letters."""
    if not before or not after:
        return ""
    return "" if _WIDE.match(before[-1]) and _WIDE.match(after[0]) else " "


def joined(texts: Iterable[str]) -> str:
    """Texts in their order as one."""
    parts: list[str] = []
    for text in filter(None, texts):
        parts += [gap(parts[-1] if parts else "", text), text]
    return "".join(parts)


def width(text: str) -> int:
    """Columns that a text takes: wide letters take two."""
    return len(text) + len(_WIDE.findall(text))


@dataclass(frozen=True, slots=True)
class AudioInfo:
    """What opening a sound file tells, before it is decoded."""

    codec: str  # of the sound track that is heard: "mp3", "opus", "pcm_s16le"
    rate: int  # Hz
    channels: int
    declared_s: float | None  # what the file says; nothing relies on it
    tracks: int = 1  # of sound; the first is heard


@dataclass(frozen=True, slots=True)
class AudioSlice:
    """A stretch of decoded audio."""

    samples: NDArray[int16]  # SAMPLE_RATE, mono
    start: int  # samples before it
    is_last: bool
    incomplete: str = ""  # one sentence: what of a damaged file could not be decoded

    @property
    def start_s(self) -> float:
        return self.start / SAMPLE_RATE


class SpokenWord(NamedTuple):
    """A word with its time."""

    text: str  # without spaces around it
    start_s: float
    end_s: float
    confidence: float  # 0 to 1
    is_joined: bool = False  # to the word before, without a space: of languages that write none


@dataclass(frozen=True, slots=True)
class Segment:
    """A sentence, or a part of one before or after a pause."""

    start_s: float
    end_s: float
    text: str
    words: tuple[SpokenWord, ...] = ()  # empty unless they were asked for
    tokens: tuple[int, ...] = ()
    language: str | None = None  # ISO 639-1
    avg_logprob: float = 0.0  # of a token; below -1 the text is doubtful
    compression_ratio: float = 1.0  # of the text by zlib; above 2.4 it repeats itself
    no_speech_prob: float = 0.0  # 0 to 1
    temperature: float = 0.0  # that it was sampled with
    speaker: int | None = None  # numbered as they first speak; where it was asked for
    is_cut: bool = False  # it begins or ends where speech without a pause was cut: words there may be wrong

    def timed_words(self) -> tuple[SpokenWord, ...]:
        """Its words; where they have no times, the segment's is shared out by characters."""
        return self.words or tuple(self._shared_out())

    def second_at(self, place: int) -> float:
        """When the character at a place of the text is said, if each takes the same time, and a wide one that of two.

        A space that follows the text counts, so that words of one length take the same time.
        """
        return self.start_s + (self.end_s - self.start_s) * width(self.text[:place]) / (width(self.text) + 1)

    def _shared_out(self) -> Iterator[SpokenWord]:
        confidence = min(1.0, math.exp(self.avg_logprob))
        words = list(_WORD.finditer(self.text))
        times_s = [*(self.second_at(word.start()) for word in words), self.end_s]
        for word, (start_s, end_s) in zip(words, pairwise(times_s), strict=True):
            yield SpokenWord(word[0], start_s, end_s, confidence)


@dataclass(frozen=True, slots=True)
class DroppedSpeech:
    """A stretch whose text was not kept, or that has none though somebody speaks, and why."""

    start_s: float
    end_s: float
    text: str
    why: str  # one sentence


@dataclass(frozen=True, slots=True)
class Transcript:
    """What was said in one file."""

    duration_s: float  # decoded
    language: SpokenLanguage  # of most of the speech
    segments: tuple[Segment, ...]  # by start; no two overlap
    dropped: tuple[DroppedSpeech, ...] = ()
    speech_s: float = 0.0  # in which somebody speaks
    why: str = ""  # one sentence about an empty or incomplete transcript; empty where all is well
    model: str = ""

    @property
    def text(self) -> str:
        return joined(segment.text for segment in self.segments)
