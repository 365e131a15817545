"""Finds the blanks that PDFium generates between the letters of one word: letter-spaced titles and labels.

PDFium takes a distance for a blank by the font's widths, so that type with wide spacing (CSS `letter-spacing`, TJ)
comes out as "N Ú M E R O". Told from real blanks by pitch: within a word the gaps are even, between words the gap is
one blank and one spacing wider. Arrays only, no PDFium. Runs in the workers.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_WIDEST = 0.45  # heights between letters of a word: CSS's 0.4em is 0.35, a box is some 1.15em high
_OVERLAP = 0.1  # heights by which such letters may overlap, kerned or slanted
_SAME_BOX = -0.2  # heights; characters that overlap by more (ligatures, bold by drawing twice) tell no pitch
_UNEVEN = 0.5  # of the pitch by which a gap within a word may exceed the narrowest one: a blank adds at least all of it
_KERNING = 0.06  # heights that it may exceed it besides; after an overhanging "f" a blank is 0.10
_NEIGHBOURS = 8  # gaps on either side that tell the pitch: more than a word, so that one "y" or "A" decides nothing
_UNDOUBTED = 0.17  # heights; wider gaps may be real blanks ("a b c"), and the line must show that they are not
_SAME_PITCH = 0.05  # heights between lines with the same spacing: "2 0 2 4" under "N Ú M E R O"
_NO_WORD = re.compile(r"([^\w\s])\1|[+<=>±\u00d7÷\u2212∑∫≤≥≠≈]")  # leaders, formulas
_DECIMAL = re.compile(r"\d[.,]\d")


class Gaps(NamedTuple):
    """What lies between each character and the next one, (characters - 1,) each."""

    distances: NDArray[np.float32]  # along the line, in heights of the line's characters
    is_generated: NDArray[np.bool_]  # nothing but blanks and line ends that PDFium made up
    is_level: NDArray[np.bool_]  # on one baseline: no footnote mark
    is_line_end: NDArray[np.bool_]
    is_word_end: NDArray[np.bool_]  # as PDFium and the distances have it


class _Line(NamedTuple):
    """What would be joined on a line."""

    words: list[slice]
    text: str  # of these words, blank-separated
    pitch: float  # median distance between their letters


def letters_apart(text: str, gaps: Gaps) -> NDArray[np.bool_]:
    """For each gap between the characters of ``text``, without blanks: whether it ends a word in appearance only."""
    apart = _even(gaps)
    if not apart.any():
        return apart
    lines = _lines(text, gaps, apart)
    shown = np.array([line.pitch for line in lines if line.pitch > _UNDOUBTED and _looks_like_words(line.text)])
    for line in lines:
        is_spaced = line.pitch <= _UNDOUBTED or bool((np.abs(shown - line.pitch) < _SAME_PITCH).any())
        for word in line.words:
            if not is_spaced or _NO_WORD.search(text[word]):
                apart[word.start : word.stop - 1] = False
    return apart


def _lines(text: str, gaps: Gaps, apart: NDArray[np.bool_]) -> list[_Line]:
    ends = np.flatnonzero(np.append(gaps.is_word_end & ~apart, True))
    words = np.unique(np.searchsorted(ends, np.flatnonzero(apart)))
    numbers = np.concatenate([[0], np.cumsum(gaps.is_line_end)])
    by_line: defaultdict[int, list[slice]] = defaultdict(list)
    for word in words.tolist():
        start, last = int(ends[word - 1]) + 1 if word else 0, int(ends[word])
        by_line[int(numbers[last])].append(slice(start, last + 1))
    return [
        _Line(
            spans,
            " ".join(text[span] for span in spans),
            float(np.median(np.concatenate([gaps.distances[span.start : span.stop - 1] for span in spans]))),
        )
        for spans in by_line.values()
    ]


def _even(gaps: Gaps) -> NDArray[np.bool_]:
    """Which generated blanks are as wide as the gaps around them, up to the next wider gap on either side."""
    distances = gaps.distances
    even = gaps.is_generated & gaps.is_level & ~gaps.is_line_end & (distances > -_OVERLAP) & (distances < _WIDEST)
    places = np.flatnonzero(even)
    own = distances[places]
    pitch = own.copy()
    for direction in (-1, 1):
        is_open = np.ones(len(places), bool)
        for step in range(1, _NEIGHBOURS + 1):
            others = places + direction * step
            is_open &= (others >= 0) & (others < len(distances))
            others = np.clip(others, 0, len(distances) - 1)
            other = distances[others]
            is_open &= ~gaps.is_line_end[others] & (other <= _widest_within(own))
            pitch = np.where(is_open & (other > _SAME_BOX), np.minimum(pitch, other), pitch)
        is_even = own <= _widest_within(pitch)
        places, own, pitch = places[is_even], own[is_even], pitch[is_even]  # real blanks leave after one side
    even[:] = False
    even[places] = True
    return even


def _widest_within(pitch: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.maximum(pitch, 0) * np.float32(1 + _UNEVEN) + np.float32(_KERNING)


def _looks_like_words(text: str) -> bool:
    """Whether what was joined on a line, as far apart as words are, is rather words than single characters.

    Formulas and rows of digits are set with such distances, too.
    """
    words = text.split()
    letters = sum(character.isalpha() for character in text)
    are_several = len(words) > 1 and all(len(word) > 2 for word in words)  # with wider gaps between them
    return letters > 2 or are_several or bool(_DECIMAL.search(text))
