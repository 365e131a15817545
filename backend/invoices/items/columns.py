"""The columns of a table of goods or services, from the labels of its header."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from statistics import median
from typing import NamedTuple

from backend.files.pages import Word
from backend.files.visual_rows import Cell, PageRows
from backend.invoices.items.labels import COLUMNS
from backend.invoices.items.pieces import PieceRow, RowPiece, make_piece
from backend.invoices.label_match import LabelMatch

_NEXT_ROW = 1.9  # line heights: the middles of two rows of one header
_MAX_NUMBERS = 12  # of a row, that are matched with columns
_MAX_COLUMNS = 14
_LONG_NUMBER = 4  # digits
_FAR = 4.0  # line heights between a number and its column's label, at most
_FAR_JOINED = 1.2  # of a number that touches text: it may belong to the text
_SAME_LEFT = 0.3  # line heights
_MIN_LABELLED = 0.4  # of the cells of a header: others may stand beside it
_TEXT_KINDS = frozenset({"Description"})
_NAMING = frozenset({"Description", "Article", "ProductCode"})
_PRICING = frozenset({"Amount", "UnitPrice"})
_AGAINST_UNIT = 3.0  # line heights that a percent sign or a currency in the wrong column weighs


class Span(NamedTuple):
    """A stretch across the levelled page."""

    left: float
    right: float


@dataclass(frozen=True, slots=True)
class Column:
    """One column."""

    kind: str  # a label of `items_labels.COLUMNS` but "Article", "Units" and "NotItems"
    spans: tuple[Span, ...]  # of its label and, once they are known, of its numbers

    @property
    def label(self) -> Span:
        return self.spans[0]


@dataclass(frozen=True, slots=True)
class Header:
    """A header row; of a table that was corrected two rows may make one."""

    page: PageRows
    first: int  # index of its first row on the page
    last: int
    columns: tuple[Column, ...]  # left to right
    height: float  # of a line

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(column.kind for column in self.columns)

    @property
    def right(self) -> float:
        """Where its last column ends; columns of numbers may reach a little beyond their label."""
        return self.columns[-1].label.right

    def column(self, kind: str) -> Column | None:
        """The first column of a kind."""
        return next((column for column in self.columns if column.kind == kind), None)


def find_headers(rows: Sequence[PieceRow]) -> list[Header]:
    """The headers of tables of goods on a page, from top to bottom."""
    found = (_header(row, labels, index) for index, row in enumerate(rows) if (labels := _labels(row)))
    return [header for header in found if header is not None]


def _labels(row: PieceRow) -> list[LabelMatch]:
    """The labels of a row that could be a header; none in a row with amounts."""
    if _has_numbers(row):
        return []
    return [match for cell in row.row.cells for match in _labels_of(cell)]


def _labels_of(cell: Cell) -> list[LabelMatch]:
    """The labels of a cell, where they are most of its words: a sentence that says "total" is no header."""
    matches = COLUMNS.find(cell)
    words = sum(any(character.isalnum() for character in word.text) for word in cell.words)
    named = sum(len(match.words) for match in matches)
    return matches if 2 * named >= words else []


def _has_numbers(row: PieceRow) -> bool:
    """Whether a row has an amount, several numbers, or one too long for a header, unless most of it are labels."""
    if has_long_number(row):
        labelled = sum(bool(_labels_of(cell)) for cell in row.row.cells)
        return 2 * labelled <= len(row.row.cells)
    return any(piece.number is not None and piece.number.decimals > 0 for piece in row.pieces) or (
        sum(piece.number is not None for piece in row.pieces) > 1
    )


def has_long_number(row: PieceRow) -> bool:
    """Whether a row has a date or a document's number: no header has."""
    return any(sum(map(str.isdecimal, word.text)) >= _LONG_NUMBER for word in row.row.words)


def are_near(upper: PieceRow, lower: PieceRow) -> bool:
    """Whether two rows may be one header."""
    height = max(upper.page.line_height, 1e-6)
    return (lower.top + lower.bottom - upper.top - upper.bottom) / 2 <= _NEXT_ROW * height


