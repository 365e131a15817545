"""Sorts the text lines of a page into reading order: rows, columns of prose, blocks. Pure; for every engine.

Detected lines may be parts of a row, and a page may be skewed, curled to its spine or wavy: lines are levelled by the
page's own slopes before they are compared (`page_flattening`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from backend.ocr.records import OcrBlocks, OcrWord

_SAME_ROW = 0.5  # of the lower piece's height: vertical distance of neighbours in a row, where they meet
_INSIDE = 0.2  # of the lower piece's height by which a raised or lowered one (a footnote mark) reaches out at most
_OVERLAP = 1.0  # of the lower piece's height by which neighbours may overlap: detected boxes are grown at both ends
_SPACE = 0.4  # of a piece's height: more white than between most words, less than between columns
_GAP_COST = 0.03  # a gap of one height costs as much as this share of a height up or down: near pieces join first


class LinePart(NamedTuple):
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

    def cut_at(self, x: float) -> list[LinePart]:
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


Row = list[LinePart]  # left to right


def wide_spaces(words: Sequence[OcrWord], height: float) -> tuple[tuple[float, float], ...]:
    """The white between words of a line that may be more than a space: from x to x."""
    ends = ((before.box.right, after.box.left) for before, after in pairwise(words))
    return tuple((left, right) for left, right in ends if right - left > _SPACE * height)


def rows_of(pieces: Sequence[LinePart]) -> list[Row]:
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


def _neighbours(pieces: Sequence[LinePart]) -> NDArray[np.int64]:
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


def _is_beside(left: LinePart, right: LinePart) -> bool:
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


Points = NDArray[np.float64]  # (points, 2): x and y
Segments = NDArray[np.float64]  # (segments, 2, 2): x and y of the start and the end, left to right

_MIN_ASPECT = 3.0  # length to height of a line whose slope counts: that of a short word is chance
_MAX_SLOPE = 0.4  # steeper lines are stamps and slanting notes, not the page's
# Powers of x and y in the slope: a skewed page has the first, a keystoned one y, a page curled to its spine x and x^2,
# a wavy one all of them.
_POWERS = ((0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (0, 1), (1, 1))
# Weight of "the page has one slope, and this", in lines as long as the text is wide.
_SLOPE_STIFFNESS = 0.02
# Weights of "the page has no curl", from round to round: a lone column of short words shows none, and the gaps within
# the rows of one round, longer than most lines, show the next one more. Begun at 1e-5, level tables lost their rows.
_STIFFNESSES = (0.1, 0.01, 1e-3, 1e-4, 1e-5)
_OUTLIER = 0.01  # slope by which a line may differ from its neighbours before it counts less
_ROUNDS = 4
_ENOUGH_LINES = 1.0  # of the width that the text covers, squared and summed: from then on lines show the page's slope
_MAX_SKEW = 0.1  # slope of a page of short pieces
_SKEW_STEP = 0.0025
_LEVEL = 0.15  # of a piece's height: pieces this far apart are level
_EDGE = 0.1  # of a piece's height: starts this far apart are on one edge
_LIKELIER = 1.15  # times: edges that run as the lines slope, or not at all


class Slopes(NamedTuple):
    """Where text lines are straight enough to show how the page slopes there."""

    segments: Segments
    lengths: NDArray[np.float64]  # (segments,): pixels across of the line that each is a part of

    def with_gaps(self, gaps: Segments) -> Slopes:
        """These and the gaps between neighbours in a row."""
        across = gaps[:, 1, 0] - gaps[:, 0, 0]
        return Slopes(np.concatenate([self.segments, gaps]), np.concatenate([self.lengths, across]))

    def weights(self, width: float) -> NDArray[np.float64]:
        """(segments,): how much each one tells; those of a line of this width make 1 together.

        The ends of a line are a pixel or two off, so the variance of its slope falls with its length squared.
        """
        across = self.segments[:, 1, 0] - self.segments[:, 0, 0]
        return np.maximum(across, 1.0) * np.maximum(self.lengths, 1.0) / width**2


@dataclass(frozen=True, slots=True)
class Flattening:
    """The vertical distance of every point from where its line would be on a level page.

    A line that meets the page's middle at the height v lies at y = v + d(x, v), d a polynomial without constant term.
    """

    middle: tuple[float, float]  # x, y
    radius: tuple[float, float]  # half of the width and height that the lines cover
    slopes: NDArray[np.float64]  # (powers,): of the slope as a polynomial in x and v, both from -1 to 1

    def level(self, points: Points) -> Points:
        """The points on the levelled page: x as it is, y as high as their lines are at the page's middle."""
        x = (points[:, 0] - self.middle[0]) / self.radius[0]
        level = points[:, 1]
        for _ in range(2):  # d changes slowly with v
            v = np.clip((level - self.middle[1]) / self.radius[1], -1, 1)
            level = points[:, 1] - self.radius[0] * (_integrals(x, v) @ self.slopes)
        return np.stack([points[:, 0], level], axis=1)


