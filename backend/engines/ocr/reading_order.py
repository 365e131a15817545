"""Sorts detected text lines into reading order: rows, columns of prose, blocks. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from backend.engines.ocr.records import OcrBlocks, OcrWord, PixelBox

_SAME_ROW = 0.5  # of the lower line's height: distance of the middles of two lines of one row
_NEW_BLOCK = 1.0  # median row heights of white above a row that starts a block
_COLUMN_ROWS = 6  # rows side by side that make columns; fewer may belong to a form
_COLUMN_FILL = 0.75  # median share of a column's width that its rows fill; names beside amounts fill less


@dataclass(frozen=True, slots=True)
class TextLine:
    """One detected text line, or a part of a row."""

    words: tuple[OcrWord, ...]  # left to right
    box: PixelBox  # on the deskewed page, for sorting; words keep their boxes on the page itself

    @property
    def middle(self) -> float:
        return (self.box.top + self.box.bottom) / 2

    @property
    def height(self) -> float:
        return self.box.bottom - self.box.top


Row = list[TextLine]  # left to right


def in_order(lines: Sequence[TextLine]) -> OcrBlocks:
    """The words as lines of blocks: columns of prose one after the other, everything else row by row."""
    rows = [row for section in _split_columns(_rows(lines)) for row in section]
    if not rows:
        return ()
    row_height = median(_bottom(row) - _top(row) for row in rows)
    blocks: list[list[Row]] = [[rows[0]]]
    for above, row in pairwise(rows):
        if -row_height < _top(row) - _bottom(above) < _NEW_BLOCK * row_height:
            blocks[-1].append(row)
        else:
            blocks.append([row])
    return tuple(tuple(tuple(word for line in row for word in line.words) for row in block) for block in blocks)


def _rows(lines: Sequence[TextLine]) -> list[Row]:
    rows: list[Row] = []
    for line in sorted(lines, key=lambda line: line.middle):
        if rows and _shares_row(line, rows[-1]):
            rows[-1].append(line)
        else:
            rows.append([line])
    return [sorted(row, key=lambda line: line.box.left) for row in rows]


def _shares_row(line: TextLine, row: Row) -> bool:
    middle = sum(line.middle for line in row) / len(row)
    return abs(line.middle - middle) < _SAME_ROW * min(line.height, *(line.height for line in row), line.height)


def _split_columns(rows: list[Row]) -> list[list[Row]]:
    """The rows in sections: where columns of prose stand side by side, each column is a section of its own."""
    gutter = _gutter(rows)
    if gutter is None:
        return [rows] if rows else []
    x, first, last = gutter
    beside = [line for row in rows[first:last] for line in row]
    left = [line for line in beside if line.box.right <= x]
    right = [line for line in beside if line.box.right > x]
    return [
        *_split_columns(rows[:first]),
        *_split_columns(_rows(left)),
        *_split_columns(_rows(right)),
        *_split_columns(rows[last:]),
    ]


def _gutter(rows: list[Row]) -> tuple[float, int, int] | None:
    """The white gap between two columns of prose: its x, the first row beside it and the first row below."""
    gaps = [(left.box.right + right.box.left) / 2 for row in rows for left, right in pairwise(row)]
    best: tuple[int, float, int, int] | None = None
    for x in sorted(set(gaps)):
        for first, last in _runs(rows, x):
            both = _prose_rows(rows[first:last], x)
            if both >= _COLUMN_ROWS and (best is None or both > best[0]):
                best = (both, x, first, last)
    return best[1:] if best else None


def _runs(rows: list[Row], x: float) -> list[tuple[int, int]]:
    """Longest runs of rows that no line crosses at ``x``, as first row and the row after."""
    crossed = [index for index, row in enumerate(rows) if any(line.box.left < x < line.box.right for line in row)]
    return [(above + 1, below) for above, below in pairwise([-1, *crossed, len(rows)]) if below - above > _COLUMN_ROWS]


def _prose_rows(rows: list[Row], x: float) -> int:
    """How many rows have text on both sides of ``x``; 0 where one side is not filled as prose is."""
    left = [[line for line in row if line.box.right <= x] for row in rows]
    right = [[line for line in row if line.box.left >= x] for row in rows]
    both = sum(1 for sides in zip(left, right, strict=True) if all(sides))
    filled = both and all(_fill([row for row in side if row]) >= _COLUMN_FILL for side in (left, right))
    return both if filled else 0


def _fill(rows: list[Row]) -> float:
    width = max(row[-1].box.right for row in rows) - min(row[0].box.left for row in rows)
    return median(sum(line.box.right - line.box.left for line in row) for row in rows) / max(width, 1.0)


def _top(row: Row) -> float:
    return min(line.box.top for line in row)


def _bottom(row: Row) -> float:
    return max(line.box.bottom for line in row)
