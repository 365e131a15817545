"""The cells of a table without a drawn grid: its rows, spans and header, and what stands beside it. Pure."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from operator import itemgetter
from statistics import median

from backend.tables.aligned import Stretch, TableLine, TablePiece, columns_over, pieces_of, stretches
from backend.tables.level_page import PlacedWord, Segment, outline
from backend.tables.records import CellSpan, Layout, without_empty_lines
from backend.tables.text_rows import is_figure, row_cuts, rows_between

_PERIOD = re.compile(r"(?:19|20)\d\d|[QT]\d|\d\.?[ºªo]?\s?[QT]|[^\W\d]{3,}\.?[ '-]\d{2,4}")  # "2025", "Q1", "Mar 24"
_MAX_ROWS = 3
_FULL = 0.6  # of the columns: the first line that fills so many is the lowest of the header, or the first row
_MAX_HEADER_LINES = 4
_MAX_COLUMNS = 60  # under headings that span several: of hundreds, each heading is held against every run of them
_RULED_BANDS = 4  # between rulings; the fewest of a table with a ruling below each row, or one less
_MAX_RULED_LINES = 3  # of each band, where there is one less
_BESIDE = 0.75  # of the line height: lines this close stand beside each other, in cells of other heights
_LEADING = 1.35  # of the line height: lines of one heading are no further apart

_Cell = tuple[int, int, tuple[PlacedWord, ...]]  # first column, the one after the last, words


def header_rows(layout: Layout) -> int:
    """The count of header rows: as the rulings show, else the first rows without figures over rows with them."""
    if layout.header_rows is not None:
        return layout.header_rows
    rows: list[list[CellSpan]] = [[] for _ in range(layout.rows)]
    for cell in layout.cells:
        if cell.words:
            rows[cell.row].append(cell)
    texts = [[" ".join(word.word.text for word in cell.words) for cell in row] for row in rows]
    for row in range(min(_MAX_ROWS, layout.rows - 1)):
        if not names_columns(texts[row], layout.columns):
            return row
        if all(cell.colspan == 1 and cell.rowspan == 1 for cell in rows[row]):
            return row + 1 if _has_body(texts[row + 1 :]) else row
    return 0


def names_columns(texts: Sequence[str], columns: int) -> bool:
    """Whether a row names columns: several short texts, none of them a figure but years and quarters."""
    if len(texts) < min(2, columns):
        return False
    return not any(is_figure(text) and not _PERIOD.fullmatch(text) for text in texts)


def _has_body(rows: list[list[str]]) -> bool:
    """Whether rows below a first row without figures look otherwise, or are many: prose has no header."""
    return any(is_figure(text) for row in rows for text in row) or len(rows) >= 2


def aligned_layout(stretch: Stretch, levels: Sequence[Segment], unit: float) -> Layout:
    """The cells of a stretch that have words.

    Args:
        levels: level rulings of the page; short ones underline headings that span columns.
    """
    full = _first_full_line(stretch)
    first, cells = _headings(stretch, full, levels, unit)
    rows = max((cell.row + 1 for cell in cells), default=0)
    header: int | None = None
    bands = list(_bands(stretch, first))
    most_lines = max(len(lines) for lines, _ in bands)
    has_figures = _has_figures_before_last(stretch)
    ruled = len(bands) >= (_RULED_BANDS if most_lines > _MAX_RULED_LINES else _RULED_BANDS - 1)
    for lines, spans in bands:
        for row in _rows(lines, spans, stretch, unit, ruled=ruled):
            filled = _cells(row, stretch, has_figures=has_figures)
            own = [CellSpan(rows, start, 1, end - start, words) for start, end, words in filled]
            if full and stretch.lines[full] in row:  # the lowest row of the header, if it has no figures
                header = rows + names_columns([_text(cell.words) for cell in own], len(own))
            cells += own
            rows += 1
    cells = _taller_headings(cells, header or 0)
    return without_empty_lines(Layout(rows, len(stretch.columns), tuple(cells), header))


def _first_full_line(stretch: Stretch) -> int:
    """Index of the first line that fills most columns; 0 where it is the first, or too far below."""
    columns = len(stretch.columns)
    if columns > _MAX_COLUMNS:
        return 0
    full: int | None = None
    for index, line in enumerate(stretch.lines[:_MAX_HEADER_LINES]):
        if stretch.spans[index] or len(line.pieces) < max(2, _FULL * columns):
            continue
        if full is None:
            full = index
        elif index == full + 1 and len(line.pieces) > len(stretch.lines[full].pieces):
            texts = [_text(piece.words) for piece in line.pieces]
            if names_columns(texts, len(texts)):
                full = index  # the line above it had headings that span several columns
    return full or 0


def _headings(stretch: Stretch, full: int, levels: Sequence[Segment], unit: float) -> tuple[int, list[CellSpan]]:
    """The cells of header lines above the first full one, and the first line that is not among them.

    The upper line of headings that are broken into lines is left to the row below.
    """
    lines = _joined_headings(stretch.lines[:full], levels, unit)
    cells: list[CellSpan] = []
    for row, line in enumerate(lines):
        spans = _spans_of(line, stretch, levels, unit)
        distance = stretch.lines[full].y - line.y
        if row == len(lines) - 1 and distance < _LEADING * unit and all(end - start == 1 for start, end, _ in spans):
            return full - 1, cells
        cells += [CellSpan(row, start, 1, end - start, piece.words) for start, end, piece in spans]
    return full, cells


def _joined_headings(lines: Sequence[TableLine], levels: Sequence[Segment], unit: float) -> list[TableLine]:
    """Header lines, those of one row joined: closer than two rows are, without a ruling between them."""
    joined: list[TableLine] = []
    for line in lines:
        above = joined[-1] if joined else None
        distance = line.y - above.y if above is not None else 0.0
        is_apart = distance > _LEADING * unit
        if above is None or is_apart or (distance > _BESIDE * unit and _is_underlined(above, line, levels)):
            joined.append(line)
            continue
        words = sorted((w for piece in (*above.pieces, *line.pieces) for w in piece.words), key=lambda w: w.box.left)
        pieces = pieces_of(tuple(words), unit)
        joined[-1] = TableLine(line.y, above.top, max(above.bottom, line.bottom), pieces)
    return joined


def _is_underlined(above: TableLine, below: TableLine, levels: Sequence[Segment]) -> bool:
    """Whether a ruling separates a line from one below it, over whose text it runs."""
    return any(
        above.y < ruling.at < below.y and ruling.start < piece.right and ruling.end > piece.left
        for ruling in levels
        for piece in below.pieces
    )


def _taller_headings(cells: Sequence[CellSpan], header: int) -> list[CellSpan]:
    """Cells of the upper header rows go down over empty ones below them."""
    filled = {(cell.row + down, cell.column + right) for cell in cells
              for down in range(cell.rowspan) for right in range(cell.colspan)}  # fmt: skip
    taller = []
    for cell in cells:
        bottom = cell.row + cell.rowspan
        while cell.colspan == 1 and bottom < header and (bottom, cell.column) not in filled:
            bottom += 1
        taller.append(replace(cell, rowspan=bottom - cell.row))
    return taller


def _spans_of(
    line: TableLine, stretch: Stretch, levels: Sequence[Segment], unit: float
) -> list[tuple[int, int, TablePiece]]:
    """For each piece of a heading the columns that it spans: those above its ruling, else those it is centred over."""
    spans: list[tuple[int, int, TablePiece]] = []
    taken = 0
    limits = [piece.left for piece in line.pieces[1:]] + [float("inf")]
    for piece, limit in zip(line.pieces, limits, strict=True):
        if taken == len(stretch.columns):  # more pieces than columns: the rest goes with the last
            start, end, last = spans.pop()
            spans.append((start, end, TablePiece(last.left, piece.right, last.words + piece.words)))
            continue
        start, end = _underlined(piece, line, stretch, levels, unit) or _centred(piece, stretch.columns, taken, limit)
        start = max(start, taken)
        taken = max(end, start + 1)
        spans.append((start, taken, piece))
    return spans


def _underlined(
    piece: TablePiece, line: TableLine, stretch: Stretch, levels: Sequence[Segment], unit: float
) -> tuple[int, int] | None:
    """The columns above whose headings a short ruling runs, under this piece alone."""
    others = [other for other in line.pieces if other is not piece]
    for ruling in levels:
        if not line.y < ruling.at < line.bottom + unit or ruling.length > 0.9 * (stretch.right - stretch.left):
            continue
        if ruling.start > piece.left + unit or ruling.end < piece.right - unit:
            continue
        if any(ruling.start < other.right and ruling.end > other.left for other in others):
            continue
        inside = [
            index
            for index, (left, right) in enumerate(stretch.columns)
            if ruling.start - unit <= (left + right) / 2 <= ruling.end + unit
        ]
        if inside:
            return inside[0], inside[-1] + 1
    return None


def _centred(piece: TablePiece, columns: Sequence[tuple[float, float]], taken: int, limit: float) -> tuple[int, int]:
    """The columns over which a piece is centred, from the first that is left to the next piece."""
    middle = (piece.left + piece.right) / 2
    best = (float("inf"), 0, taken, taken + 1)
    for start in range(taken, len(columns)):
        for end in range(start + 1, len(columns) + 1):
            left, right = columns[start][0], columns[end - 1][1]
            if left > piece.right or right < piece.left or (end - start > 1 and columns[end - 1][0] > limit):
                continue
            off = abs((left + right) / 2 - middle) + max(0.0, left - piece.left) + max(0.0, piece.right - right)
            best = min(best, (round(off / 4), -(end - start), start, end))
    return best[2], best[3]


def _bands(stretch: Stretch, first: int) -> Iterator[tuple[list[TableLine], list[bool]]]:
    """The lines between rulings, with their marks."""
    lines, spans = stretch.lines[first:], stretch.spans[first:]
    cuts = sorted(segment.at for segment in stretch.rulings)
    start = 0
    for index in range(1, len(lines) + 1):
        if index == len(lines) or bisect_right(cuts, lines[index - 1].y) < bisect_left(cuts, lines[index].y):
            yield lines[start:index], spans[start:index]
            start = index


def _rows(
    lines: list[TableLine], spans: list[bool], stretch: Stretch, unit: float, *, ruled: bool
) -> Iterator[list[TableLine]]:
    """The lines of each row of a band; one that crosses the columns is a row of its own."""
    start = 0
    for index in range(len(lines) + 1):
        if index < len(lines) and not spans[index]:
            continue
        part = lines[start:index]
        cuts = row_cuts(_by_column(part, stretch), unit, ruled=ruled) if part else []
        yield from filter(None, rows_between(cuts, part))
        if index < len(lines):
            yield [lines[index]]
        start = index + 1


def _by_column(lines: Sequence[TableLine], stretch: Stretch) -> list[list[PlacedWord]]:
    columns: list[list[PlacedWord]] = [[] for _ in stretch.columns]
    for line in lines:
        for piece in line.pieces:
            for word in piece.words:
                columns[column_of(word, stretch)].append(word)
    return columns


def column_of(word: PlacedWord, stretch: Stretch) -> int:
    """Index of the column in which a word stands, or the nearest one."""
    columns, x = stretch.columns, word.x
    behind = bisect_left(columns, x, key=itemgetter(1))  # the first that ends there or further right
    near = range(max(0, behind - 1), min(behind + 1, len(columns)))
    return min(near, key=lambda index: max(columns[index][0] - x, x - columns[index][1], 0.0))


def _cells(row: list[TableLine], stretch: Stretch, *, has_figures: bool) -> list[_Cell]:
    """The filled cells of a row, left to right; a lone piece in the first column spans all.

    Args:
        has_figures: as of `_has_figures_before_last`.
    """
    columns: list[_Cell] = []
    for line in row:
        for piece in line.pieces:
            columns += _over_columns(piece, stretch)
    joined: list[_Cell] = []
    for start, end, words in sorted(columns, key=lambda cell: (cell[0], cell[1])):
        if joined and start < joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]), joined[-1][2] + words)
        else:
            joined.append((start, end, words))
    start, end, words = joined[0]
    if len(joined) == 1 and start == 0:
        joined = [(0, len(stretch.columns), words)]
    elif end - start > 1 or (has_figures and _is_label(joined, len(stretch.columns))):  # of a total, left of its sum
        joined[0] = (0, end, words)
    return joined


def _is_label(cells: Sequence[_Cell], columns: int) -> bool:
    """Whether a row has a text and a figure in its last two columns, with nothing before them."""
    if columns < 3 or [(start, end) for start, end, _ in cells] != [(columns - 2, columns - 1), (columns - 1, columns)]:
        return False
    return not is_figure(_text(cells[0][2]))


def _has_figures_before_last(stretch: Stretch) -> bool:
    """Whether the column before the last is of figures."""
    left, right = stretch.columns[-2]
    texts = [_text(piece.words) for line in stretch.lines for piece in line.pieces if left <= piece.left < right]
    return 2 * sum(map(is_figure, texts)) > len(texts)


def _over_columns(piece: TablePiece, stretch: Stretch) -> list[_Cell]:
    """A piece as one cell over the columns it touches, or its words by columns where it only touches one of them."""
    touched = columns_over(stretch.columns, piece.left, piece.right)
    if len(touched) > 1:
        return [(touched[0], touched[-1] + 1, piece.words)]
    column = touched[0] if touched else column_of(piece.words[len(piece.words) // 2], stretch)
    return [(column, column + 1, piece.words)]


def _text(words: Sequence[PlacedWord]) -> str:
    return " ".join(word.word.text for word in words)


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
                    figures[column] += is_figure(_text(piece.words))
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
        names = [_text(piece.words).lower() for piece in self.stretch.lines[0].pieces]
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