def _header(row: PieceRow, labels: Sequence[LabelMatch], index: int) -> Header | None:
    cells = len({match.cell.box for match in labels})
    if cells < 2 or cells < _MIN_LABELLED * len(row.row.cells) or any(match.label == "NotItems" for match in labels):
        return None
    found: list[Column] = []
    for match in labels:
        piece = make_piece(row.page, sorted((*match.words, *_remark(match)), key=lambda word: word.box.left))
        found.append(Column(match.label, (Span(piece.left, piece.right),)))
    columns = _resolved(sorted(found, key=lambda column: column.label.left)[:_MAX_COLUMNS])
    kinds = {column.kind for column in columns}
    told = len(kinds - {"Other"})
    if not (kinds & _NAMING or "Quantity" in kinds) or told < (2 if kinds & _PRICING else 3):
        return None
    height = median(word.box.height for match in labels for word in match.words)
    return Header(row.page, index, index, tuple(columns), max(height, row.page.line_height, 1e-6))


def _remark(match: LabelMatch) -> tuple[Word, ...]:
    """What follows a label in brackets, or its unit: "(EUR)", "%"."""
    return tuple(takewhile(lambda word: word.text.startswith("(") or not word.text.isalpha(), match.rest))


def _resolved(columns: Sequence[Column]) -> list[Column]:
    """The columns with one meaning each."""
    kinds = [column.kind for column in columns]
    named = "Description" in kinds
    measured = "Quantity" in kinds
    found: list[Column] = []
    for column in columns:
        kind = column.kind
        if kind == "Article":
            kind, named = ("ProductCode", True) if named else ("Description", True)
        elif kind == "Units":
            kind, measured = ("Unit", True) if measured else ("Quantity", True)
        seen = {other.kind for other in found}
        if kind in seen and kind not in ("Amount", "Other", "Discount", "UnitPrice"):
            kind = "Other"
        found.append(replace(column, kind=kind))
    return found


def match_numbers(pieces: Sequence[RowPiece], header: Header) -> dict[int, int]:
    """Which number stands in which column: index of the piece -> index of the column, in the same order.

    The cheapest way to give each number a column or none, by how far their left, right or middle differ.
    """
    numbers = [index for index, piece in enumerate(pieces) if piece.number is not None][:_MAX_NUMBERS]
    columns = [index for index, column in enumerate(header.columns) if column.kind not in _TEXT_KINDS]
    # best[c]: cost and choice for the numbers so far, with columns before c used at most
    best: list[tuple[float, tuple[tuple[int, int], ...]]] = [(0.0, ())] * (len(columns) + 1)
    for index in numbers:
        piece = pieces[index]
        skip = _FAR_JOINED if piece.joined and not _is_before_text(pieces, index, header) else _FAR
        row = [(best[0][0] + skip, best[0][1])]
        for place, column in enumerate(columns):
            options = [(best[place + 1][0] + skip, best[place + 1][1]), row[place]]
            cost = _distance(piece, header.columns[column], header.height)
            if cost < skip:
                options.append((best[place][0] + cost, (*best[place][1], (index, column))))
            row.append(min(options, key=lambda option: option[0]))
        best = row
    return dict(best[-1][1])


def _is_before_text(pieces: Sequence[RowPiece], index: int, header: Header) -> bool:
    """Whether the text that a number touches begins where the descriptions do: it is not the number's."""
    text, column = pieces[index + 1 : index + 2], header.column("Description")
    return bool(text) and column is not None and abs(text[0].left - column.label.left) <= _SAME_LEFT * header.height


def _distance(piece: RowPiece, column: Column, height: float) -> float:
    """How far a number is from a column, in line heights; with what speaks against it by its kind."""
    distance = min([_offset(piece, span) for span in column.spans]) / height
    number = piece.number
    assert number is not None
    if number.percent:
        return distance + (0 if column.kind in ("Discount", "TaxRate", "TaxAmount", "Other") else _AGAINST_UNIT)
    if column.kind in ("Quantity", "ProductCode", "Unit") and number.currency:
        return distance + _AGAINST_UNIT
    if column.kind == "ProductCode":  # a place counts left of the codes
        return distance + (_AGAINST_UNIT if number.decimals else distance)
    return distance


def _offset(piece: RowPiece, span: Span) -> float:
    """How far the nearest of left sides, right sides and middles are; 0 where one lies within the other."""
    left, right = piece.left - span.left, piece.right - span.right
    if left * right <= 0:
        return 0.0
    return min(abs(left), abs(right), abs(left + right) / 2)
