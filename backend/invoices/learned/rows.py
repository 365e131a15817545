"""Lines of goods and rows of taxes from the words that the network labels; which lines count, theirs or the rules'."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import groupby, pairwise

import numpy as np
from numpy.typing import NDArray

from backend.files.pages import Word
from backend.files.visual_rows import PageRows
from backend.invoices.items.descriptions import with_descriptions
from backend.invoices.items.find import ItemLines, item_lines
from backend.invoices.items.lines import ItemLine, Value, piece_value, settled, with_product
from backend.invoices.items.pieces import PieceRow, RowPiece, make_piece, piece_of
from backend.invoices.learned.read import ReadPage
from backend.invoices.money.taxes import TaxRow, type_of
from backend.invoices.records import FieldRow
from backend.models.fields_network import LABELS
from backend.reasons import because
from backend.tables.numbers import Number, numbers_in

_COLUMNS = {"ItemQuantity": "Quantity", "ItemPrice": "UnitPrice", "ItemDiscount": "Discount", "ItemTaxRate": "TaxRate"}
_TEXTS = ("ItemDescription", "ItemCode", "ItemUnit")
_FIRST = LABELS.index("ItemCode")  # of a line's labels, which end the list
_LEAST = 0.5  # probability that a word is of a line
_CENTS = 2  # decimals of a printed sum
_SUMMED = 2  # lines at least
_TAXES = [LABELS.index(name) for name in ("TaxRate", "TaxBase", "TaxAmount", "SubTotal", "TotalTax")]


def settled_items(
    rules: ItemLines | None, parts: Sequence[ReadPage], pages: Sequence[PageRows], mark: str
) -> ItemLines | None:
    """The lines of rules or of the network: whose sum is printed, then whose amounts follow from quantity and price.

    Args:
        parts: of these pages, as the network reads them; lines of more pages than it reads are the rules'.
        mark: the document's decimal separator.
    """
    lines = learned_lines(parts, mark)
    if len({part.page.page.number for part in parts}) < len(pages):
        lines = []
    tops = {number: top for number, (top, _) in rules.regions.items()} if rules is not None else {}
    learned = item_lines(lines, tops, because("network"), because("network")) if lines else None
    found = [items for items in (rules, learned) if items is not None]
    printed = Counter(
        abs(number.value)
        for page in pages
        for cell in page.cells
        for number in numbers_in(cell, mark)
        if number.decimals == _CENTS and not number.percent
    )
    found += [once for items in found if (once := _each_once(items)) is not items]
    return max(found, key=lambda items: _worth(items, printed), default=None)


def _each_once(items: ItemLines) -> ItemLines:
    """The lines without sums of those before them, carried over pages too, and without an annex that details them."""
    kept: list[FieldRow] = []
    sums, group = [Decimal(0)], 0  # of the lines before each, and where those that the last sum is of end
    for row in items.field.rows:
        values = {field.name: field.value for field in row.fields}
        amount = Decimal(values["Amount"])
        is_whole = len(sums) > _SUMMED and amount == sums[-1]
        is_group = len(sums) - group > _SUMMED and amount == sums[-1] - sums[group]
        if "UnitPrice" not in values and (is_whole or is_group):
            group = len(sums) - 1
            continue
        kept.append(row)
        sums.append(sums[-1] + amount)
    pages = [next((place.page for place in row.fields[-1].places), 0) for row in kept]
    for first, (page, following) in enumerate(pairwise(pages), 1):
        earlier, rest = set(sums[: first + 1]), sums[-1] - sums[first]
        if page != following and not earlier.isdisjoint(before + rest for before in earlier):
            del kept[first:]
            break
    return items if len(kept) == len(items.field.rows) else replace(items, field=replace(items.field, rows=tuple(kept)))


def _worth(items: ItemLines, printed: Counter[Decimal]) -> tuple[bool, int, int, int]:
    """How sure lines are: their sum stands beside them, their arithmetic holds, and how much of each is told.

    Args:
        printed: how often each amount is, those of lines too.
    """
    values = [{field.name: field.value for field in row.fields} for row in items.field.rows]
    others = printed - Counter(abs(Decimal(value["Amount"])) for value in values)
    named = sum("Description" in value for value in values)
    return abs(items.total) in others, items.reckoned, named, sum(map(len, values))


def learned_lines(parts: Sequence[ReadPage], mark: str) -> list[ItemLine]:
    """The lines of a document, top to bottom.

    Args:
        mark: the document's decimal separator.
    """
    return [
        with_product(line)
        for part in parts
        for line in with_descriptions(list(_entries(part, mark)), max(part.page.line_height, 1e-6))
    ]


def _entries(part: ReadPage, mark: str) -> Iterator[ItemLine | PieceRow | None]:
    """Each row of a part: a line where it has an amount, text where it has other words of lines, else None."""
    rows = {row.index: row for row in part.page.rows}
    for index, pieces in _labelled(part, part.reading.labels[:, _FIRST:], LABELS[_FIRST:], mark):
        row = PieceRow(part.page, rows[index], tuple(piece for _, piece in pieces))
        yield (_line(row, pieces) or row) if pieces else None


def _labelled(
    part: ReadPage, scores: NDArray[np.floating], names: Sequence[str], mark: str
) -> Iterator[tuple[int, list[tuple[str, RowPiece]]]]:
    """Each row's index, and its words from the first to the last that some labels share, parted by these.

    Shapes: scores (words, names), probabilities.
    """
    of_word = [names[best] if sure else "" for best, sure in zip(scores.argmax(1), scores.sum(1) > _LEAST, strict=True)]
    for index, printed in groupby(zip(part.rows, part.words, of_word, strict=True), key=lambda entry: entry[0]):
        words = [(word, name) for _, word, name in printed]
        own = [place for place, (_, name) in enumerate(words) if name] or [0, -1]
        pieces = []
        for name, group in groupby(words[own[0] : own[-1] + 1], key=lambda entry: entry[1]):
            run = [word for word, _ in group]
            is_text = name in _TEXTS
            pieces.append((name, make_piece(part.page, run) if is_text else piece_of(part.page, index, run, mark)))
        yield index, pieces


def _line(row: PieceRow, pieces: Sequence[tuple[str, RowPiece]]) -> ItemLine | None:
    """The line of a row; None where it has no amount."""
    values: dict[str, Value] = {}
    texts: dict[str, tuple[Word, ...]] = {}
    amount: Value | None = None
    for name, piece in pieces:
        if name in _TEXTS:
            texts[name] = (*texts.get(name, ()), *piece.words)
        elif piece.number is None:
            continue
        elif name == "ItemAmount":
            amount = piece_value(piece)
        elif name in _COLUMNS:
            values[_COLUMNS[name]] = piece_value(piece)
    if amount is None or amount.percent:
        return None
    description, code, unit = (texts.get(name, ()) for name in _TEXTS)
    return settled(
        ItemLine(row.page, row.top, row.bottom, amount, values, description=description, code=code, unit=unit)
    )


def learned_taxes(parts: Sequence[ReadPage], mark: str) -> list[TaxRow]:
    """Rows of taxes: each amount with the rate before it, 0 where there is none, and the base in its row.

    Args:
        mark: the document's decimal separator.
    """
    return [row for part in parts for row in _taxes(part, mark)]


def _taxes(part: ReadPage, mark: str) -> Iterator[TaxRow]:
    rows = {row.index: row for row in part.page.rows}
    rate = Decimal(0)
    for index, pieces in _labelled(part, part.reading.labels[:, _TAXES], [LABELS[index] for index in _TAXES], mark):
        base: Number | None = None
        for name, piece in pieces:
            if piece.number is None:
                continue
            if name == "TaxRate":
                rate = abs(piece.number.value)
            elif name in ("TaxBase", "SubTotal"):
                base = piece.number
            elif name == "TaxAmount" or rate:
                yield TaxRow(rate, piece.number, base, part.page, type_of(rows[index].text), "network")
                rate, base = Decimal(0), None
