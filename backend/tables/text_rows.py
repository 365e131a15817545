"""Cuts the text between two rulings of a table into rows: which printed lines belong to one row. Pure.

A row is one line of figures with what belongs to them: a description may go on over several lines above, below or
around its figures. Where programs leave more space between rows than between lines, that decides.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Protocol, TypeVar

from backend.tables.level_page import PlacedWord
from backend.tables.records import by_lines

_DIGIT, _LETTER, _DASH = re.compile(r"\d"), re.compile(r"[^\W\d_]"), re.compile(r"[-\u2013\u2014]+")
_MAX_LETTERS, _MAX_UNIT_LETTERS = 3, 6  # of a currency or a code; of a unit behind digits: "18 días"
_LONGEST_FIGURE = 24  # characters
_OVERLAP = 0.7  # of the line height: lines of different columns this close stand side by side
_TIGHT = 0.8  # of the usual distance of two rows: a line this close to another belongs to its row
_LEADING = 1.3  # of the line height: lines of one paragraph are no further apart
_WIDE = 1.0  # of the line height: space that separates rows even where a ruling is missing
_SHAVED = 0.12  # of a word's height at its top and bottom, where boxes of lines overlap
_CLEAR_STEP = 1.5  # ratio of widths between lines of a row and between rows
_MIN_NAMED = 3  # columns that a header names, to be told from the upper line of a row
_FULL = 0.5  # of the filled columns: a line that fills so many may be a row of its own


def is_figure(text: str) -> bool:
    """Whether a text is a number, an amount, a date, a short code or a dash: what stands once a row."""
    if len(text) > _LONGEST_FIGURE:
        return False
    if not _DIGIT.search(text):
        return _DASH.fullmatch(text) is not None
    return len(_LETTER.findall(text)) <= (_MAX_UNIT_LETTERS if text[0].isdigit() else _MAX_LETTERS)


@dataclass(slots=True)
class _Line:
    """A printed line across the columns of a table."""

    y: float
    texts: dict[int, str]  # by column

    @property
    def columns(self) -> set[int]:
        return set(self.texts)


class _HasHeight(Protocol):
    @property
    def y(self) -> float: ...


_Placed = TypeVar("_Placed", bound=_HasHeight)


def row_cuts(columns: Sequence[Sequence[PlacedWord]], unit: float, *, ruled: bool) -> list[float]:
    """Heights between the rows of a stretch of a table, from top to bottom; none where it is one row.

    Args:
        columns: the words of each column.
        unit: line height.
        ruled: rulings separate the other rows of the table, so that only figures or wide space show rows here.
    """
    lines = _lines(columns, unit)
    if len(lines) < 2:
        return []
    anchors = _anchors(lines)
    if ruled and not anchors:
        return [
            middle for width, middle in _gaps([word for words in columns for word in words]) if width > _WIDE * unit
        ]
    cuts = _cuts_in_space(columns, lines, anchors, unit)
    if cuts is not None:
        return cuts
    joins = _joins_to_anchors(lines, anchors, unit) if anchors else _joins_evenly(lines, unit)
    return [
        (above.y + below.y) / 2 for (above, below), is_joined in zip(pairwise(lines), joins, strict=True)
        if not is_joined
    ]  # fmt: skip


def rows_between(cuts: Sequence[float], lines: Iterable[_Placed]) -> list[list[_Placed]]:
    """The lines of each row, from top to bottom; a line at a cut is below it."""
    rows: list[list[_Placed]] = [[] for _ in range(len(cuts) + 1)]
    for line in lines:
        rows[bisect_right(cuts, line.y)].append(line)
    return rows


def _cuts_in_space(
    columns: Sequence[Sequence[PlacedWord]], lines: Sequence[_Line], anchors: set[int], unit: float
) -> list[float] | None:
    """The middles of the wide spaces that run across all columns; None where space does not tell rows from lines.

    Of the widths that may separate rows, clearly above the next smaller one, the one that leaves fewest rows without
    figures is taken, then the clearest.
    """
    gaps = _gaps([word for words in columns for word in words])
    widths = sorted({round(width / unit, 2) for width, _ in gaps})
    candidates = []
    for low, high in pairwise([0.0, *widths]):
        clearness = (high + 0.1) / (low + 0.1)
        cuts = [middle for gap, middle in gaps if gap / unit >= high - 0.01]
        if clearness >= _CLEAR_STEP and (orphans := _orphans(lines, anchors, cuts)) is not None:
            candidates.append((orphans, -clearness, cuts))
    return min(candidates)[2] if candidates else None


def _gaps(words: Sequence[PlacedWord]) -> list[tuple[float, float]]:
    """Width and middle of the spaces in which no word of any column stands, from top to bottom."""
    gaps = []
    bottom = float("inf")
    for word in sorted(words, key=lambda word: word.box.top):
        top = word.box.top + _SHAVED * word.box.height
        if top > bottom:
            gaps.append((top - bottom, (top + bottom) / 2))
        end = word.box.bottom - _SHAVED * word.box.height
        bottom = end if bottom == float("inf") else max(bottom, end)
    return gaps


def _orphans(lines: Sequence[_Line], anchors: set[int], cuts: Sequence[float]) -> int | None:
    """How many rows lack figures; None where no row has several lines, or one looks like several rows.

    A row has one line of figures in a column of figures, without the header's names above them. Without such columns,
    some column of it has one line only.
    """
    several = doubtful = orphans = 0
    is_first = True
    for row in rows_between(cuts, lines):
        texts: dict[int, list[str]] = defaultdict(list)
        for line in row:
            for column, text in line.texts.items():
                texts[column].append(text)
        figures = [sum(map(is_figure, texts[column])) for column in anchors & set(texts)]
        with_header = is_first and sum(
            count == 1 and not is_figure(texts[column][0])
            for column, count in zip(anchors & set(texts), figures, strict=True)
        )
        if max(figures, default=0) > 1 or with_header > 1:
            return None
        orphans += bool(anchors) and max(figures, default=0) == 0 and not is_first
        is_first = False
        if max(map(len, texts.values()), default=0) > 1:
            several += 1
            doubtful += not anchors and min(map(len, texts.values())) > 1
    return orphans if several > 0 and doubtful <= 0.3 * several else None


def _lines(columns: Sequence[Sequence[PlacedWord]], unit: float) -> list[_Line]:
    """Printed lines from top to bottom; pieces of different columns at about the same height are one."""
    pieces = []
    for index, words in enumerate(columns):
        for words_of_line in by_lines(words):
            y = sum(word.y for word in words_of_line) / len(words_of_line)
            pieces.append((y, index, " ".join(word.word.text for word in words_of_line)))
    lines: list[_Line] = []
    for y, index, text in sorted(pieces):
        if lines and y - lines[-1].y <= 0.35 * unit and index not in lines[-1].texts:
            lines[-1].texts[index] = text
        else:
            lines.append(_Line(y, {index: text}))
    return lines


def _anchors(lines: Sequence[_Line]) -> set[int]:
    """The columns that hold figures only, at least in two lines: of them the ones with most."""
    texts: dict[int, list[str]] = defaultdict(list)
    for line in lines:
        for column, text in line.texts.items():
            texts[column].append(text)
    figures = {column: sum(map(is_figure, own)) for column, own in texts.items()}
    counts = {column: count for column, count in figures.items() if count >= max(2, 0.8 * len(texts[column]))}
    most = max(counts.values(), default=0)
    return {column for column, count in counts.items() if count >= 0.5 * most}


def _joins_to_anchors(lines: Sequence[_Line], anchors: set[int], unit: float) -> list[bool]:
    """For each line but the first, whether it is in the row of the line above; figures make rows."""
    anchored = [any(is_figure(line.texts[column]) for column in line.columns & anchors) for line in lines]
    distances = [below.y - above.y for above, below in pairwise(lines)]
    between = [d for d, (a, b) in zip(distances, pairwise(anchored), strict=True) if a and b and d > _OVERLAP * unit]
    usual = median(between) if between else 2 * unit
    joins = [d < _OVERLAP * unit for d in distances]
    for index, line in enumerate(lines):
        if anchored[index] or (index == 0 and _names_columns(line, lines[1])):
            continue
        above = distances[index - 1] if index else float("inf")
        below = distances[index] if index < len(distances) else float("inf")
        if min(above, below) < _TIGHT * usual:
            joins[index - 1 if above <= 1.1 * below else index] = True
        elif index and above <= 1.15 * usual and 0 not in line.columns:  # even lines: without its first column, a row
            joins[index - 1] = True  # begun above
    return joins


def _names_columns(line: _Line, below: _Line) -> bool:
    """Whether a line names the columns in which the line below it has figures."""
    texts = line.texts
    if len(texts) < _MIN_NAMED or any(map(is_figure, texts.values())):
        return False
    return sum(is_figure(below.texts[column]) for column in below.columns & line.columns) > 1


def _joins_evenly(lines: Sequence[_Line], unit: float) -> list[bool]:
    """The same without figures: a line that fills few columns, and not the first, goes on with the row above."""
    most = max(len(line.texts) for line in lines)
    joins = []
    for above, below in pairwise(lines):
        distance = below.y - above.y
        is_part = below.columns <= above.columns and len(below.texts) < max(2, _FULL * most)
        joins.append(distance < _OVERLAP * unit or (is_part and 0 not in below.columns and distance <= _LEADING * unit))
    return joins
