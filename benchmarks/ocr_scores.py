"""OCR metrics: character error rate and word recall of a text against the ground truth."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_EDGES = ".,;:!?()[]{}\"'*-_«»“”|\u2018\u2019"  # punctuation stripped from words


@dataclass(frozen=True, slots=True)
class Score:
    """Edit distance and word matches of one page."""

    edits: int  # character insertions, deletions and replacements
    characters: int  # of the ground truth
    found_words: int  # words of the ground truth in the OCR text, with multiplicity
    words: int  # of the ground truth

    @property
    def cer(self) -> float:
        """Character error rate: edits per character of the ground truth; may exceed 1.0."""
        return self.edits / max(1, self.characters)

    @property
    def recall(self) -> float:
        return self.found_words / max(1, self.words)


def score(ocr_raw: str, truth: str, *, folds_case: bool = False) -> Score:
    """Compare two texts; white space, line breaks and Unicode composition (NFC) are ignored.

    Args:
        folds_case: for ground truth in upper case. Words are always compared without case.
    """
    ocr_text, truth_text = plain(ocr_raw), plain(truth)
    if folds_case:
        ocr_text, truth_text = ocr_text.casefold(), truth_text.casefold()
    truth_words = words(truth)
    return Score(
        edits(ocr_text, truth_text), len(truth_text), (words(ocr_raw) & truth_words).total(), truth_words.total()
    )


def plain(text: str) -> str:
    """NFC-normalized text with single spaces."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def words(text: str) -> Counter[str]:
    """Counts of the words, casefolded and without punctuation at their ends."""
    return Counter(word for token in plain(text).casefold().split() if (word := token.strip(_EDGES)))


def edits(first: str, second: str) -> int:
    """Levenshtein distance, computed one table row at a time.

    Within a row, insertions are a running minimum: cell j is the least of all cells before it plus their distance.
    """
    if not first or not second:
        return len(first) + len(second)
    columns, columns_index = _code_points(second), np.arange(len(second) + 1)
    row = columns_index.copy()
    for number, letter in enumerate(_code_points(first), 1):
        next_row = np.empty_like(row)
        next_row[0] = number
        next_row[1:] = np.minimum(row[1:] + 1, row[:-1] + (columns != letter))
        row = np.minimum.accumulate(next_row - columns_index) + columns_index
    return int(row[-1])


def _code_points(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le"), np.uint32)


def summed(scores: Sequence[Score]) -> dict[str, float]:
    """Metrics of a data set: means over its pages, and ``…_micro`` over all characters and words."""
    characters, words = sum(score.characters for score in scores), sum(score.words for score in scores)
    return {
        "cer": sum(score.cer for score in scores) / len(scores),
        "recall": sum(score.recall for score in scores) / len(scores),
        "cer_micro": sum(score.edits for score in scores) / max(1, characters),
        "recall_micro": sum(score.found_words for score in scores) / max(1, words),
    }
