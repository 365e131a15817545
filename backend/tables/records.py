"""Records of the tables of a document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from backend.files.pages import Box

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