def fit_flattening(slopes: Slopes, points: Points, prior_slope: float, stiffness: float) -> Flattening:
    """The flattening that fits the slopes; those at odds with the others hardly count.

    Args:
        points: along all lines; where none of them shows a slope, the fit is held by its stiffness.
        prior_slope: of a page with too few of them, pixels down per pixel to the right.
        stiffness: of `_STIFFNESSES`.
    """
    segments = slopes.segments
    prior = np.array([prior_slope, *[0.0] * (len(_POWERS) - 1)])
    (left, top), (right, bottom) = points.min(axis=0), points.max(axis=0)
    middle = (float(left + right) / 2, float(top + bottom) / 2)
    radius = (max(1.0, float(right - left) / 2), max(1.0, float(bottom - top) / 2))
    down = segments[:, 1, 1] - segments[:, 0, 1]
    across = np.maximum(segments[:, 1, 0] - segments[:, 0, 0], 1.0)
    start = (segments[:, 0, 0] - middle[0]) / radius[0]
    v = (segments[:, :, 1].mean(axis=1) - middle[1]) / radius[1]
    # Their means over each segment: a gap may be as long as a wave, whose slope in its middle is not its own.
    powers = (_integrals(start + across / radius[0], v) - _integrals(start, v)) * (radius[0] / across)[:, None]
    stiff = np.diag([_SLOPE_STIFFNESS, *[stiffness] * (len(_POWERS) - 1)])
    return Flattening(middle, radius, _robust_fit(powers, down / across, slopes.weights(2 * radius[0]), prior, stiff))


def _integrals(x: NDArray[np.float64], v: NDArray[np.float64]) -> NDArray[np.float64]:
    """(points, powers): of the slope's powers, from the page's middle to each x."""
    return np.stack([x ** (i + 1) / (i + 1) * v**j for i, j in _POWERS], axis=1)


def slopes_of(lines: Sequence[Points], heights: Sequence[float]) -> Slopes:
    """The slopes of the lines that are long enough to show one.

    Args:
        lines: points along the middle of each line, left to right, at least two.
        heights: of the lines, in the same pixels.
    """
    long_lines = [line for line, height in zip(lines, heights, strict=True) if _is_long(line, height)]
    segments = [np.stack([line[:-1], line[1:]], axis=1) for line in long_lines]
    lengths = [np.full(len(line) - 1, line[-1, 0] - line[0, 0]) for line in long_lines]
    return Slopes(np.concatenate([np.zeros((0, 2, 2)), *segments]), np.concatenate([np.zeros(0), *lengths]))


def prior_slope(slopes: Slopes, middles: Points, height: float) -> float:
    """One slope for the page: the weighted median of its long lines, else the one at which most pieces are level.

    Args:
        middles: of all pieces.
        height: median of the pieces.
    """
    if not len(middles):
        return 0.0
    weights = slopes.weights(max(1.0, float(np.ptp(middles[:, 0]))))
    if weights.sum() >= _ENOUGH_LINES:
        across, down = (slopes.segments[:, 1] - slopes.segments[:, 0]).T
        tangents = down / np.maximum(across, 1.0)
        order = np.argsort(tangents)
        return float(tangents[order][np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2)])
    candidates = np.arange(-_MAX_SKEW, _MAX_SKEW + 1e-9, _SKEW_STEP)
    levels = middles[:, 1] - candidates[:, None] * middles[:, 0]
    together = np.array([_count_near(level, _LEVEL * max(1.0, height)) for level in levels])
    return float(candidates[np.argmax(together - 1e-3 * np.abs(candidates))])


