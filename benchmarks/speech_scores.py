"""Metrics of transcripts: word error rate, and whether each clip of a long file is found where it stands."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rapidfuzz.distance import Levenshtein

from benchmarks.speech_clips import Placed

LOST_BELOW = 0.5  # of the words that are found when the clip is transcribed alone
_SLACK_S = 1.0  # a word's time may lie this far outside its clip
_JOINED = re.compile(r"(?<=\w)['\u2019](?=\w)")  # "beauty's" is one word however it is written


@dataclass(frozen=True, slots=True)
class WordScore:
    """Edit distance in words."""

    edits: int  # insertions, deletions and replacements
    words: int  # of the truth

    @property
    def wer(self) -> float:
        """Word error rate; may exceed 1.0."""
        return self.edits / max(1, self.words)

    def __add__(self, other: WordScore) -> WordScore:
        return WordScore(self.edits + other.edits, self.words + other.words)


@dataclass(frozen=True, slots=True)
class TimedText:
    """A stretch of a transcript: a word or a segment."""

    text: str
    start_s: float
    end_s: float


def words(text: str) -> list[str]:
    """Lower case, NFC, without punctuation; numbers as they are written."""
    plain = _JOINED.sub("", unicodedata.normalize("NFC", text).lower())
    return re.sub(r"[^\w\s]|_", " ", plain).split()


def score(heard: str, truth: str) -> WordScore:
    """Compare two texts word by word."""
    expected = words(truth)
    return WordScore(Levenshtein.distance(words(heard), expected), len(expected))


def total(scores: Iterable[WordScore]) -> WordScore:
    """Of a set: all edits over all words, so that long clips count more."""
    return sum(scores, WordScore(0, 0))


def found_words(heard: Sequence[str], truth: Sequence[str]) -> list[bool]:
    """For each word of the truth, whether it is in the transcript at its place in the order."""
    found = [False] * len(truth)
    for block in Levenshtein.opcodes(heard, truth):
        if block.tag == "equal":
            found[block.dest_start : block.dest_end] = [True] * (block.dest_end - block.dest_start)
    return found


def found_by_clip(heard: str, truths: Sequence[str]) -> list[float]:
    """Share of each clip's words that are found, in the order of the clips, in the transcript of all of them."""
    expected = [words(truth) for truth in truths]
    found = found_words(words(heard), [word for clip in expected for word in clip])
    shares, start = [], 0
    for clip in expected:
        shares.append(sum(found[start : start + len(clip)]) / max(1, len(clip)))
        start += len(clip)
    return shares


def lost(shares: Sequence[float], alone: Sequence[float]) -> list[int]:
    """The clips of which less is found than `LOST_BELOW` of what is found in them alone."""
    pairs = zip(shares, alone, strict=True)
    return [number for number, (share, best) in enumerate(pairs) if share < LOST_BELOW * best]


def misplaced(heard: Sequence[TimedText], placed: Sequence[Placed]) -> float:
    """Share of the transcript's words whose time lies in no clip that says them."""
    told, wrong = 0, 0
    spoken = [(one.start_s - _SLACK_S, one.end_s + _SLACK_S, set(words(one.clip.text))) for one in placed]
    everything = set[str]().union(*(vocabulary for _, _, vocabulary in spoken))
    for part in heard:
        near = [vocabulary for start, end, vocabulary in spoken if start <= part.end_s and part.start_s <= end]
        here = set[str]().union(*near)
        known = [word for word in words(part.text) if word in everything]  # a misheard one tells nothing of places
        told += len(known)
        wrong += sum(word not in here for word in known)
    return wrong / max(1, told)
