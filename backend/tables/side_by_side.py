"""Parts a stretch of aligned text in which two tables, or a table and a box, stand side by side. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median

from backend.tables.aligned import Stretch, TableLine, TablePiece, stretches
from backend.tables.level_page import Segment, outline
from backend.tables.text_rows import is_figure

_WIDER = 2.0  # times the usual space between the columns: that between two tables
_MIN_GAP = 1.0  # of the line height
_FRAMED = 0.85  # of the width of a side that its own rulings cover
_FIGURES, _TEXTS = 0.7, 0.4  # shares of figures in a column of figures, and in one of texts
_SPARSE = 0.75  # of the lines of a table that a box beside it has at most
_MIN_RULINGS = 3  # of a table beside something without rulings


def parts_of(stretch: Stretch, levels: Sequence[Segment], unit: float) -> list[Stretch]:
    """The stretch, or what stands left and right of the widest gap that nothing crosses, where these are two things.

    Two tables have rulings of their own, the same headings, or texts and figures each; a box beside a table has no
    share in its rulings, or in its header. A column of labels far from its figures is not parted from them.
    """
    top, bottom = stretch.lines[0].top - unit, stretch.lines[-1].bottom + unit
    near = [segment for segment in levels if top <= segment.at <= bottom]
    gaps = [right[0] - left[1] for left, right in pairwise(stretch.columns)]
    for index in sorted(range(len(gaps)), key=lambda index: -gaps[index]):
        start, end = stretch.columns[index][1], stretch.columns[index + 1][0]
        if gaps[index] < _MIN_GAP * unit or _is_crossed(stretch, near, start, end):
            continue
        sides = [_side(stretch.lines, -float("inf"), end), _side(stretch.lines, end, float("inf"))]
        others = [gap for other, gap in enumerate(gaps) if other != index]
        is_wide = bool(others) and gaps[index] >= _WIDER * median(others)
        if _are_framed(stretch, index, near) or _are_tables(stretch, index, is_wide=is_wide) or _is_box(stretch, index):
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


def _is_crossed(stretch: Stretch, levels: Sequence[Segment], start: float, end: float) -> bool:
    """Whether text or a ruling runs over the gap: a heading, a title, a border."""
    texts = any(piece.left < end and piece.right > start for line in stretch.lines for piece in line.pieces)
    middle = (start + end) / 2
    return texts or any(segment.start < middle < segment.end for segment in levels)


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


def _are_tables(stretch: Stretch, index: int, *, is_wide: bool) -> bool:
    """Whether both sides begin with texts and end with figures, under the same headings or with a wide gap between."""
    left, right = range(index + 1), range(index + 1, len(stretch.columns))
    if min(len(left), len(right)) < 2:
        return False
    first = _by_column(stretch.lines[0], stretch)
    if left[0] not in first or right[0] not in first:
        return False
    shares = [_figures_in(column, stretch) for column in range(len(stretch.columns))]
    ends = shares[left[-1]] >= _FIGURES and shares[right[-1]] >= _FIGURES
    begins = shares[left[0]] <= _TEXTS and shares[right[0]] <= _TEXTS
    names = [_text(piece).lower() for piece in stretch.lines[0].pieces]
    repeats = 2 * len(set(names)) <= len(names) and not any(map(is_figure, names))
    return begins and ends and (is_wide or repeats)


def _is_box(stretch: Stretch, index: int) -> bool:
    """Whether the last column is a box beside a table: sparse texts behind figures that no header names."""
    last = len(stretch.columns) - 1
    if index != last - 1 or _figures_in(last, stretch) > _TEXTS or _figures_in(last - 1, stretch) < _FIGURES:
        return False
    filled = [_by_column(line, stretch) for line in stretch.lines]
    sparse = sum(last in columns for columns in filled) <= _SPARSE * sum(
        len(columns - {last}) > 0 for columns in filled
    )
    return sparse and last in filled[0] and last - 1 not in filled[0]


def _figures_in(column: int, stretch: Stretch) -> float:
    """The share of figures in a column, without the first line."""
    left, right = stretch.columns[column]
    texts = [
        _text(piece) for line in stretch.lines[1:] for piece in line.pieces if piece.left < right and piece.right > left
    ]
    return sum(map(is_figure, texts)) / max(1, len(texts))


def _by_column(line: TableLine, stretch: Stretch) -> set[int]:
    """The columns that a line fills."""
    return {
        column
        for column, (left, right) in enumerate(stretch.columns)
        if any(piece.left < right and piece.right > left for piece in line.pieces)
    }


def _text(piece: TablePiece) -> str:
    return " ".join(word.word.text for word in piece.words)
