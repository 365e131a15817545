"""Tables whose cells are drawn: a grid of level and upright rulings, with cells that span rows and columns. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np

from backend.tables.level_page import LevelPage, PlacedWord, Segment, TextLine
from backend.tables.records import CellSpan, Layout, by_lines, without_empty_lines
from backend.tables.text_rows import row_cuts, rows_between

_TOUCH = 0.35  # of the line height: rulings this close meet; printed borders leave small gaps, scans larger ones
_OPEN = 0.8  # of the line height: rulings that go on further than this end at a border that is not drawn
_COVERED = 0.6  # of a cell's side that a ruling must cover to close it
_GAP = 0.7  # of the line height: space that separates two columns of text without a ruling between them
_MAX_CROSSINGS = 4_000_000  # pairs of rulings that are compared; a drawing has more
_MAX_CELLS = 100_000  # of a grid, empty ones too; a page has room for a tenth
_MIN_CELLS = 4  # with words
_MAX_PLACES = 50  # for each of these, empty ones too: answers write them out
_MAX_BETWEEN = 12.0  # of the line height: between two filled rows of a striped table
_MAX_BESIDE = 4  # striped tables side by side
_ROW_SPACE, _LINE_SPACE = 1.0, 0.35  # of the line height: within the border of a row, between its lines


class RuledArea(NamedTuple):
    """Rulings that meet, and the grid that they draw."""

    xs: list[float]  # of the upright ones and the outline, left to right
    ys: list[float]
    levels: list[Segment]
    uprights: list[Segment]


def ruled_areas(page: LevelPage, words: PageWords) -> list[RuledArea]:
    """The areas of the page in which rulings cross, from top to bottom."""
    tolerance = _TOUCH * page.unit
    areas = []
    for levels, uprights in _components(page.levels, page.uprights, tolerance):
        xs, ys = (
            _distinct([*(line.at for line in lines), *_open_ends(lines, across, page.unit)], tolerance)
            for lines, across in ((uprights, levels), (levels, uprights))
        )
        if len(ys) > 1 and len(xs) > 1:
            areas.append(RuledArea(xs, ys, levels, uprights))
    areas.sort(key=lambda area: (area.ys[0], area.xs[0]))
    return _with_unfilled_rows(areas, words, page.unit)


class PageWords:
    """The words of a page, line by line, to be asked for by their places: a page may have a thousand grids."""

    def __init__(self, lines: Sequence[TextLine]) -> None:
        self._words = [word for line in lines for word in line]
        self._boxes = np.array([word.box for word in self._words]).reshape(-1, 4)
        self._x, self._y = ((self._boxes[:, side] + self._boxes[:, side + 2]) / 2 for side in (0, 1))
        self._from_top, self._from_bottom = (
            np.argsort(key, kind="stable") for key in (self._boxes[:, 1], -self._boxes[:, 3])
        )

    def within(self, area: RuledArea) -> list[PlacedWord]:
        """The words whose middles are inside the grid's outline."""
        (left, right), (top, bottom) = (area.xs[0], area.xs[-1]), (area.ys[0], area.ys[-1])
        inside = (left < self._x) & (self._x < right) & (top < self._y) & (self._y < bottom)
        return [self._words[index] for index in np.flatnonzero(inside)]

    def between(self, upper: RuledArea, lower: RuledArea, xs: Sequence[float]) -> list[PlacedWord]:
        """The words between two areas and between the first and the last of upright rulings, or across one of them."""
        beside = (self._boxes[:, 0] < xs[-1]) & (self._boxes[:, 2] > xs[0])
        inside = beside & (upper.ys[-1] < self._y) & (self._y < lower.ys[0])
        return [self._words[index] for index in np.flatnonzero(inside)]

    def below(self, area: RuledArea) -> Iterator[PlacedWord]:
        """The words below an area, in its width, from top to bottom."""
        inside = (area.xs[0] < self._x) & (self._x < area.xs[-1]) & (self._y > area.ys[-1])
        return (self._words[index] for index in self._from_top[inside[self._from_top]])

    def above(self, area: RuledArea) -> Iterator[PlacedWord]:
        """The words above an area, in its width, from bottom to top."""
        inside = (area.xs[0] < self._x) & (self._x < area.xs[-1]) & (self._y < area.ys[0])
        return (self._words[index] for index in self._from_bottom[inside[self._from_bottom]])