def slant_of(starts: Points, slope: float, height: float) -> float:
    """Pixels to the right per pixel up at which the edges of columns run.

    As the page's lines slope, where it was rotated; not at all, where it is curled or sheared; else, where it was
    photographed or has been deskewed by half, the one at which clearly more of its pieces begin on one edge.

    Args:
        starts: left ends of all pieces on the levelled page.
        slope: of the lines in the middle of the page.
        height: median of the pieces.
    """
    candidates = np.array([slope, 0.0, *np.arange(-_MAX_SKEW, _MAX_SKEW, _SKEW_STEP)])
    tolerance = _EDGE * max(1.0, height)
    together = np.array([_count_near(starts[:, 0] + slant * starts[:, 1], tolerance) for slant in candidates])
    together[:2] *= _LIKELIER
    return float(candidates[np.argmax(together)])


def _count_near(positions: NDArray[np.float64], tolerance: float) -> float:
    return float(np.exp(-((np.diff(np.sort(positions)) / tolerance) ** 2)).sum())


def _is_long(line: Points, height: float) -> bool:
    across, down = line[-1] - line[0]
    return bool(across > _MIN_ASPECT * max(1.0, height) and abs(down) < _MAX_SLOPE * across)


def _robust_fit(
    powers: NDArray[np.float64],
    slopes: NDArray[np.float64],
    weights: NDArray[np.float64],
    prior: NDArray[np.float64],
    stiffness: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Least squares around the prior; outliers (Huber's) have less weight in each round."""
    fitted = prior.copy()
    for _ in range(_ROUNDS):
        residuals = np.abs(slopes - powers @ fitted)
        weighted = powers * (weights * np.minimum(1.0, _OUTLIER / np.maximum(residuals, 1e-9)))[:, None]
        fitted[:] = np.linalg.solve(weighted.T @ powers + stiffness, weighted.T @ slopes + stiffness @ prior)
    return fitted


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
    """The rows of the page, levelled round by round as far as the rows of the last round show its curl."""
    if not lines:
        return []
    middles = {id(line.words): line.middle.mean(axis=0) for line in lines}
    long_lines = slopes_of([line.middle for line in lines], [line.height for line in lines])
    prior = prior_slope(long_lines, np.stack(list(middles.values())), median(line.height for line in lines))
    points = np.concatenate([line.middle for line in lines])
    flattening = fit_flattening(long_lines, points, prior, _STIFFNESSES[0])
    for stiffness in _STIFFNESSES[1:]:
        rows = rows_of([_piece(line, flattening) for line in lines])
        gaps = [[middles[id(left.words)], middles[id(right.words)]] for row in rows for left, right in pairwise(row)]
        flattening = fit_flattening(long_lines.with_gaps(np.reshape(gaps, (-1, 2, 2))), points, prior, stiffness)
    return rows_of(_with_upright_edges([_piece(line, flattening) for line in lines], prior))


def _with_upright_edges(pieces: list[LinePart], slope: float) -> list[LinePart]:
    """The pieces moved sideways, so that the edges of columns are upright where the whole page is rotated."""
    starts = np.array([(piece.left, piece.middle) for piece in pieces])
    slant = slant_of(starts, slope, median(piece.height for piece in pieces))
    moves = slant * (starts[:, 1] - starts[:, 1].mean())
    return [
        piece._replace(left=piece.left + move, right=piece.right + move, move=move)
        for piece, move in zip(pieces, moves.tolist(), strict=True)
    ]


def _piece(line: TextLine, flattening: Flattening) -> LinePart:
    """The line on the levelled page; one that runs up or down the page stands where it begins at the top."""
    across, down = np.abs(line.middle[-1] - line.middle[0])
    if down > across:
        (left, top), right = line.middle.min(axis=0), line.middle[:, 0].max()
        half = line.height / 2
        return LinePart(line.words, float(left - half), float(right + half), float(top), float(top), line.height)
    level = flattening.level(line.middle)
    (left, start), (right, end) = level[0], level[-1]
    spaces = wide_spaces(line.words, line.height)
    return LinePart(line.words, float(left), float(right), float(start), float(end), line.height, spaces)


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
