"""Parts a stretch of aligned text in which two tables, or a table and a box, stand side by side. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from operator import itemgetter
from statistics import median

from backend.tables.aligned import Stretch, TableLine, TablePiece, columns_over, stretches
from backend.tables.level_page import Segment, outline
from backend.tables.text_rows import is_figure

_WIDER = 2.0  # times the usual space between the columns: that between two tables
_MIN_GAP = 1.0  # of the line height
_FRAMED = 0.85  # of the width of a side that its own rulings cover
_FIGURES, _TEXTS = 0.7, 0.4  # shares of figures in a column of figures, and in one of texts
_SPARSE = 0.75  # of the lines of a table that a box beside it has at most
_MIN_RULINGS = 3  # of a table beside something without rulings
_MAX_COLUMNS = 60  # of tables side by side: of thousands each gap would be tried, in each part again


def parts_of(stretch: Stretch, levels: Sequence[Segment], unit: float) -> list[Stretch]:
    """The stretch, or what stands left and right of the widest gap that nothing crosses, where these are two things.

    Two tables have rulings of their own, the same headings, or texts and figures each; a box beside a table has no
    share in its rulings, or in its header. A column of labels far from its figures is not parted from them.
    """
    if len(stretch.columns) > _MAX_COLUMNS:
        return [stretch]
    top, bottom = stretch.lines[0].top - unit, stretch.lines[-1].bottom + unit
    near = [segment for segment in levels if top <= segment.at <= bottom]
    gaps = [right[0] - left[1] for left, right in pairwise(stretch.columns)]
    columns = _Columns(stretch)
    for index in sorted(range(len(gaps)), key=lambda index: -gaps[index]):
        start, end = stretch.columns[index][1], stretch.columns[index + 1][0]
        if gaps[index] < _MIN_GAP * unit or index in columns.crossed or _is_ruled(near, start, end):
            continue
        others = [gap for other, gap in enumerate(gaps) if other != index]
        is_wide = bool(others) and gaps[index] >= _WIDER * median(others)
        are_tables = _are_framed(stretch, index, near) or _are_tables(columns, index, is_wide=is_wide)
        if are_tables or _is_box(columns, index):
            sides = [_side(stretch.lines, -float("inf"), end), _side(stretch.lines, end, float("inf"))]
            return [
                part
                for side in sides
                for grown in stretches(side, levels, unit)
                for part in parts_of(grown, levels, unit)
            ]
    return [stretch]


def _side(lines: Sequence[TableLine], start: float, end: float) -> list[TableLine]:
    """The lines with their pieces from ``start`` to ``end`` only."""
    side = []
    for line in lines:
        pieces = tuple(piece for piece in line.pieces if start <= piece.left < end)
        if pieces:
            words = [word for piece in pieces for word in piece.words]
            box = outline(words)
            y = sum(word.y for word in words) / len(words)
            side.append(replace(line, y=y, top=box.top, bottom=box.bottom, pieces=pieces))
    return sorted(side, key=lambda line: line.y)


def _is_ruled(levels: Sequence[Segment], start: float, end: float) -> bool:
    """Whether a ruling runs over the gap: a border."""
    middle = (start + end) / 2
    return any(segment.start < middle < segment.end for segment in levels)


def _are_framed(stretch: Stretch, index: int, levels: Sequence[Segment]) -> bool:
    """Whether rulings cover one side and end at the gap, and the other side has its own, or none."""
    sides = (stretch.columns[: index + 1], stretch.columns[index + 1 :])
    counts = [_rulings_over(side[0][0], side[-1][1], levels) for side in sides]
    if min(counts) == 0:
        bare = sides[counts.index(0)]
        is_bare = not any(segment.start < bare[-1][1] and segment.end > bare[0][0] for segment in levels)
        return is_bare and max(counts) >= _MIN_RULINGS and len(sides[1 - counts.index(0)]) > 1
    return min(map(len, sides)) > 1


def _rulings_over(left: float, right: float, levels: Sequence[Segment]) -> int:
    covered = (min(segment.end, right) - max(segment.start, left) for segment in levels)
    return sum(width >= _FRAMED * (right - left) for width in covered)


class _Columns:
    """The columns of a stretch. Each line is looked at once, however many gaps there are."""

    def __init__(self, stretch: Stretch) -> None:
        self.stretch, self.last = stretch, len(stretch.columns) - 1

    @cached_property
    def figures(self) -> list[float]:
        """The share of figures in each column, without the first line."""
        figures, texts = [0] * (self.last + 1), [0] * (self.last + 1)
        for line in self.stretch.lines[1:]:
            for piece in line.pieces:
                for column in columns_over(self.stretch.columns, piece.left, piece.right):
                    figures[column] += is_figure(_text(piece))
                    texts[column] += 1
        return [of / max(1, count) for of, count in zip(figures, texts, strict=True)]

    @cached_property
    def crossed(self) -> set[int]:
        """The columns behind which text runs over the gap: a heading, a title."""
        columns, gaps = self.stretch.columns, set[int]()
        for line in self.stretch.lines:
            for piece in line.pieces:
                first = bisect_right(columns, piece.left, key=itemgetter(0)) - 1
                gaps.update(range(max(0, first), bisect_left(columns, piece.right, key=itemgetter(1))))
        return gaps

    @cached_property
    def first_line(self) -> set[int]:
        """The columns that it fills."""
        return _filled(self.stretch.lines[0], self.stretch)

    @cached_property
    def has_names_twice(self) -> bool:
        """Whether most headings of the first line are there more than once."""
        names = [_text(piece).lower() for piece in self.stretch.lines[0].pieces]
        return 2 * len(set(names)) <= len(names) and not any(map(is_figure, names))


def _are_tables(columns: _Columns, index: int, *, is_wide: bool) -> bool:
    """Whether both sides begin with texts and end with figures, under the same headings or with a wide gap between."""
    if min(index, columns.last - index - 1) < 1 or not {0, index + 1} <= columns.first_line:
        return False
    ends = min(columns.figures[index], columns.figures[columns.last]) >= _FIGURES
    begins = max(columns.figures[0], columns.figures[index + 1]) <= _TEXTS
    return begins and ends and (is_wide or columns.has_names_twice)


def _is_box(columns: _Columns, index: int) -> bool:
    """Whether the last column is a box beside a table: sparse texts behind figures that no header names."""
    last, stretch = columns.last, columns.stretch
    if index != last - 1 or columns.figures[last] > _TEXTS or columns.figures[last - 1] < _FIGURES:
        return False
    filled = [_filled(line, stretch) for line in stretch.lines]
    sparse = sum(last in columns for columns in filled) <= _SPARSE * sum(
        len(columns - {last}) > 0 for columns in filled
    )
    return sparse and last in filled[0] and last - 1 not in filled[0]


def _filled(line: TableLine, stretch: Stretch) -> set[int]:
    """The columns that a line fills."""
    return {column for piece in line.pieces for column in columns_over(stretch.columns, piece.left, piece.right)}


def _text(piece: TablePiece) -> str:
    return " ".join(word.word.text for word in piece.words)
