"""Joins pieces of text that stand side by side into rows. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from backend.ocr.records import OcrWord

_SAME_ROW = 0.5  # of the lower piece's height: vertical distance of neighbours in a row, where they meet
_INSIDE = 0.2  # of the lower piece's height by which a raised or lowered one (a footnote mark) reaches out at most
_OVERLAP = 1.0  # of the lower piece's height by which neighbours may overlap: detected boxes are grown at both ends
_SPACE = 0.4  # of a piece's height: more white than between most words, less than between columns
_GAP_COST = 0.03  # a gap of one height costs as much as this share of a height up or down: near pieces join first


class Piece(NamedTuple):
    """A text line, or a part of one, on the levelled page."""

    words: tuple[OcrWord, ...]  # left to right, with their boxes on the page itself
    left: float
    right: float
    start: float  # y of its middle at its left end
    end: float  # and at its right end
    height: float
    spaces: tuple[tuple[float, float], ...] = ()  # of `wide_spaces`
    move: float = 0.0  # by which it was moved to the right

    @property
    def middle(self) -> float:
        return (self.start + self.end) / 2

    @property
    def top(self) -> float:
        return self.middle - self.height / 2

    @property
    def bottom(self) -> float:
        return self.middle + self.height / 2

    @property
    def print_left(self) -> float:
        """Where its first word begins; the piece itself may be a detected box, which is grown at both ends."""
        return max(self.left, self.words[0].box.left + self.move)

    @property
    def print_right(self) -> float:
        return min(self.right, self.words[-1].box.right + self.move)

    def cut_at(self, x: float) -> list[Piece]:
        """The piece, or its parts on either side of the wide space around ``x``."""
        place = x - self.move
        around = next((space for space in self.spaces if space[0] < place < space[1]), None)
        count = sum(word.box.right <= around[0] for word in self.words) if around else 0
        if around is None or not 0 < count < len(self.words):
            return [self]
        around_x = (around[0] + self.move, around[1] + self.move)
        slope = (self.end - self.start) / max(1.0, self.right - self.left)
        ends, starts = (self.start + slope * (place - self.left) for place in around_x)
        left = self._replace(words=self.words[:count], right=around_x[0], end=ends)
        return [left, self._replace(words=self.words[count:], left=around_x[1], start=starts)]


Row = list[Piece]  # left to right


def wide_spaces(words: Sequence[OcrWord], height: float) -> tuple[tuple[float, float], ...]:
    """The white between words of a line that may be more than a space: from x to x."""
    ends = ((before.box.right, after.box.left) for before, after in pairwise(words))
    return tuple((left, right) for left, right in ends if right - left > _SPACE * height)


def rows_of(pieces: Sequence[Piece]) -> list[Row]:
    """The rows from top to bottom.

    The nearest neighbours join first, compared where they meet, so that what is left of a page's curl does not add up
    along a row. No two pieces of a row stand above one another.
    """
    rows: list[Row] = [[piece] for piece in pieces]
    row_of = list(range(len(pieces)))  # of each piece
    for left, right in _neighbours(pieces):
        first, second = row_of[left], row_of[right]
        if first == second:
            continue
        joined = sorted(rows[first] + rows[second], key=lambda piece: piece.left + piece.right)
        if all(_is_beside(*pair) for pair in pairwise(joined)):
            rows[first], rows[second] = joined, []
            row_of = [first if row == second else row for row in row_of]
    return sorted(filter(None, rows), key=_level)


def _level(row: Row) -> float:
    """Mean height of a row on the page, by its length."""
    widths = [max(1.0, piece.right - piece.left) for piece in row]
    return sum(piece.middle * width for piece, width in zip(row, widths, strict=True)) / sum(widths)


def _neighbours(pieces: Sequence[Piece]) -> NDArray[np.int64]:
    """(pairs, 2): indexes of pieces that may stand side by side, left one first, nearest pairs first."""
    left, right, start, end, height = np.array([piece[1:6] for piece in pieces], np.float64).reshape(-1, 5).T
    lower, higher = np.minimum.outer(height, height), np.maximum.outer(height, height)
    offset = np.abs(end[:, None] - start[None, :])
    gap = left[None, :] - right[:, None]
    beside = _are_near(offset, gap, lower, higher)
    beside &= (left + right)[:, None] < (left + right)[None, :]
    cost = (offset + _GAP_COST * np.maximum(gap, 0)) / lower
    pairs = np.argwhere(beside)
    return pairs[np.argsort(cost[beside], kind="stable")]


def _is_beside(left: Piece, right: Piece) -> bool:
    lower, higher = sorted((left.height, right.height))
    return bool(_are_near(abs(left.end - right.start), right.left - left.right, lower, higher))


def _are_near(offset: Any, gap: Any, lower: Any, higher: Any) -> Any:
    """Whether two pieces may stand in one row; of numbers, or of arrays of one shape.

    Args:
        offset: between their middles where they meet.
        gap: between them; negative where they overlap.
        lower, higher: their heights, the smaller one first.
    """
    return (offset < np.maximum(_SAME_ROW * lower, higher / 2 - _INSIDE * lower)) & (gap > -_OVERLAP * lower)
