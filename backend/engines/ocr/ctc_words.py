"""From the columns of a CTC recogniser to words with places. No network here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

COLUMN_PX = 8  # pixels of the crop that one column of the recogniser's output stands for
_BLANK = 0
_MARGIN = 0.25  # columns that a word's box is wider on either side: capitals and m are wider than usual letters
# The recogniser loses spaces between Latin words (RapidOCR #723), yet its columns betray most of them. Word recall of
# receipts as words stand between blanks: 0.860 as decoded, 0.895 with this; Spanish print 0.893 either way.
_SPACE_AT = 0.2
_FAINT_SPACE_AT = 0.02  # where the letters also stand this far apart:
_FAR_APART = 1.6  # times the usual distance of the line's letters


class _Letter(NamedTuple):
    text: str
    column: float
    confidence: float


class CropWord(NamedTuple):
    """A word on its crop."""

    text: str
    left_px: float
    right_px: float
    confidence: float  # mean of its letters', 0..1


@dataclass(frozen=True, slots=True)
class ReadLine:
    """What a crop says."""

    words: tuple[CropWord, ...]
    confidence: float  # mean of all letters', 0..1; 0 without any


def read_line(likely: NDArray[np.float32], characters: Sequence[str], width_px: int) -> ReadLine:
    """The words of one crop.

    Shapes: likely (columns, characters) from 0 to 1; the first character is CTC's blank, the last the space.
    """
    letters = _letters(likely, characters)
    real = [letter for letter in letters if letter.text != " "]
    if not real:
        return ReadLine((), 0.0)
    words = _words(letters, likely[:, -1], width_px)
    return ReadLine(tuple(words), sum(letter.confidence for letter in real) / len(real))


def page_confidence(lines: Sequence[ReadLine]) -> float | None:
    """Mean over the letters of all lines, 0..1; None without any."""
    weights = [sum(len(word.text) for word in line.words) for line in lines]
    total = sum(weights)
    if not total:
        return None
    return sum(line.confidence * weight for line, weight in zip(lines, weights, strict=True)) / total


def _letters(likely: NDArray[np.float32], characters: Sequence[str]) -> list[_Letter]:
    best = likely.argmax(axis=1)
    sure = likely[np.arange(len(best)), best]
    starts = np.flatnonzero(np.diff(best, prepend=-1))
    letters = []
    for start, end in zip(starts, [*starts[1:], len(best)], strict=True):
        if best[start] != _BLANK:
            letters.append(_Letter(characters[best[start]], (start + end - 1) / 2, float(sure[start:end].max())))
    return letters


def _words(letters: list[_Letter], spaces: NDArray[np.float32], width_px: int) -> list[CropWord]:
    usual = _usual_distance(letters)
    parts: list[list[_Letter]] = [[]]
    for letter in letters:
        if letter.text == " ":
            parts.append([])
            continue
        if parts[-1] and _is_apart(parts[-1][-1], letter, spaces, usual):
            parts.append([])
        parts[-1].append(letter)
    return [_word(part, usual, width_px) for part in parts if part]


def _is_apart(one: _Letter, next_one: _Letter, spaces: NDArray[np.float32], usual: float) -> bool:
    space = float(spaces[int(one.column) + 1 : int(next_one.column)].max(initial=0))
    return space > _SPACE_AT or (space > _FAINT_SPACE_AT and next_one.column - one.column > _FAR_APART * usual)


def _usual_distance(letters: list[_Letter]) -> float:
    distances = [
        after.column - before.column for before, after in pairwise(letters) if " " not in (before.text, after.text)
    ]
    return float(np.median(distances)) if distances else 1.0


def _word(letters: list[_Letter], usual: float, width_px: int) -> CropWord:
    """From half a usual letter and a little before the middle of the first to as much after that of the last."""
    half = usual / 2 + _MARGIN
    left = max(0.0, (letters[0].column + 0.5 - half) * COLUMN_PX)
    right = min(float(width_px), (letters[-1].column + 0.5 + half) * COLUMN_PX)
    text = "".join(letter.text for letter in letters)
    return CropWord(text, min(left, right), right, sum(letter.confidence for letter in letters) / len(letters))
