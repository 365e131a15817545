"""Records of the tables of a document, and their cells before: which words stand in which rows and columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from backend.files.pages import Box
from backend.tables.level_page import PlacedWord

TableSource = Literal["ruled", "half_ruled", "borderless", "file"]  # "file": an office file has it as a table


@dataclass(frozen=True, slots=True)
class TableCell:
    """One cell. Cells do not overlap and fill the rows and columns of their table together with empty places."""

    row: int  # from 0
    column: int  # from 0
    text: str  # its lines joined by a space; "" where it is empty
    rowspan: int = 1
    colspan: int = 1
    header: bool = False
    value: str | None = None  # of a number, an amount or a date: decimal or ISO 8601; None for text
    page: int = 0  # number of the page it stands on
    boxes: tuple[Box, ...] = ()  # one for each of its printed lines, page units
    start: int | None = None  # of its first word in the document's text
    end: int | None = None  # of its last word


@dataclass(frozen=True, slots=True)
class Table:
    """One table; one that goes on over several pages is joined, with its header once."""

    pages: tuple[int, ...]  # numbers of its pages
    boxes: tuple[Box, ...]  # its outline on each of them, page units
    rows: int
    columns: int
    cells: tuple[TableCell, ...]  # by row and column
    source: TableSource
    score: float  # 0 to 1


@dataclass(frozen=True, slots=True)
class CellSpan:
    """One cell: the rows and columns that it fills, and its words."""

    row: int
    column: int
    rowspan: int
    colspan: int
    words: tuple[PlacedWord, ...] = ()


@dataclass(frozen=True, slots=True)
class Layout:
    """The cells of one table on one page; every word of the table is in exactly one."""

    rows: int
    columns: int
    cells: tuple[CellSpan, ...]
    header_rows: int | None = None  # that the rulings show; None where they do not tell

    @property
    def words(self) -> list[PlacedWord]:
        return [word for cell in self.cells for word in cell.words]


def without_empty_lines(layout: Layout) -> Layout:
    """The layout without rows and columns in which no cell begins with words, such as those of double rulings."""
    filled = [cell for cell in layout.cells if cell.words]
    rows = _kept(range(layout.rows), ((cell.row, cell.rowspan) for cell in filled))
    columns = _kept(range(layout.columns), ((cell.column, cell.colspan) for cell in filled))
    cells = [
        replace(cell, row=row[0], rowspan=len(row), column=column[0], colspan=len(column))
        for cell in layout.cells
        if (row := [rows[y] for y in range(cell.row, cell.row + cell.rowspan) if y in rows])
        and (column := [columns[x] for x in range(cell.column, cell.column + cell.colspan) if x in columns])
    ]
    header_rows = layout.header_rows
    if header_rows is not None:
        header_rows = sum(row < header_rows for row in rows)
    return Layout(len(rows), len(columns), tuple(cells), header_rows)


def with_empty_cells(layout: Layout) -> Layout:
    """The layout with an empty cell at each place that no cell fills.

    For layouts that are tables: scattered words make hundreds of rows and columns, and a hundred empty places a word.
    """
    filled = {
        (row, column)
        for cell in layout.cells
        for row in range(cell.row, cell.row + cell.rowspan)
        for column in range(cell.column, cell.column + cell.colspan)
    }
    places = ((row, column) for row in range(layout.rows) for column in range(layout.columns))
    empty = (CellSpan(row, column, 1, 1) for row, column in places if (row, column) not in filled)
    return replace(layout, cells=(*layout.cells, *empty))


def _kept(lines: Iterable[int], filled: Iterable[tuple[int, int]]) -> dict[int, int]:
    """The rows (or columns) that some cell fills alone, or in which it begins; by their old index, the new one."""
    spans = list(filled)
    kept = {start for start, _ in spans}
    return {old: new for new, old in enumerate(line for line in lines if line in kept)}


def by_lines(words: Sequence[PlacedWord]) -> list[list[PlacedWord]]:
    """The words of a cell by its printed lines, each from left to right."""
    lines: list[list[PlacedWord]] = []
    for word in sorted(words, key=lambda word: (word.y, word.box.left)):
        near = lines[-1][-1] if lines else None
        if near is not None and word.y - near.y <= 0.5 * min(word.box.height, near.box.height):
            lines[-1].append(word)
        else:
            lines.append([word])
    for line in lines:
        line.sort(key=lambda word: word.box.left)
    return lines
