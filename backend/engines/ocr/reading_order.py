"""Sorts the text lines of a page into reading order: rows, columns of prose, blocks. Pure; for every engine.

Detected lines may be parts of a row, and a page may be skewed, curled to its spine or wavy: lines are levelled by the
page's own slopes before they are compared (`page_flattening`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import numpy as np
from numpy.typing import NDArray

from backend.engines.ocr.page_flattening import Flattening, Points, fit_flattening, long_segments, prior_slope
from backend.engines.ocr.records import OcrBlocks, OcrWord
from backend.engines.ocr.text_rows import Piece, Row, rows_of

_NEW_BLOCK = 1.0  # median row heights of white above a row that starts a block
_COLUMN_ROWS = 6  # rows side by side that make columns; fewer may belong to a form
_COLUMN_FILL = 0.75  # median share of a column's width that its rows fill; names beside amounts fill less
_COLUMN_LETTERS = 14  # median of its rows; amounts and dates are shorter
_RAGGED_FILL = 0.5  # the same where rows are as long as names beside amounts are not:
_RAGGED_LETTERS = 28
_GUTTER_WIDTH = 0.3  # of a row's height; the gap at a fold where a detector cut every line is narrower
_GUTTER_STEPS = 4  # places per row height at which a gutter is looked for


@dataclass(frozen=True, slots=True)
class TextLine:
    """One detected text line, or a part of a row."""

    words: tuple[OcrWord, ...]  # left to right
    middle: Points  # along its middle from its start to its end, at least two, in pixels of the page
    height: float


def in_order(lines: Sequence[TextLine]) -> OcrBlocks:
    """The words as lines of blocks: columns of prose one after the other, everything else row by row."""
    rows = [row for section in _split_columns(_level_rows(lines)) for row in section]
    if not rows:
        return ()
    row_height = median(_bottom(row) - _top(row) for row in rows)
    blocks: list[list[Row]] = [[rows[0]]]
    for above, row in pairwise(rows):
        if -row_height < _top(row) - _bottom(above) < _NEW_BLOCK * row_height:
            blocks[-1].append(row)
        else:
            blocks.append([row])
    return tuple(tuple(tuple(word for piece in row for word in piece.words) for row in block) for block in blocks)


def _level_rows(lines: Sequence[TextLine]) -> list[Row]:
    """The rows, found twice: the gaps within them, longer than most lines, show the page's slopes better."""
    if not lines:
        return []
    heights = [line.height for line in lines]
    segments = long_segments([line.middle for line in lines], heights)
    prior = prior_slope(segments, np.stack([line.middle.mean(axis=0) for line in lines]), median(heights))
    rows = rows_of([_piece(line, fit_flattening(segments, prior)) for line in lines])
    middles = {id(line.words): line.middle.mean(axis=0) for line in lines}
    gaps = [[middles[id(left.words)], middles[id(right.words)]] for row in rows for left, right in pairwise(row)]
    flattening = fit_flattening(np.concatenate([segments, np.reshape(gaps, (-1, 2, 2))]), prior)
    return rows_of([_piece(line, flattening) for line in lines])


def _piece(line: TextLine, flattening: Flattening) -> Piece:
    """The line on the levelled page; one that runs up or down the page stands where it begins at the top."""
    across, down = np.abs(line.middle[-1] - line.middle[0])
    if down > across:
        (left, top), right = line.middle.min(axis=0), line.middle[:, 0].max()
        half = line.height / 2
        return Piece(line.words, float(left - half), float(right + half), float(top), float(top), line.height)
    level = flattening.level(line.middle)
    (left, start), (right, end) = level[0], level[-1]
    return Piece(line.words, float(left), float(right), float(start), float(end), line.height)


