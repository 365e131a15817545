"""Joins the pieces of a table that goes on over several pages. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from backend.files.pages import Document, Page
from backend.tables.records import Table, TableCell

_ASIDE = 0.04  # of the page's width: how far the edges of two pieces may be apart
_LOW, _HIGH = 0.6, 0.35  # of the page's height: where a piece without a header ends, and where the next begins


def join_pages(tables: Sequence[Table], document: Document) -> list[Table]:
    """The tables with those that continue the last one of the page before joined to it, its repeated header once."""
    pages = {page.number: page for page in document.pages}
    joined: list[Table] = []
    for index, table in enumerate(tables):
        is_first = index == 0 or tables[index - 1].pages[-1] != table.pages[0]
        if is_first and joined and _continues(joined[-1], table, pages):
            joined[-1] = _joined(joined[-1], table)
        else:
            joined.append(table)
    return joined


def _continues(upper: Table, lower: Table, pages: dict[int, Page]) -> bool:
    """Whether a page's first table is the rest of the last one on the page before."""
    if lower.pages[0] != upper.pages[-1] + 1 or lower.columns != upper.columns:
        return False
    before, after = pages[upper.pages[-1]], pages[lower.pages[0]]
    end, start = upper.boxes[-1], lower.boxes[0]
    aside = max(abs(end.left - start.left), abs(end.right - start.right))
    if aside > _ASIDE * max(before.width, after.width):
        return False
    header = _header(upper)
    if header and header == _header(lower):
        return True
    is_broken = end.bottom > _LOW * before.height and start.top < _HIGH * after.height
    return is_broken and not (_header(lower) and _has_figures(lower))


def _joined(upper: Table, lower: Table) -> Table:
    repeated = _header_rows(lower) if _header(upper) == _header(lower) else 0
    offset = upper.rows - repeated
    body = (
        replace(cell, row=cell.row + offset, header=False) for cell in lower.cells if cell.row >= repeated
    )  # fmt: skip
    return replace(
        upper,
        pages=upper.pages + lower.pages,
        boxes=upper.boxes + lower.boxes,
        rows=upper.rows + lower.rows - repeated,
        cells=upper.cells + tuple(body),
        score=min(upper.score, lower.score),
    )


def _header(table: Table) -> list[tuple[int, int, str]]:
    """Places and texts of its header cells."""
    return [(cell.row, cell.column, cell.text) for cell in table.cells if cell.header and cell.text]


def _header_rows(table: Table) -> int:
    return max((cell.row + cell.rowspan for cell in table.cells if cell.header), default=0)


def _has_figures(table: Table) -> bool:
    """Whether values stand below its header, which then names columns: a table of its own."""
    return any(_is_value(cell) for cell in table.cells)


def _is_value(cell: TableCell) -> bool:
    return not cell.header and cell.value is not None
