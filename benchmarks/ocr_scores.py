"""How near a reading comes to the truth: wrong characters and found words. Knows no reader and no file."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_EDGES = ".,;:!?()[]{}\"'*-_«»“”|\u2018\u2019"  # punctuation that says nothing about whether a word was read


@dataclass(frozen=True, slots=True)
class Score:
    """One page."""

    edits: int  # characters to insert, delete or replace
    characters: int  # of the truth
    found: int  # words of the truth that the reading has, each as often as both have it
    words: int  # of the truth

    @property
    def cer(self) -> float:
        """Wrong characters a character of the truth; above 1.0 where more was invented than there is."""
        return self.edits / max(1, self.characters)

    @property
    def recall(self) -> float:
        return self.found / max(1, self.words)


def score(reading: str, truth: str, *, folds_case: bool = False) -> Score:
    """Compare two texts; how words are spaced, broken into lines and composed (NFC) counts for nothing.

    Args:
        folds_case: for truths that were written down in capitals alone. Words are compared without case anyway.
    """
    read, true = plain(reading), plain(truth)
    if folds_case:
        read, true = read.casefold(), true.casefold()
    known = words(truth)
    return Score(edits(read, true), len(true), (words(reading) & known).total(), known.total())


def plain(text: str) -> str:
    """Composed characters, one space between words."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def words(text: str) -> Counter[str]:
    """The words, without case and without punctuation at their ends, each as often as it stands there."""
    return Counter(word for each in plain(text).casefold().split() if (word := each.strip(_EDGES)))


def edits(first: str, second: str) -> int:
    """Levenshtein's distance, a row of its table at a time.

    Within a row, insertions are a running minimum: cell j is the least of all cells before it plus their distance.
    """
    if not first or not second:
        return len(first) + len(second)
    columns, across = _code_points(second), np.arange(len(second) + 1)
    row = across.copy()
    for number, letter in enumerate(_code_points(first), 1):
        below = np.empty_like(row)
        below[0] = number
        below[1:] = np.minimum(row[1:] + 1, row[:-1] + (columns != letter))
        row = np.minimum.accumulate(below - across) + across
    return int(row[-1])


def _code_points(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le"), np.uint32)


def summed(scores: Sequence[Score]) -> dict[str, float]:
    """What tables show of a set: means over its pages, and beside them ``…_micro``, where a long page counts more."""
    characters, known = sum(one.characters for one in scores), sum(one.words for one in scores)
    return {
        "cer": sum(one.cer for one in scores) / len(scores),
        "recall": sum(one.recall for one in scores) / len(scores),
        "cer_micro": sum(one.edits for one in scores) / max(1, characters),
        "recall_micro": sum(one.found for one in scores) / max(1, known),
    }