def _split_columns(rows: list[Row]) -> list[list[Row]]:
    """The rows in sections: where columns of prose stand side by side, each column is a section of its own."""
    gutter = _gutter(rows)
    if gutter is None:
        return [rows] if rows else []
    x, first, last = gutter
    beside = [piece for row in rows[first:last] for piece in row]
    left = [piece for piece in beside if piece.right <= x]
    right = [piece for piece in beside if piece.right > x]
    return [
        *_split_columns(rows[:first]),
        *_split_columns(rows_of(left)),
        *_split_columns(rows_of(right)),
        *_split_columns(rows[last:]),
    ]


def _gutter(rows: list[Row]) -> tuple[float, int, int] | None:
    """The white gap between two columns of prose: its x, the first row beside it and the first row below."""
    best: tuple[int, float, int, int] | None = None
    for x, crossed in _gaps(rows):
        for first, last in _runs(crossed):
            count = _prose_rows(rows[first:last], x)
            if count >= _COLUMN_ROWS and (best is None or count > best[0]):
                best = (count, x, first, last)
    return best[1:] if best else None


def _gaps(rows: list[Row]) -> list[tuple[float, NDArray[np.bool_]]]:
    """Places between pieces: x, and which rows (rows,) have a piece across it. One for places with the same rows."""
    if len(rows) < _COLUMN_ROWS:
        return []
    left = min(piece.left for row in rows for piece in row)
    right = max(piece.right for row in rows for piece in row)
    step = median(_bottom(row) - _top(row) for row in rows) / _GUTTER_STEPS
    places = np.arange(left + step, right, max(step, (right - left) / 1000))
    crossed = np.zeros((len(places), len(rows)), np.bool_)
    for index, row in enumerate(rows):
        for piece in row:
            crossed[:, index] |= (piece.left < places) & (places < piece.right)
    starts = np.flatnonzero(np.any(crossed[1:] != crossed[:-1], axis=1)) + 1
    edges = [0, *starts.tolist(), len(places)]
    return [(float(places[(a + b - 1) // 2]), crossed[a]) for a, b in pairwise(edges) if b > a]


def _runs(crossed: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Longest runs of rows that no piece crosses, as first row and the row after."""
    edges = [-1, *np.flatnonzero(crossed).tolist(), len(crossed)]
    return [(above + 1, below) for above, below in pairwise(edges) if below - above > _COLUMN_ROWS]


def _prose_rows(rows: list[Row], x: float) -> int:
    """How many rows stand beside others across ``x``; 0 where one side is not filled as prose is."""
    left = [side for row in rows if (side := [piece for piece in row if piece.right <= x])]
    right = [side for row in rows if (side := [piece for piece in row if piece.left >= x])]
    if min(len(left), len(right)) < _COLUMN_ROWS:
        return 0
    white = min(row[0].left for row in right) - max(row[-1].right for row in left)
    if white < _GUTTER_WIDTH * median(_bottom(row) - _top(row) for row in rows):
        return 0
    beside = min(_rows_within(left, right), _rows_within(right, left))
    return beside if all(map(_is_prose, (left, right))) else 0


def _rows_within(rows: list[Row], others: list[Row]) -> int:
    """How many rows are no higher and no lower than all the others: columns' rows need not be level."""
    top, bottom = min(map(_top, others)), max(map(_bottom, others))
    return sum(_bottom(row) > top and _top(row) < bottom for row in rows)


def _is_prose(rows: list[Row]) -> bool:
    width = max(row[-1].right for row in rows) - min(row[0].left for row in rows)
    fill = median(sum(piece.right - piece.left for piece in row) for row in rows) / max(width, 1.0)
    letters = median(sum(len(word.text) for piece in row for word in piece.words) for row in rows)
    return letters >= _COLUMN_LETTERS and fill >= (_RAGGED_FILL if letters >= _RAGGED_LETTERS else _COLUMN_FILL)


def _top(row: Row) -> float:
    return min(piece.top for piece in row)


def _bottom(row: Row) -> float:
    return max(piece.bottom for piece in row)
