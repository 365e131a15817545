"""Reads the lines of a table of goods or services below its header's labels, over as many pages as it has."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import takewhile
from statistics import median
from typing import NamedTuple

from backend.files.pages import Word
from backend.files.visual_rows import Cell, PageRows
from backend.invoices.items.labels import COLUMNS, end_label
from backend.invoices.items.lines import (
    ItemLine,
    Value,
    decimals_of,
    piece_value,
    settled,
    with_descriptions,
    with_product,
    without_used_words,
)
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


_BEYOND = 4.0  # line heights right of the last label where a piece of the table may begin
_ALIGNED = 0.8  # line heights between a code or a unit and its column's label
_UNIT_GAP = 1.0  # line heights between a quantity and its unit
_LONGEST_UNIT = 12  # characters
_CENTS = Decimal("0.02")
_MAX_RATE = 35  # percent: a higher "tax" is an amount
_CLOSING = frozenset({"total", "subtotal", "tax", "payment"})
_IDLE_ROWS = 25  # rows after a total without a line: the table is over


@dataclass(frozen=True, slots=True)
class TableLines:
    """The lines below the headers of one table."""

    lines: tuple[ItemLine, ...]
    tops: dict[int, float]  # page number -> top of the header
    closed: bool  # by a row with a total

    @property
    def reckoned(self) -> int:
        """How many lines' amounts are made by their other numbers."""
        return sum(line.holds is True for line in self.lines)


Entry = ItemLine | PieceRow | None  # a line, a row of text, or a break between lines


def table_lines(pages: Sequence[Sequence[PieceRow]]) -> TableLines | None:
    """The lines of the document's table of goods, by the labels of its columns; None where there is no such table."""
    table = lines_below(pages, [(number, header) for number, rows in enumerate(pages) for header in find_headers(rows)])
    return table if table is not None and _is_credible(table) else None


def lines_below(pages: Sequence[Sequence[PieceRow]], headers: Sequence[tuple[int, Header]]) -> TableLines | None:
    """The lines of a table whose headers are known, each with the index of its page; None where there are none."""
    return _table(pages, headers) if headers else None


def _is_credible(table: TableLines) -> bool:
    """Whether these are lines of an invoice, not of a price list or a timetable: their sums are reckoned."""
    return bool(table.lines) and (table.closed or 2 * table.reckoned > len(table.lines))


def _table(pages: Sequence[Sequence[PieceRow]], headers: Sequence[tuple[int, Header]]) -> TableLines:
    """The lines below the headers of each page, and on pages that show none: it may not have been read there."""
    lines: list[ItemLine] = []
    tops: dict[int, float] = {}
    closed, added = False, Decimal(0)
    for index, rows in enumerate(pages):
        own = [header for place, header in headers if place == index]
        for place, other in enumerate(own):
            stop = own[place + 1].first if place + 1 < len(own) else len(rows)
            found, closed = _region(rows[other.last + 1 : stop], other, added)
            lines.extend(found)
            added = sum((line.amount.number for line in lines), Decimal(0))
            if found:
                tops.setdefault(rows[0].page.page.number, _top(rows, other))
        if not own and rows and not closed:
            found, closed = _region(rows, replace(headers[0][1], page=rows[0].page), added)
            lines.extend(line for line in found if line.holds)
    return TableLines(tuple(lines), tops, closed)


def _top(rows: Sequence[PieceRow], header: Header) -> float:
    """Where a table begins: at its header. The row above lines without one is not it, if it has a date or an id."""
    row = rows[max(header.first, 0)]
    return rows[header.last + 1].top if has_long_number(row) else row.top


