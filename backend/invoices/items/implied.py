"""Finds the columns of a table of goods without a readable header: by rows in which quantity x price = amount."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from statistics import median
from typing import NamedTuple

from backend.invoices.items.columns import Column, Header, Span
from backend.invoices.items.labels import end_label
from backend.invoices.items.lines import makes_amount, piece_value
from backend.invoices.items.pieces import Piece, PieceRow

_MOST_NUMBERS = 8  # of a row
_SAME_SIDE = 1.5  # line heights between right sides in one column
_ROWS_ABOVE = 8  # without a product, above the first row with one, that may be lines


class _ProductRow(NamedTuple):
    place: int  # of the row on its page
    quantity: Piece
    price: Piece
    amount: Piece
    text: Piece
    discount: Piece | None  # a percentage


def implied_header(rows: Sequence[PieceRow]) -> Header | None:
    """The columns of a page's table by its products, above its first line; None where no row is one.

    Products with 1 prove nothing, so a table needs a row with another quantity.
    """
    found = [product for index, row in enumerate(rows) if (product := _product(index, row)) is not None]
    if not found:
        return None
    height = max(rows[0].page.line_height, 1e-6)
    side = median(product.amount.right for product in found)
    found = [product for product in found if abs(product.amount.right - side) <= _SAME_SIDE * height]
    if not found:
        return None
    columns = [
        Column("Description", (_span([product.text for product in found]),)),
        Column("Quantity", (_span([product.quantity for product in found]),)),
        Column("UnitPrice", (_span([product.price for product in found]),)),
        Column("Amount", (_span([product.amount for product in found]),)),
    ]
    discounts = [product.discount for product in found if product.discount is not None]
    if discounts:
        columns.append(Column("Discount", (_span(discounts),)))
    before = _first_line(rows, found[0].place, side, height) - 1
    return Header(rows[0].page, before, before, tuple(sorted(columns, key=lambda column: column.label.left)), height)


def _product(index: int, row: PieceRow) -> _ProductRow | None:
    """The row as a line with a product."""
    numbers = [piece for piece in row.pieces if piece.number is not None][-_MOST_NUMBERS:]
    texts = [piece for piece in row.pieces if piece.has_letters]
    if len(numbers) < 3 or not texts or end_label(row.row.cells) is not None:
        return None
    *parts, amount = numbers
    if not _is_amount(amount):
        return None
    whole = [piece for piece in parts if piece.number is not None and not piece.number.percent]
    for quantity, price in combinations(whole, 2):
        one, other = piece_value(quantity), piece_value(price)
        if 1 in (one.number, other.number):
            continue
        if makes_amount(one, other, piece_value(amount)):
            return _ProductRow(index, quantity, price, amount, texts[0], None)
        for discount in parts[parts.index(price) + 1 :]:
            if makes_amount(one, other, piece_value(amount), piece_value(discount)):
                return _ProductRow(index, quantity, price, amount, texts[0], discount)
    return None


def _is_amount(piece: Piece) -> bool:
    number = piece.number
    return number is not None and number.decimals == 2 and not number.percent


def _span(pieces: Sequence[Piece]) -> Span:
    return Span(median(piece.left for piece in pieces), median(piece.right for piece in pieces))


def _first_line(rows: Sequence[PieceRow], first: int, side: float, height: float) -> int:
    """The first row of the table: above the first product may be lines with a quantity of 1."""
    for index in range(first - 1, max(first - 1 - _ROWS_ABOVE, -1), -1):
        row = rows[index]
        if end_label(row.row.cells) is not None:
            break
        last = next((piece for piece in reversed(row.pieces) if piece.number is not None), None)
        if last is not None and _is_amount(last) and abs(last.right - side) <= _SAME_SIDE * height:
            first = index
    return first
