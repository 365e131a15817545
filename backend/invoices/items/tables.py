"""Reads the lines of a table of goods or services below its header, over as many pages as it has."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from backend.files.pages import Word
from backend.invoices.items.columns import (
    Column,
    Header,
    Span,
    find_headers,
    has_long_number,
    match_numbers,
)
from backend.invoices.items.descriptions import with_descriptions
from backend.invoices.items.labels import end_label
from backend.invoices.items.lines import (
    ItemLine,
    Value,
    decimals_of,
    piece_value,
    settled,
    with_product,
    without_used_words,
)
from backend.invoices.items.pieces import PieceRow, RowPiece, make_piece

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