def _region(rows: Sequence[PieceRow], header: Header, carried: Decimal) -> tuple[list[ItemLine], bool]:
    """The lines among the rows below a header, and whether a total follows them.

    Args:
        carried: sum of the lines before, which pages may print at their ends and beginnings.
    """
    rows = [_clip(row, header) for row in rows]
    ends = [_end(row) for row in rows]
    amount = _amount_column(rows[: next((index for index, end in enumerate(ends) if end), None)], header)
    if amount is None:
        return [], False
    entries: list[Entry] = []
    closed, idle = False, 0
    added, reckoned = Decimal(0), bool(carried)
    for row, end in zip(rows, ends, strict=True):
        line = _line(row, header, amount)
        is_sum = line is not None and _is_sum(line, (added, added + carried), reckoned=reckoned)
        if (end or is_sum or closed) and not (line is not None and line.holds and _is_named(line)):
            closed = closed or is_sum or end in _CLOSING
            entries.append(None)
            idle += 1
            if idle > _IDLE_ROWS:
                break
            continue
        closed, idle = False, 0
        entries.append(line if line is not None else row)
        if line is not None:
            added, reckoned = added + line.amount.number, reckoned or bool(line.holds)
    lines = with_descriptions(entries, header.height)
    return [with_product(line) for line in _goods(lines)], closed


def _goods(lines: Sequence[ItemLine]) -> list[ItemLine]:
    """The lines without those that are none: whole numbers among amounts with cents, amounts that name nothing."""
    printed = sum(decimals_of(line.amount.number) > 0 for line in lines)
    named = sum(_is_named(line) for line in lines)
    return [
        line
        for line in lines
        if line.holds
        or (
            (2 * printed <= len(lines) or decimals_of(line.amount.number) > 0)
            and (2 * named <= len(lines) or _is_named(line))
        )
    ]


def _is_named(line: ItemLine) -> bool:
    """Whether a line says what it is for: rows of rates below the goods, "0,03  0,50  0,00", multiply by chance."""
    return any(any(map(str.isalpha, word.text)) for word in (*line.description, *line.code))


def _is_sum(line: ItemLine, sums: Sequence[Decimal], *, reckoned: bool) -> bool:
    """Whether an amount is the sum of the lines above: a total, whatever its label says.

    Args:
        reckoned: some line above has a quantity and a price, which a total has not.
    """
    if not reckoned or {"Quantity", "UnitPrice"} & set(line.values):
        return False
    return any(abs(line.amount.number - added) <= _CENTS for added in sums)


def _end(row: PieceRow) -> str | None:
    """What a row says instead of naming goods: a label of `end_label`."""
    return end_label([cell for cell in row.row.cells if any(_holds(piece, cell.words) for piece in row.pieces)])


def _holds(piece: RowPiece, words: Sequence[Word]) -> bool:
    return any(word.start == piece.words[0].start for word in words)


def _clip(row: PieceRow, header: Header) -> PieceRow:
    """The row without what stands right of the table."""
    most = header.right + _BEYOND * header.height
    return replace(row, pieces=tuple(piece for piece in row.pieces if piece.left <= most))


def _amount_column(rows: Sequence[PieceRow], header: Header) -> int | None:
    """The column of the amounts among those with such labels: the last whose arithmetic holds for most lines."""
    amounts = [index for index, column in enumerate(header.columns) if column.kind == "Amount"]
    if len(amounts) < 2:
        return amounts[0] if amounts else None
    return max(amounts, key=lambda index: (*_fit(rows, header, index), index))


def _fit(rows: Sequence[PieceRow], header: Header, amount: int) -> tuple[float, Decimal]:
    """How well a column serves as that of the amounts.

    By lines whose arithmetic holds, then by those that fill it; where lines print a tax too, net before gross.
    """
    lines = [line for row in rows if (line := _line(row, header, amount)) is not None]
    fit = sum(1.0 if line.holds else 0.01 for line in lines)
    taxed = {"TaxRate", "TaxAmount"} & set(header.kinds)
    return fit, -sum((abs(line.amount.number) for line in lines), Decimal(0)) if taxed else Decimal(0)


def _line(row: PieceRow, header: Header, amount: int) -> ItemLine | None:
    """The line that a row prints; None where nothing stands in the column of amounts."""
    matched = match_numbers(row.pieces, header)
    values: dict[str, Value] = {}
    loose: list[Value] = []
    code: tuple[Word, ...] = ()
    for index, piece in enumerate(row.pieces):
        if piece.number is None:
            continue
        column = matched.get(index)
        kind = header.columns[column].kind if column is not None else ""
        if column == amount:
            values["Amount"] = piece_value(piece)
        elif kind in ("Quantity", "UnitPrice", "Discount") or (kind == "TaxRate" and _is_rate(piece)):
            values[kind] = piece_value(piece)
        elif kind == "ProductCode":
            code = piece.words
        elif not piece.joined and not piece.number.percent and kind != "TaxAmount":
            loose.append(piece_value(piece))
    if "Amount" not in values or values["Amount"].percent:
        return None
    line = ItemLine(row.page, row.top, row.bottom, values.pop("Amount"), values, tuple(loose), code=code)
    return without_used_words(settled(_with_texts(line, row, header, matched)))


