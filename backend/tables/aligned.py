"""Tables without a drawn grid: text in columns that empty space separates, with or without level rulings. Pure.

A table grows from its line with most pieces, up and down, while further lines keep its columns apart: text that crosses
them ends it, unless it is a heading, a section or a total that spans columns.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple

from backend.tables.level_page import LevelPage, PlacedWord, Segment, TextLine, outline
from backend.tables.text_rows import is_figure

_PIECE_GAP = 0.7  # of the line height: wider space separates pieces; that between words is 0.2 to 0.5, typed 0.65
_FIRST_STEP = 3.2  # of the line height: distance of the first two rows at most
_LAST_STEP = 1.75  # of the usual distance of two rows: from one to the next at most, or
_NEAR_STEP = 2.8  # of the line height
_HEADING_STEP, _LONGEST_HEADING = 1.9, 30  # of the line height, above the next line; characters
_LEADING = 1.35  # of the line height: lines of one heading are no further apart
_MAX_SPANS = 2  # lines in a row that cross the columns
_SAME_RULING = 0.2  # of the line height
_RULED_SHARE = 0.6  # of the table's width that a ruling covers which separates its rows
_BORDER_SHARE = 0.93  # the same of its upper border: one below headings that span columns leaves out the first
_MAX_SEEDS = 60  # lines of a page from which a table is tried
_MIN_NAMED, _MIN_FIGURES = 3, 2  # columns that a header names below other text; figures of the row below it
_MAX_HEADINGS = 3  # further lines of such a header
_SAME_EDGE = 0.7  # of the line height: right edges of figures this close are aligned
_FULL = 0.6  # of the columns: a line that fills so many is not the upper line of a heading


class TablePiece(NamedTuple):
    """Words of a line with ordinary spaces between them."""

    left: float
    right: float
    words: tuple[PlacedWord, ...]


@dataclass(frozen=True, slots=True)
class TableLine:
    """A printed line and its pieces, left to right."""

    y: float
    top: float
    bottom: float
    pieces: tuple[TablePiece, ...]


@dataclass(slots=True)
class Stretch:
    """Lines that keep the same columns apart."""

    lines: list[TableLine]
    spans: list[bool]  # for each line, whether it crosses the columns
    columns: list[tuple[float, float]]  # left and right of the text in each
    rulings: list[Segment] = field(default_factory=list)  # level ones across most of it, by height

    @property
    def left(self) -> float:
        return self.columns[0][0]

    @property
    def right(self) -> float:
        return self.columns[-1][1]


def columns_over(columns: Sequence[tuple[float, float]], left: float, right: float) -> range:
    """Indexes of the columns that what reaches from ``left`` to ``right`` touches; columns never overlap."""
    return range(bisect_right(columns, left, key=itemgetter(1)), bisect_left(columns, right, key=itemgetter(0)))


def lines_of(page: LevelPage, taken: set[int]) -> list[TableLine]:
    """The lines of a page without the words that are in tables already.

    Args:
        taken: ids of these words.
    """
    lines = []
    for words in page.lines:
        left = tuple(word for word in words if id(word) not in taken)
        if left:
            box = outline(left)
            y = sum(word.y for word in left) / len(left)
            lines.append(TableLine(y, box.top, box.bottom, pieces_of(left, page.unit)))
    return sorted(lines, key=lambda line: line.y)


def pieces_of(words: TextLine, unit: float) -> tuple[TablePiece, ...]:
    """The pieces of a line."""
    groups = [[words[0]]]
    for word in words[1:]:
        if word.box.left - max(w.box.right for w in groups[-1][-3:]) > _PIECE_GAP * unit:
            groups.append([word])
        else:
            groups[-1].append(word)
    return tuple(
        TablePiece(min(w.box.left for w in group), max(w.box.right for w in group), tuple(group)) for group in groups
    )


def stretches(lines: Sequence[TableLine], levels: Sequence[Segment], unit: float) -> list[Stretch]:
    """Candidates for tables, from top to bottom; no line is in two of them."""
    used: set[int] = set()
    found = []
    seeds = sorted((i for i, line in enumerate(lines) if len(line.pieces) > 1), key=lambda i: -len(lines[i].pieces))
    for seed in seeds[:_MAX_SEEDS]:
        if seed in used:
            continue
        first, last, stretch = _grown(lines, seed, used, levels, unit)
        if stretch is None:
            continue
        used.update(range(first, last + 1))
        found.append(stretch)
    found.sort(key=lambda stretch: stretch.lines[0].y)
    return _merged(found, lines, levels, unit)


def _merged(
    found: Sequence[Stretch], lines: Sequence[TableLine], levels: Sequence[Segment], unit: float
) -> list[Stretch]:
    """Neighbours with the same columns as one: words far apart may have made columns of their own in one of them."""
    index = {id(line): number for number, line in enumerate(lines)}
    merged: list[Stretch] = []
    for stretch in found:
        above = merged[-1] if merged else None
        if above is not None and index[id(above.lines[-1])] + 1 == index[id(stretch.lines[0])]:
            columns = _united(above.columns, stretch.columns, unit)
            step = stretch.lines[0].y - above.lines[-1].y
            if len(columns) == min(len(above.columns), len(stretch.columns)) and step < _NEAR_STEP * unit:
                both = Stretch([*above.lines, *stretch.lines], [*above.spans, *stretch.spans], columns)
                both.spans = [_crosses(line, columns) for line in both.lines]
                both.rulings = _rulings_of(both, levels, unit)
                merged[-1] = both
                continue
        merged.append(stretch)
    return merged


def _united(
    above: Sequence[tuple[float, float]], below: Sequence[tuple[float, float]], unit: float
) -> list[tuple[float, float]]:
    united: list[tuple[float, float]] = []
    for left, right in sorted([*above, *below]):
        if united and left < united[-1][1] + _PIECE_GAP * unit:
            united[-1] = (united[-1][0], max(right, united[-1][1]))
        else:
            united.append((left, right))
    return united


def _crosses(line: TableLine, columns: Sequence[tuple[float, float]]) -> bool:
    return any(len(columns_over(columns, piece.left, piece.right)) > 1 for piece in line.pieces)


def _grown(
    lines: Sequence[TableLine], seed: int, used: set[int], levels: Sequence[Segment], unit: float
) -> tuple[int, int, Stretch | None]:
    """The largest stretch around a line, and the indexes of its first and last line."""
    growth = _Growth(lines, seed, levels, unit)
    for step in (1, -1):
        growth.grow(step, used)
    growth.trim()
    if (top := growth.top_of_header()) is not None:  # what stands above, such as a letterhead, may widen the columns
        growth = growth.grown_again(top, used)
    first, last = growth.first, growth.last
    if last - first < 1:
        return first, last, None
    spans = [index in growth.spans for index in range(first, last + 1)]
    stretch = Stretch(list(lines[first : last + 1]), spans, growth.columns)
    stretch.columns = _columns_of(stretch)
    if len(stretch.columns) < 2:
        return first, last, None
    stretch.rulings = _rulings_of(stretch, levels, unit)
    return first, last, stretch


class _Growth:
    """A stretch while it grows: its lines are those from ``first`` to ``last``."""

    def __init__(self, lines: Sequence[TableLine], seed: int, levels: Sequence[Segment], unit: float) -> None:
        self._lines, self._levels, self._unit = lines, levels, unit
        self._heights = [segment.at for segment in levels]
        self.first = self.last = seed
        self.spans: set[int] = set()
        self.columns = [(piece.left, piece.right) for piece in lines[seed].pieces]
        self._are_apart = all(right + self._near <= left for (_, right), (left, _) in pairwise(self.columns))
        self._steps: list[float] = []  # from line to line, the smallest first

    @property
    def _near(self) -> float:
        """The space between two columns, at least."""
        return _PIECE_GAP * self._unit

    def grow(self, step: int, used: set[int]) -> None:
        """Take the lines after the last one (1) or before the first one (-1) while they fit."""
        spans = 0
        at = end = self.last if step > 0 else self.first
        while 0 <= (at := at + step) < len(self._lines) and at not in used:
            line, near = self._lines[at], self._lines[at - step]
            if not self._is_near(abs(line.y - near.y)) or (step < 0 and self._ends_above(at)):
                break
            columns = self._with(line)
            if columns is None:
                spans += 1
                if spans > _MAX_SPANS or not self._may_span(line):
                    break
                self.spans.add(at)
                continue
            self.columns, spans, end = columns, 0, at
            insort(self._steps, abs(line.y - near.y))
            if step > 0:
                self.last = end
            else:
                self.first = end
        if step > 0 and spans and self._is_total(end + 1):
            self.last = end + 1
        if step < 0:
            while self._is_heading(self.first - 1):
                self.first -= 1

    def trim(self) -> None:
        """Leave out lines at its ends that have a single piece: titles, notes, the paragraph below."""
        while self.first < self.last and len(self._lines[self.first].pieces) < 2:
            self.first += 1
        while self.first < self.last and len(self._lines[self.last].pieces) < 2 and not self._continues(self.last):
            self.last -= 1
        self.spans = {index for index in self.spans if self.first <= index <= self.last}

    def top_of_header(self) -> tuple[int, int] | None:
        """The first line of a header that stands below lines of something else, and the line that names the columns.

        None where the header is at the top already, or where rows of the same columns stand above it.
        """
        for index in range(self.first + 1, self.last):
            line, below = self._lines[index], self._lines[index + 1]
            texts = [_text(piece) for piece in line.pieces]
            if len(texts) < max(_MIN_NAMED, _FULL * len(self.columns)) or any(map(is_figure, texts)):
                continue
            figures = [piece for piece in below.pieces if is_figure(_text(piece))]
            if len(figures) < _MIN_FIGURES or max(map(len, texts)) > _LONGEST_HEADING:
                continue
            top = index
            while top > self.first and index - top < _MAX_HEADINGS and self._is_close_above(top):
                top -= 1
            above = self._lines[self.first : top]
            return None if not above or any(_is_alike(row, figures, self._unit) for row in above) else (top, index)
        return None

    def grown_again(self, top: tuple[int, int], used: set[int]) -> _Growth:
        """The stretch from its header on: its first line, and the one that names the columns."""
        growth = _Growth(self._lines, top[1], self._levels, self._unit)
        taken = used | set(range(self.first, top[0]))
        for step in (1, -1):
            growth.grow(step, taken)
        growth.trim()
        return growth

    def _is_close_above(self, index: int) -> bool:
        """Whether the line above may be a further line of a header: near, and of short texts that are no labels."""
        above = self._lines[index - 1]
        texts = [_text(piece) for piece in above.pieces]
        short = all(len(text) <= _LONGEST_HEADING and not text.endswith(":") for text in texts)
        step = _HEADING_STEP if any(map(is_figure, texts)) else _NEAR_STEP
        return short and self._lines[index].y - above.y <= step * self._unit

    def _is_near(self, distance: float) -> bool:
        if not self._steps:
            return distance <= _FIRST_STEP * self._unit
        middle = len(self._steps) // 2
        usual = (self._steps[middle] + self._steps[~middle]) / 2  # their median
        return distance <= max(_LAST_STEP * usual, _NEAR_STEP * self._unit)

    def _with(self, line: TableLine) -> list[tuple[float, float]] | None:
        """The columns, which stay apart, with a further line; None where it crosses them."""
        if not self._are_apart:
            return None
        columns = list(self.columns)
        for piece in line.pieces:
            first = bisect_right(columns, piece.left, key=lambda column: column[1] + self._near)
            past = bisect_left(columns, piece.right, lo=first, key=lambda column: column[0] - self._near)
            if past > first + 1:
                return None
            if past > first:
                left, right = columns[first]
                columns[first] = (min(left, piece.left), max(right, piece.right))
            else:
                columns.insert(first, (piece.left, piece.right))
        return columns

    def _may_span(self, line: TableLine) -> bool:
        """Whether a line that crosses the columns may belong to the table: it does not run across all of it."""
        left, right = self.columns[0][0], self.columns[-1][1]
        words = sum(len(piece.words) for piece in line.pieces)
        wide = line.pieces[-1].right - line.pieces[0].left > 0.75 * (right - left)
        is_inside = line.pieces[0].left > left - self._unit and line.pieces[-1].right < right + self._unit
        return is_inside and (len(line.pieces) > 1 or (not wide and words <= 8))

    def _is_total(self, index: int) -> bool:
        """Whether the line below ends with a figure in the last column: a total whose label crosses the columns."""
        if index >= len(self._lines) or index not in self.spans:
            return False
        line = self._lines[index]
        return len(line.pieces) > 1 and abs(line.pieces[-1].right - self.columns[-1][1]) < self._unit

    def _is_heading(self, index: int) -> bool:
        """Whether a line that crosses the columns is a heading of several of them: short texts close above."""
        if index < 0 or index not in self.spans:
            return False
        line, below = self._lines[index], self._lines[index + 1]
        texts = [_text(piece) for piece in line.pieces]
        short = all(len(text) <= _LONGEST_HEADING and not text.endswith(":") for text in texts)
        distance = below.y - line.y
        is_upper_part = index + 1 in self.spans and distance < _LEADING * self._unit
        return short and (is_upper_part or (len(texts) > 1 and distance < _HEADING_STEP * self._unit))

    def _continues(self, index: int) -> bool:
        """Whether a last line with one piece goes on with a cell above it."""
        distance = self._lines[index].y - self._lines[index - 1].y
        steps = [step for step in self._steps if step > 1.2 * distance]
        alike = sum(step <= 1.1 * distance for step in self._steps)
        in_first = self._lines[index].pieces[0].left < self.columns[0][1]
        is_close = distance < _LEADING * self._unit and len(steps) > 0.3 * len(self._steps)
        return is_close and (not in_first or alike > 2)

    def _ends_above(self, at: int) -> bool:
        """Whether a ruling above the first line, with another one below it, is the upper border of the table."""
        upper, lower = self._lines[at], self._lines[at + 1]
        if len(upper.pieces) >= _FULL * len(self.columns) and len(upper.pieces) > 2:
            return False
        below = self._lines[at + 2].y if at + 2 <= self.last else lower.bottom + self._unit
        border = self._is_ruled(upper.bottom - 0.3 * self._unit, lower.y, _BORDER_SHARE)
        return border and self._is_ruled(lower.y, below, _RULED_SHARE)

    def _is_ruled(self, high: float, low: float, share: float) -> bool:
        left, right = self.columns[0][0], self.columns[-1][1]
        near = self._levels[bisect_left(self._heights, high) : bisect_left(self._heights, low)]
        return any(segment.length > share * (right - left) for segment in _across(near, left, right, self._unit))


def _is_alike(line: TableLine, figures: Sequence[TablePiece], unit: float) -> bool:
    """Whether a line has figures under or above these, as a row of the same table has."""
    own = [piece for piece in line.pieces if is_figure(_text(piece))]
    alike = sum(any(abs(piece.right - other.right) < _SAME_EDGE * unit for other in own) for piece in figures)
    return alike >= _MIN_FIGURES


def _text(piece: TablePiece) -> str:
    return " ".join(word.word.text for word in piece.words)


def _across(levels: Sequence[Segment], left: float, right: float, unit: float) -> list[Segment]:
    """Rulings of one height as one, as long as what is drawn of them from ``left`` to ``right``: scans break them."""
    joined: list[Segment] = []
    for segment in levels:
        shared = max(0.0, min(segment.end, right) - max(segment.start, left))
        if joined and segment.at - joined[-1].at <= _SAME_RULING * unit:
            joined[-1] = joined[-1]._replace(end=joined[-1].end + shared)
        else:
            joined.append(Segment(segment.at, left, left + shared))
    return joined


def _rulings_of(stretch: Stretch, levels: Sequence[Segment], unit: float) -> list[Segment]:
    top, bottom = stretch.lines[0].top - unit, stretch.lines[-1].bottom + unit
    near = [segment for segment in levels if top <= segment.at <= bottom]
    width = stretch.right - stretch.left
    return [
        ruling for ruling in _across(near, stretch.left, stretch.right, unit) if ruling.length > _RULED_SHARE * width
    ]


def _columns_of(stretch: Stretch) -> list[tuple[float, float]]:
    """The columns that at least two lines fill; another's text belongs to the nearer neighbour."""
    counts = [0] * len(stretch.columns)
    for line, is_span in zip(stretch.lines, stretch.spans, strict=True):
        for piece in () if is_span else line.pieces:
            for index in columns_over(stretch.columns, piece.left, piece.right):
                counts[index] += 1
    columns: list[tuple[float, float]] = []
    waiting: tuple[float, float] | None = None  # a lone column before the first
    for (left, right), count in zip(stretch.columns, counts, strict=True):
        if count > 1 or len(stretch.lines) < 3:
            columns.append((waiting[0] if waiting else left, right))
            waiting = None
        elif columns:
            columns[-1] = (columns[-1][0], right)
        else:
            waiting = (left, right) if waiting is None else (waiting[0], right)
    return columns