def ruled_layout(area: RuledArea, words: Sequence[PlacedWord], unit: float) -> Layout | None:
    """The cells of a grid; None where it is no table: a frame, a form's lone box, a drawing.

    Args:
        words: those within it.
    """
    if len(area.xs) < 3 or len(area.ys) < 2 or len(area.xs) * len(area.ys) > _MAX_CELLS:
        return None
    inside: dict[tuple[int, int], list[PlacedWord]] = defaultdict(list)
    for word in words:
        inside[bisect_right(area.ys, word.y) - 1, bisect_right(area.xs, word.x) - 1].append(word)
    cells = []
    for cell in _drawn_cells(area, _TOUCH * unit):
        rows, columns = range(cell.row, cell.row + cell.rowspan), range(cell.column, cell.column + cell.colspan)
        own = [word for row in rows for column in columns for word in inside.get((row, column), ())]
        cells += _split_at_columns(replace(cell, words=tuple(own)), area.xs, unit)
    layout = without_empty_lines(Layout(len(area.ys) - 1, len(area.xs) - 1, tuple(cells)))
    layout = _split_rows(layout, unit)
    filled = sum(bool(cell.words) for cell in layout.cells)
    is_table = layout.rows > 1 and layout.columns > 1 and filled >= _MIN_CELLS
    is_table = is_table and layout.rows * layout.columns <= _MAX_PLACES * filled
    return layout if is_table and 3 * filled >= len(layout.cells) else None


def _with_unfilled_rows(areas: Sequence[RuledArea], words: PageWords, unit: float) -> list[RuledArea]:
    """Areas of one table joined, where only every second row is filled with a colour; and the rows above and below."""
    joined: list[RuledArea] = []
    striped: set[int] = set()  # indexes of those joined
    for area in areas:
        last = len(joined) - 1
        near = range(last, max(last - _MAX_BESIDE, -1), -1)  # the last one, or that of a table beside it
        same = next((index for index in near if _is_same_table(joined[index], area, words, unit)), None)
        if same is None:
            joined.append(area)
            continue
        before = joined[same]
        xs = _distinct([*before.xs, *area.xs], _TOUCH * unit)
        ys = _distinct([*before.ys, *area.ys], _TOUCH * unit)
        joined[same] = RuledArea(xs, ys, [*before.levels, *area.levels], [*before.uprights, *area.uprights])
        striped.add(same)
    return [_extended(area, words, unit) if index in striped else area for index, area in enumerate(joined)]


def _is_same_table(upper: RuledArea, lower: RuledArea, words: PageWords, unit: float) -> bool:
    """Whether a row stands between two areas, in the columns of both."""
    if abs(upper.xs[0] - lower.xs[0]) > unit or abs(upper.xs[-1] - lower.xs[-1]) > unit:
        return False
    few, many = sorted((upper.xs, lower.xs), key=len)
    if any(min(abs(x - other) for other in many) > _TOUCH * unit for x in few):
        return False
    is_near = lower.ys[0] - upper.ys[-1] < _MAX_BETWEEN * unit
    return is_near and _fills_columns(words.between(upper, lower, many), many, unit)


def _fills_columns(words: Sequence[PlacedWord], xs: Sequence[float], unit: float) -> bool:
    """Whether words stand in several of the columns, and none across two or outside."""
    if not words or any(word.box.left < xs[0] - unit or word.box.right > xs[-1] + unit for word in words):
        return False
    crossing = any(word.box.left < x - 0.3 * unit and word.box.right > x + 0.3 * unit for word in words for x in xs)
    return not crossing and len({bisect_right(xs, word.x) for word in words}) > 1


def _extended(area: RuledArea, words: PageWords, unit: float) -> RuledArea:
    """A striped area with the row without a colour above its first stripe and below its last one."""
    ys = list(area.ys)
    below = _lines_down(words.below(area), ys[-1], unit)
    if _fills_columns(below, area.xs, unit):
        ys.append(max(word.box.bottom for word in below))
    turned = (
        word._replace(box=word.box._replace(top=-word.box.bottom, bottom=-word.box.top)) for word in words.above(area)
    )
    above = _lines_down(turned, -ys[0], unit)
    if _fills_columns(above, area.xs, unit):
        ys.insert(0, -max(word.box.bottom for word in above))
    return area._replace(ys=ys)