def _is_rate(piece: RowPiece) -> bool:
    """Whether a number in the column of taxes is a rate, not an amount: 21, 21.00, 5.5 or any number with "%"."""
    number = piece.number
    if number is None or number.currency or not 0 <= number.value <= _MAX_RATE:
        return False
    return number.percent or number.decimals < 2 or number.value == number.value.to_integral_value()


def _with_texts(line: ItemLine, row: PieceRow, header: Header, matched: dict[int, int]) -> ItemLine:
    """The line with its description, code and unit."""
    description: list[Word] = []
    code, unit = line.code, _glued_unit(line)
    right = _right_of_texts(line, header)
    for index, piece in enumerate(row.pieces):
        if index in matched or piece.words[0].box.left > right or not _says_something(piece):
            continue
        column = _text_column(piece, header)
        if piece.number is not None and not piece.joined:
            if column is not None and column.kind == "Description":
                description.extend(piece.words)
        elif column is not None and column.kind == "ProductCode" and not code:
            code = piece.words
        elif _is_unit(piece, column, row.pieces[index - 1] if index else None, line, header):
            unit = piece.words
        elif column is None or column.kind not in ("Other", "TaxRate", "Unit"):
            description.extend(piece.words)
    if not code and len(description) > 1 and _is_code(row, description[0], header):
        code, description = (description[0],), description[1:]
    return replace(line, description=tuple(description), code=code, unit=unit)


def _right_of_texts(line: ItemLine, header: Header) -> float:
    """Where the last text may begin: right of the amount are remarks, unless the descriptions stand there."""
    text, amount = header.column("Description"), header.column("Amount")
    if text is not None and amount is not None and text.label.left > amount.label.left:
        return math.inf
    return min(word.box.left for word in line.amount.words)


def _glued_unit(line: ItemLine) -> tuple[Word, ...]:
    """The word of a quantity that carries its unit: "2UD"."""
    quantity = line.values.get("Quantity")
    if quantity is None or len(quantity.words) != 1 or not quantity.words[0].text[-1:].isalpha():
        return ()
    return quantity.words if len(quantity.words[0].text) > 1 else ()


def _says_something(piece: RowPiece) -> bool:
    return any(character.isalnum() for character in piece.text)


def _text_column(piece: RowPiece, header: Header) -> Column | None:
    """The column of a text, by its left side, its right side or its middle; the description where several fit."""
    found: Column | None = None
    least = _ALIGNED * header.height
    for column in header.columns:
        offset = _side(piece, column.label)
        if column.kind == "Description" and offset <= _ALIGNED * header.height:
            return column
        if offset < least:
            found, least = column, offset
    return found


def _side(piece: RowPiece, label: Span) -> float:
    if label.left >= piece.left and label.right <= piece.right:
        return 0.0
    sides = (piece.left - label.left, piece.right - label.right, piece.middle - (label.left + label.right) / 2)
    return min(map(abs, sides))


def _is_unit(piece: RowPiece, column: Column | None, before: RowPiece | None, line: ItemLine, header: Header) -> bool:
    """Whether a text is the unit of the quantity: in a column for it, or right after the figure."""
    if len(piece.text) > _LONGEST_UNIT or not piece.text[:1].isalpha():
        return False
    if column is not None and column.kind == "Unit":
        return True
    quantity, description = header.column("Quantity"), header.column("Description")
    if quantity is None or "Quantity" not in line.values or before is None:
        return False
    after = before.words == line.values["Quantity"].words and piece.left - before.right <= _UNIT_GAP * header.height
    return after and (description is None or description.label.left < quantity.label.left)


def _is_code(row: PieceRow, word: Word, header: Header) -> bool:
    """Whether the first word of a description stands in the column of codes."""
    column = header.column("ProductCode")
    if column is None or not any(character.isdigit() for character in word.text):
        return False
    return _side(make_piece(row.page, [word]), column.label) <= _ALIGNED * header.height
