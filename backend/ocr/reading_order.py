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

from backend.ocr.page_flattening import (
    SOFT,
    STIFF,
    Flattening,
    Points,
    Slopes,
    count_level,
    fit_flattening,
    prior_slope,
    slant_of,
    slopes_of,
)
from backend.ocr.records import OcrBlocks, OcrWord
from backend.ocr.text_rows import Piece, Row, rows_of, wide_spaces

_MORE_LEVEL = 1.1  # times as many level pieces as on a stiff page
_NEW_BLOCK = 1.0  # median row heights of white above a row that starts a block
_COLUMN_ROWS = 6  # rows side by side that make columns; fewer may belong to a form
_COLUMN_FILL = 0.75  # median share of a column's width that its rows fill; names beside amounts fill less
_COLUMN_LETTERS = 14  # median of its rows; amounts and dates are shorter
_RAGGED_FILL = 0.5  # the same where rows are as long as names beside amounts are not:
_RAGGED_LETTERS = 28
_GUTTER_WIDTH = 0.3  # of a row's height; the gap at a fold where a detector cut every line is narrower
_INDENT = 3.0  # of a row's height: the first line of a paragraph begins less to the right
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
    """The rows of the page, levelled as far as that makes more of its pieces level."""
    if not lines:
        return []
    height = median(line.height for line in lines)
    slopes = slopes_of([line.middle for line in lines], [line.height for line in lines])
    prior = prior_slope(slopes, np.stack([line.middle.mean(axis=0) for line in lines]), height)
    stiff, soft = (_level_pieces(lines, slopes, prior, stiffness) for stiffness in (STIFF, SOFT))
    level, more_level = (count_level(np.array([piece.middle for piece in pieces]), height) for pieces in (stiff, soft))
    pieces = soft if more_level > _MORE_LEVEL * level else stiff
    return rows_of(_with_upright_edges(pieces, prior))


def _level_pieces(lines: Sequence[TextLine], slopes: Slopes, prior: float, stiffness: float) -> list[Piece]:
    """Levelled twice: the gaps within rows, longer than most lines, show the page's slopes better."""
    flattening = fit_flattening(slopes, prior, stiffness)
    rows = rows_of([_piece(line, flattening) for line in lines])
    middles = {id(line.words): line.middle.mean(axis=0) for line in lines}
    gaps = [[middles[id(left.words)], middles[id(right.words)]] for row in rows for left, right in pairwise(row)]
    flattening = fit_flattening(slopes.with_gaps(np.reshape(gaps, (-1, 2, 2))), prior, stiffness)
    return [_piece(line, flattening) for line in lines]


def _with_upright_edges(pieces: list[Piece], slope: float) -> list[Piece]:
    """The pieces moved sideways, so that the edges of columns are upright where the whole page is rotated."""
    starts = np.array([(piece.left, piece.middle) for piece in pieces])
    slant = slant_of(starts, slope, median(piece.height for piece in pieces))
    moves = slant * (starts[:, 1] - starts[:, 1].mean())
    return [
        piece._replace(left=piece.left + move, right=piece.right + move, move=move)
        for piece, move in zip(pieces, moves.tolist(), strict=True)
    ]


def _piece(line: TextLine, flattening: Flattening) -> Piece:
    """The line on the levelled page; one that runs up or down the page stands where it begins at the top."""
    across, down = np.abs(line.middle[-1] - line.middle[0])
    if down > across:
        (left, top), right = line.middle.min(axis=0), line.middle[:, 0].max()
        half = line.height / 2
        return Piece(line.words, float(left - half), float(right + half), float(top), float(top), line.height)
    level = flattening.level(line.middle)
    (left, start), (right, end) = level[0], level[-1]
    spaces = wide_spaces(line.words, line.height)
    return Piece(line.words, float(left), float(right), float(start), float(end), line.height, spaces)


def _split_columns(rows: list[Row]) -> list[list[Row]]:
    """The rows in sections: where columns of prose stand side by side, each column is a section of its own."""
    gutter = _gutter(rows)
    if gutter is None:
        return [rows] if rows else []
    x, first, last = gutter
    beside = [piece for row in _cut_at(rows[first:last], x) for piece in row]
    left = [piece for piece in beside if piece.print_right <= x]
    right = [piece for piece in beside if piece.print_right > x]
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
        for run in _runs(crossed):
            if best is not None and run[1] - run[0] <= best[0]:
                continue
            first, last = _without_headings(rows, *run, x)
            count = _prose_rows(_cut_at(rows[first:last], x), x)
            if count >= _COLUMN_ROWS and (best is None or count > best[0]):
                best = (count, x, first, last)
    return best[1:] if best else None


def _cut_at(rows: list[Row], x: float) -> list[Row]:
    """The rows without a piece across a gutter: a detector takes the lines of near columns for one."""
    return [[part for piece in row for part in piece.cut_at(x)] for row in rows]


def _gaps(rows: list[Row]) -> list[tuple[float, NDArray[np.bool_]]]:
    """Places between words: x, and which rows (rows,) have a word across it. One for places with the same rows."""
    if len(rows) < _COLUMN_ROWS:
        return []
    left = min(piece.left for row in rows for piece in row)
    right = max(piece.right for row in rows for piece in row)
    step = median(_bottom(row) - _top(row) for row in rows) / _GUTTER_STEPS
    places = np.arange(left + step, right, max(step, (right - left) / 1000))
    crossed = np.zeros((len(places), len(rows)), np.bool_)
    for index, row in enumerate(rows):
        for piece in row:
            across = (piece.print_left < places) & (places < piece.print_right)
            for left, right in piece.spaces:
                across &= (places <= left + piece.move) | (places >= right + piece.move)
            crossed[:, index] |= across
    starts = np.flatnonzero(np.any(crossed[1:] != crossed[:-1], axis=1)) + 1
    edges = [0, *starts.tolist(), len(places)]
    return [(float(places[(a + b - 1) // 2]), crossed[a]) for a, b in pairwise(edges) if b > a]


def _runs(crossed: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Longest runs of rows that no piece crosses, as first row and the row after."""
    edges = [-1, *np.flatnonzero(crossed).tolist(), len(crossed)]
    return [(above + 1, below) for above, below in pairwise(edges) if below - above > _COLUMN_ROWS]


def _without_headings(rows: list[Row], first: int, last: int, x: float) -> tuple[int, int]:
    """The run without centred lines at its ends that happen to have a space over the gutter."""
    left = median(row[0].left for row in rows[first:last])

    def is_heading(row: Row) -> bool:
        indent = row[0].left - left
        return indent > _INDENT * row[0].height and any(len(piece.cut_at(x)) > 1 for piece in row)

    while first < last and is_heading(rows[first]):
        first += 1
    while first < last and is_heading(rows[last - 1]):
        last -= 1
    return first, last


def _prose_rows(rows: list[Row], x: float) -> int:
    """How many rows stand beside others across ``x``; 0 where one side is not filled as prose is."""
    left = [side for row in rows if (side := [piece for piece in row if piece.print_right <= x])]
    right = [side for row in rows if (side := [piece for piece in row if piece.print_left >= x])]
    if min(len(left), len(right)) < _COLUMN_ROWS:
        return 0
    white = min(row[0].print_left for row in right) - max(row[-1].print_right for row in left)
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