def _lines_down(words: Iterable[PlacedWord], start: float, unit: float) -> list[PlacedWord]:
    """The words, from top to bottom, that follow ``start`` without a wide space."""
    taken: list[PlacedWord] = []
    for word in words:
        if word.box.top - start > (_ROW_SPACE if not taken else _LINE_SPACE) * unit:
            break
        taken.append(word)
        start = max(start, word.box.bottom)
    return taken


def _open_ends(lines: Sequence[Segment], across: Sequence[Segment], unit: float) -> list[float]:
    """Where the rulings across go on beyond the first or last of the lines: a border that is not drawn."""
    first, last = min(line.at for line in lines), max(line.at for line in lines)
    start, end = min(line.start for line in across), max(line.end for line in across)
    return [start] * (start < first - _OPEN * unit) + [end] * (end > last + _OPEN * unit)


def _distinct(values: Sequence[float], tolerance: float) -> list[float]:
    """Values from low to high, those closer than the tolerance as one."""
    groups: list[list[float]] = []
    for value in sorted(values):
        if groups and value - groups[-1][0] <= tolerance:
            groups[-1].append(value)
        else:
            groups.append([value])
    return [sum(group) / len(group) for group in groups]


def _components(
    levels: Sequence[Segment], uprights: Sequence[Segment], tolerance: float
) -> Iterator[tuple[list[Segment], list[Segment]]]:
    """Level and upright rulings that meet, directly or through others."""
    if not levels or not uprights or len(levels) * len(uprights) > _MAX_CROSSINGS:
        return
    across, down = np.array(levels), np.array(uprights)
    meets = (
        (down[None, :, 0] >= across[:, None, 1] - tolerance)
        & (down[None, :, 0] <= across[:, None, 2] + tolerance)
        & (across[:, None, 0] >= down[None, :, 1] - tolerance)
        & (across[:, None, 0] <= down[None, :, 2] + tolerance)
    )
    left = set(range(len(levels)))
    while left:
        rows, columns, new = set[int](), set[int](), {left.pop()}
        while new:
            rows |= new
            found = set(np.flatnonzero(meets[list(new)].any(axis=0)).tolist()) - columns
            columns |= found
            new = set(np.flatnonzero(meets[:, list(found)].any(axis=1)).tolist()) - rows if found else set()
        left -= rows
        if columns:
            yield [levels[index] for index in sorted(rows)], [uprights[index] for index in sorted(columns)]


def _drawn_cells(area: RuledArea, tolerance: float) -> Iterator[CellSpan]:
    """The cells as the rulings close them, as rectangles: runs of a row, joined with equal ones below."""
    rows, columns = len(area.ys) - 1, len(area.xs) - 1
    open_right = ~_closed(area.xs[1:-1], area.ys, area.uprights, tolerance).T  # (rows, columns - 1)
    open_below = ~_closed(area.ys[1:-1], area.xs, area.levels, tolerance)  # (rows - 1, columns)
    above: dict[tuple[int, int], tuple[int, int]] = {}  # columns of a cell that is open below: its row and height
    for row in range(rows):
        here: dict[tuple[int, int], tuple[int, int]] = {}
        column = 0
        while column < columns:
            end = column + 1
            while end < columns and open_right[row, end - 1]:
                end += 1
            first, height = above.pop((column, end), (row, 0))
            if row < rows - 1 and open_below[row, column:end].all():
                here[column, end] = (first, height + 1)
            else:
                yield CellSpan(first, column, height + 1, end - column)
            column = end
        for (start, end), (first, height) in above.items():  # the row below is cut otherwise
            yield CellSpan(first, start, height, end - start)
        above = here


