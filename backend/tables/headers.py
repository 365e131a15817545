"""How many of a table's first rows are its header. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from backend.tables.cell_layout import Layout
from backend.tables.text_rows import is_figure

_PERIOD = re.compile(r"(?:19|20)\d\d|[QT]\d|\d\.?[ºªo]?\s?[QT]|[^\W\d]{3,}\.?[ '-]\d{2,4}")  # "2025", "Q1", "Mar 24"
_MAX_ROWS = 3


def header_rows(layout: Layout) -> int:
    """The count of header rows: as the rulings show, else the first rows without figures over rows with them."""
    if layout.header_rows is not None:
        return layout.header_rows
    rows = [[cell for cell in layout.cells if cell.row == row and cell.words] for row in range(layout.rows)]
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
