"""Lines found anywhere on a page, in the order in which they are read: rows, columns of prose, blocks. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from backend.engines.ocr.records import OcrBlocks, OcrWord, PixelBox

_SAME_ROW = 0.5  # of the lower line's height between the middles of two lines of a row
_NEW_BLOCK = 1.0  # median row height of white above a row that begins a block
_COLUMN_ROWS = 6  # rows side by side that make columns; fewer may be a form's
_COLUMN_FILL = 0.75  # share of a column's width that its rows fill, by the median; names beside amounts fill less


@dataclass(frozen=True, slots=True)
class Strip:
    """One line as an engine found it, in one piece."""

    words: tuple[OcrWord, ...]  # left to right
    box: PixelBox  # on the page made level: order is judged by it, words keep their own boxes

    @property
    def middle(self) -> float:
        """Of its height."""
        return (self.box.top + self.box.bottom) / 2

    @property
    def height(self) -> float:
        """In pixels."""
        return self.box.bottom - self.box.top


Row = list[Strip]  # left to right


def in_order(strips: Sequence[Strip]) -> OcrBlocks:
    """The words of lines of blocks: columns of prose one after the other, all else row by row."""
    rows = [row for part in _parts(_rows(strips)) for row in part]
    if not rows:
        return ()
    usual = median(_bottom(row) - _top(row) for row in rows)
    blocks: list[list[Row]] = [[rows[0]]]
    for above, row in pairwise(rows):
        if -usual < _top(row) - _bottom(above) < _NEW_BLOCK * usual:
            blocks[-1].append(row)
        else:
            blocks.append([row])
    return tuple(tuple(tuple(word for strip in row for word in strip.words) for row in block) for block in blocks)


def _rows(strips: Sequence[Strip]) -> list[Row]:
    rows: list[Row] = []
    for strip in sorted(strips, key=lambda one: one.middle):
        if rows and _shares_row(strip, rows[-1]):
            rows[-1].append(strip)
        else:
            rows.append([strip])
    return [sorted(row, key=lambda one: one.box.left) for row in rows]


def _shares_row(strip: Strip, row: Row) -> bool:
    middle = sum(one.middle for one in row) / len(row)
    return abs(strip.middle - middle) < _SAME_ROW * min(strip.height, *(one.height for one in row), strip.height)


def _parts(rows: list[Row]) -> list[list[Row]]:
    """The rows, cut where columns of prose stand side by side: each column is a part of its own."""
    gutter = _gutter(rows)
    if gutter is None:
        return [rows] if rows else []
    x, first, last = gutter
    beside = [strip for row in rows[first:last] for strip in row]
    left = [strip for strip in beside if strip.box.right <= x]
    right = [strip for strip in beside if strip.box.right > x]
    return [*_parts(rows[:first]), *_parts(_rows(left)), *_parts(_rows(right)), *_parts(rows[last:])]


def _gutter(rows: list[Row]) -> tuple[float, int, int] | None:
    """Where white runs down between two columns of prose: its x, the first row beside it and the first row below."""
    gaps = [(left.box.right + right.box.left) / 2 for row in rows for left, right in pairwise(row)]
    best: tuple[int, float, int, int] | None = None
    for x in sorted(set(gaps)):
        for first, last in _runs(rows, x):
            both = _prose_rows(rows[first:last], x)
            if both >= _COLUMN_ROWS and (best is None or both > best[0]):
                best = (both, x, first, last)
    return best[1:] if best else None


def _runs(rows: list[Row], x: float) -> list[tuple[int, int]]:
    """Longest stretches of rows that no line crosses at ``x``, as first row and the row after."""
    crossed = [index for index, row in enumerate(rows) if any(one.box.left < x < one.box.right for one in row)]
    return [(above + 1, below) for above, below in pairwise([-1, *crossed, len(rows)]) if below - above > _COLUMN_ROWS]


def _prose_rows(rows: list[Row], x: float) -> int:
    """How many rows have text on both sides of ``x``; 0 where one side is not filled as prose is."""
    left = [[one for one in row if one.box.right <= x] for row in rows]
    right = [[one for one in row if one.box.left >= x] for row in rows]
    both = sum(1 for sides in zip(left, right, strict=True) if all(sides))
    filled = both and all(_fill([row for row in side if row]) >= _COLUMN_FILL for side in (left, right))
    return both if filled else 0


def _fill(rows: list[Row]) -> float:
    width = max(row[-1].box.right for row in rows) - min(row[0].box.left for row in rows)
    return median(sum(one.box.right - one.box.left for one in row) for row in rows) / max(width, 1.0)


def _top(row: Row) -> float:
    return min(one.box.top for one in row)


def _bottom(row: Row) -> float:
    return max(one.box.bottom for one in row)
