"""Decodes the output of a CTC recogniser into words with their places on the crop. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

COLUMN_PX = 8  # pixels of the crop that one column of the recogniser's output stands for
_BLANK = 0
_MARGIN = 0.25  # columns added to a word's box on either side: capitals and m are wider than the average letter
# The recogniser loses spaces between Latin words (RapidOCR #723), but its columns show most of them. Word recall on
# receipts: 0.860 as decoded, 0.895 with this; Spanish print 0.893 either way.
_SPACE_PROBABILITY = 0.2
_FAINT_SPACE_PROBABILITY = 0.02  # enough where the letters are also this far apart:
_WIDE_GAP = 1.6  # times the median distance of the line's letters


class _Letter(NamedTuple):
    text: str
    column: float
    confidence: float


class CropWord(NamedTuple):
    """A word on the crop of its line."""

    text: str
    left_px: float
    right_px: float
    confidence: float  # mean of its letters', 0..1


@dataclass(frozen=True, slots=True)
class RecognizedLine:
    """The words of one crop."""

    words: tuple[CropWord, ...]
    confidence: float  # mean of all letters', 0..1; 0 without any


def decode_line(probabilities: NDArray[np.float32], characters: Sequence[str], width_px: int) -> RecognizedLine:
    """The words of one crop.

    Shapes: probabilities (columns, characters) from 0 to 1; the first character is CTC's blank, the last the space.
    """
    letters = _letters(probabilities, characters)
    printed = [letter for letter in letters if letter.text != " "]
    if not printed:
        return RecognizedLine((), 0.0)
    words = _words(letters, probabilities[:, -1], width_px)
    return RecognizedLine(tuple(words), sum(letter.confidence for letter in printed) / len(printed))


def page_confidence(lines: Sequence[RecognizedLine]) -> float | None:
    """Mean over the letters of all lines, 0..1; None without any."""
    weights = [sum(len(word.text) for word in line.words) for line in lines]
    total = sum(weights)
    if not total:
        return None
    return sum(line.confidence * weight for line, weight in zip(lines, weights, strict=True)) / total


def _letters(probabilities: NDArray[np.float32], characters: Sequence[str]) -> list[_Letter]:
    best = probabilities.argmax(axis=1)
    confidences = probabilities[np.arange(len(best)), best]
    starts = np.flatnonzero(np.diff(best, prepend=-1))
    letters = []
    for start, end in zip(starts, [*starts[1:], len(best)], strict=True):
        if best[start] != _BLANK:
            letters.append(_Letter(characters[best[start]], (start + end - 1) / 2, float(confidences[start:end].max())))
    return letters


def _words(letters: list[_Letter], spaces: NDArray[np.float32], width_px: int) -> list[CropWord]:
    spacing = _median_spacing(letters)
    groups: list[list[_Letter]] = [[]]
    for letter in letters:
        if letter.text == " ":
            groups.append([])
            continue
        if groups[-1] and _is_apart(groups[-1][-1], letter, spaces, spacing):
            groups.append([])
        groups[-1].append(letter)
    return [_word(group, spacing, width_px) for group in groups if group]


def _is_apart(before: _Letter, after: _Letter, spaces: NDArray[np.float32], spacing: float) -> bool:
    space = float(spaces[int(before.column) + 1 : int(after.column)].max(initial=0))
    return space > _SPACE_PROBABILITY or (
        space > _FAINT_SPACE_PROBABILITY and after.column - before.column > _WIDE_GAP * spacing
    )


def _median_spacing(letters: list[_Letter]) -> float:
    distances = [
        after.column - before.column for before, after in pairwise(letters) if " " not in (before.text, after.text)
    ]
    return float(np.median(distances)) if distances else 1.0


def _word(letters: list[_Letter], spacing: float, width_px: int) -> CropWord:
    """The word of these letters.

    Its box reaches half a letter spacing and a margin beyond the middles of the first and the last letter.
    """
    half = spacing / 2 + _MARGIN
    left = max(0.0, (letters[0].column + 0.5 - half) * COLUMN_PX)
    right = min(float(width_px), (letters[-1].column + 0.5 + half) * COLUMN_PX)
    text = "".join(letter.text for letter in letters)
    return CropWord(text, min(left, right), right, sum(letter.confidence for letter in letters) / len(letters))
