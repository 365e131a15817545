"""Turns a layout of words into a `Table`: texts, places on the page, values and headers. Pure."""

from __future__ import annotations

from backend.files.pages import Box, Word, bounding_box
from backend.tables.cell_layout import Layout, Place, by_lines
from backend.tables.cell_values import CellValues
from backend.tables.headers import header_rows
from backend.tables.level_page import LevelPage
from backend.tables.records import Table, TableCell, TableSource


def build_table(layout: Layout, page: LevelPage, values: CellValues, source: TableSource, score: float) -> Table:
    """The table of a layout on a page."""
    headers = header_rows(layout)
    places = sorted(layout.places, key=lambda place: (place.row, place.column))
    cells = tuple(_cell(place, page, values, is_header=place.row < headers) for place in places)
    return Table(
        pages=(page.page.number,),
        boxes=(bounding_box(box for cell in cells for box in cell.boxes),),
        rows=layout.rows,
        columns=layout.columns,
        cells=cells,
        source=source,
        score=score,
    )


def _cell(place: Place, page: LevelPage, values: CellValues, *, is_header: bool) -> TableCell:
    lines = [[placed.word for placed in line] for line in by_lines(place.words)]
    words = [word for line in lines for word in line]
    if not words:
        return TableCell(place.row, place.column, "", place.rowspan, place.colspan, is_header, page=page.page.number)
    start = page.start + min(word.start for word in words)
    end = page.start + max(word.end for word in words)
    return TableCell(
        row=place.row,
        column=place.column,
        text=" ".join(word.text for word in words),
        rowspan=place.rowspan,
        colspan=place.colspan,
        header=is_header,
        value=values.value(words, start, end),
        page=page.page.number,
        boxes=tuple(_line_box(line) for line in lines),
        start=start,
        end=end,
    )


def _line_box(line: list[Word]) -> Box:
    return bounding_box(word.box for word in line)