def _closed(
    ats: Sequence[float], ends: Sequence[float], segments: Sequence[Segment], tolerance: float
) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """(ats, stretches between ends): whether rulings at each cell cover each stretch."""
    low, high = np.array(ends[:-1]), np.array(ends[1:])
    covered = np.zeros((len(ats), len(low)))
    for segment in segments:
        near = slice(bisect_left(ats, segment.at - tolerance), bisect_right(ats, segment.at + tolerance))
        if near.start < near.stop:
            covered[near] += np.clip(np.minimum(high, segment.end) - np.maximum(low, segment.start), 0, None)
    closed: np.ndarray[tuple[int, int], np.dtype[np.bool_]] = covered >= _COVERED * (high - low)
    return closed


def _split_at_columns(cell: CellSpan, xs: Sequence[float], unit: float) -> list[CellSpan]:
    """A cell over several columns, cut where its text stands in columns that other rows draw."""
    if cell.colspan == 1 or not cell.words:
        return [cell]
    lines = by_lines(cell.words)
    cuts = [column for column in range(cell.column + 1, cell.column + cell.colspan) if _is_gap(lines, xs[column], unit)]
    if not cuts:
        return [cell]
    edges = [cell.column, *cuts, cell.column + cell.colspan]
    parts = []
    for start, end in pairwise(edges):
        own = tuple(word for word in cell.words if start <= _column(word.x, xs, edges) < end)
        if not own:
            parts += [CellSpan(cell.row, column, cell.rowspan, 1) for column in range(start, end)]
            continue
        first = min(_column(max(word.box.left, xs[start]), xs, edges) for word in own)
        last = max(_column(min(word.box.right, xs[end]) - 0.3 * unit, xs, edges) for word in own)
        first, last = max(first, start), min(max(last, first), end - 1)
        parts.append(CellSpan(cell.row, first, cell.rowspan, last - first + 1, own))
        parts += [
            CellSpan(cell.row, column, cell.rowspan, 1) for column in (*range(start, first), *range(last + 1, end))
        ]
    return parts


def _column(x: float, xs: Sequence[float], edges: Sequence[int]) -> int:
    """The column between ``xs`` at ``x``, of those from the first edge to the last."""
    return min(max(bisect_right(xs, x) - 1, edges[0]), edges[-1] - 1)


def _is_gap(lines: Sequence[Sequence[PlacedWord]], x: float, unit: float) -> bool:
    """Whether space separates the words left of ``x`` from those right of it, in a line with both."""
    both = 0
    for line in lines:
        left = max((word.box.right for word in line if word.x < x), default=None)
        right = min((word.box.left for word in line if word.x >= x), default=None)
        if left is not None and right is not None:
            both += 1
            if right - left < _GAP * unit or left > x + 0.3 * unit or right < x - 0.3 * unit:
                return False
    return both > 0


def _split_rows(layout: Layout, unit: float) -> Layout:
    """Rows that no ruling separates cut apart: each drawn row may hold many lines of figures."""
    cells: list[CellSpan] = []
    new_row: dict[int, int] = {}
    count = 0
    low_cells: dict[int, list[CellSpan]] = defaultdict(list)  # of one row each
    for cell in layout.cells:
        if cell.rowspan == 1:
            low_cells[cell.row].append(cell)
    tall = [range(cell.row, cell.row + cell.rowspan) for cell in layout.cells if cell.rowspan > 1]
    crossed = set(chain.from_iterable(tall))
    for row in range(layout.rows):
        new_row[row] = count
        here = low_cells[row]
        cuts = [] if row in crossed else row_cuts([cell.words for cell in here], unit, ruled=True)
        words = [rows_between(cuts, cell.words) for cell in here]
        for part in range(len(cuts) + 1):
            parts = [
                replace(cell, row=count + part, words=tuple(own[part])) for cell, own in zip(here, words, strict=True)
            ]
            filled = [cell for cell in parts if cell.words]
            if cuts and len(filled) == 1 and filled[0].column == 0:  # a section: no ruling is between its columns
                parts = [replace(filled[0], colspan=layout.columns)]
            cells += parts
        count += len(cuts) + 1
    new_row[layout.rows] = count
    for cell in layout.cells:
        if cell.rowspan > 1:
            first = new_row[cell.row]
            cells.append(replace(cell, row=first, rowspan=new_row[cell.row + cell.rowspan] - first))
    header = None if layout.header_rows is None else new_row[layout.header_rows]
    return Layout(count, layout.columns, tuple(cells), header)
