"""A line of goods or services: the arithmetic that says which of its numbers is what, and the rows that continue it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import combinations, product
from statistics import median
from typing import Literal

from backend.files.pages import Word
from backend.files.visual_rows import PageRows
from backend.invoices.items.labels import is_page_number, is_subheading
from backend.invoices.items.pieces import PieceRow, RowPiece
from backend.invoices.records import words_at
from backend.tables.numbers import Number

_CENTS = Decimal("0.02")  # between a product and its printed amount
_HUNDRED = Decimal(100)
_THOUSANDS = re.compile(r"\d{1,3}[.,]\d{3}")  # one thousand, or one with three decimals
_MAX_LOOSE = 6  # numbers without a column that are tried as quantity and price
_MAX_QUANTITY = Decimal(1_000_000)


@dataclass(frozen=True, slots=True)
class Value:
    """A number in its place."""

    number: Decimal
    words: tuple[Word, ...]
    percent: bool = False
    others: tuple[Decimal, ...] = ()  # what the same figures may mean too


@dataclass(frozen=True, slots=True)
class ItemLine:
    """One line of goods or services."""

    page: PageRows
    top: float  # on the levelled page
    bottom: float
    amount: Value
    values: Mapping[str, Value] = field(default_factory=dict)  # Quantity, UnitPrice, Discount, TaxRate
    loose: tuple[Value, ...] = ()  # numbers in no known column, left to right
    description: tuple[Word, ...] = ()
    code: tuple[Word, ...] = ()
    unit: tuple[Word, ...] = ()
    holds: bool | None = None  # quantity x price - discount = amount; None where a part is missing


def value_of(number: Number) -> Value:
    """A printed number as a value."""
    others: tuple[Decimal, ...] = ()
    if _THOUSANDS.fullmatch(number.digits):
        whole = Decimal(re.sub(r"[.,]", "", number.digits))
        decimal = Decimal(number.digits.replace(",", "."))
        sign = -1 if number.value < 0 else 1
        others = tuple(sign * other for other in (whole, decimal) if other != abs(number.value))
    return Value(number.value, number.words, number.percent, others)


def piece_value(piece: RowPiece) -> Value:
    """The value of a piece that is a number."""
    assert piece.number is not None
    return value_of(piece.number)


def settled(line: ItemLine) -> ItemLine:
    """The line with the reading of its figures by which quantity x price - discount = amount, where one does."""
    quantity, price = line.values.get("Quantity"), line.values.get("UnitPrice")
    if line.holds:
        return line
    if quantity is None or price is None:
        return _with_parted(line) or _with_loose(line)
    discount = line.values.get("Discount")
    for q, p, a in product(_readings(quantity), _readings(price), _readings(line.amount)):
        if _agrees(q, p, a, discount):
            values = {**line.values, "Quantity": replace(quantity, number=q), "UnitPrice": replace(price, number=p)}
            return replace(line, values=values, amount=replace(line.amount, number=a), holds=True)
    return replace(line, holds=False)


def _readings(value: Value) -> Iterator[Decimal]:
    yield value.number
    yield from value.others


def _agrees(quantity: Decimal, price: Decimal, amount: Decimal, discount: Value | None = None) -> bool:
    gross = quantity * price
    if discount is None:
        nets = [gross]
    elif discount.percent:
        nets = [gross * (1 - abs(discount.number) / _HUNDRED)]
    else:
        less = abs(discount.number)
        nets = [gross * (1 - less / _HUNDRED), gross - less, gross - less * quantity]
    return any(abs(abs(net) - abs(amount)) <= _CENTS for net in nets)


def _with_parted(line: ItemLine) -> ItemLine | None:
    """The line with quantity and price that stand so close that they read as one number: "15 179,61"."""
    for value in (*line.values.values(), *line.loose):
        if len(value.words) != 2:
            continue
        first, last = (re.fullmatch(r"\d{1,4}(?:[.,]\d{1,2})?", word.text.strip("€$£")) for word in value.words)
        if first is None or last is None:
            continue
        quantity, price = (Decimal(part[0].replace(",", ".")) for part in (first, last))
        if _agrees(quantity, price, line.amount.number, line.values.get("Discount")):
            parts = {"Quantity": Value(quantity, value.words[:1]), "UnitPrice": Value(price, value.words[1:])}
            return replace(line, values={**line.values, **parts}, holds=True)
    return None


def _with_loose(line: ItemLine) -> ItemLine:
    """The line with quantity and price from its numbers without a column, where their product is its amount."""
    known = line.values.get("Quantity") or line.values.get("UnitPrice")
    loose = line.loose[:_MAX_LOOSE]
    if known is not None:
        missing = "UnitPrice" if "Quantity" in line.values else "Quantity"
        pairs = [(known, other) if missing == "UnitPrice" else (other, known) for other in loose]
    else:
        pairs = list(combinations(loose, 2))
    for one, other in pairs:
        if one.percent or other.percent:
            continue
        for q, p in product(_readings(one), _readings(other)):
            if _agrees(q, p, line.amount.number, line.values.get("Discount")) and abs(q) <= _MAX_QUANTITY:
                first, second = (one, q), (other, p)
                if known is None and decimals_of(q) > decimals_of(p):
                    first, second = second, first
                values = {
                    **line.values,
                    "Quantity": replace(first[0], number=first[1]),
                    "UnitPrice": replace(second[0], number=second[1]),
                }
                return replace(line, values=values, holds=True)
    return line


def decimals_of(number: Decimal) -> int:
    """Printed decimal places."""
    exponent = number.as_tuple().exponent
    return -exponent if isinstance(exponent, int) and exponent < 0 else 0


def without_used_words(line: ItemLine) -> ItemLine:
    """The line without the words of its numbers in its description, and without signs for a product there."""
    used = {word.start for value in (*line.values.values(), line.amount) for word in value.words}
    words = tuple(word for word in line.description if word.start not in used)
    named = any(character.isalpha() for word in words for character in word.text.lstrip("xX\u00d7"))
    if {"Quantity", "UnitPrice"} <= line.values.keys() and _TIMES.fullmatch(" ".join(word.text for word in words)):
        return replace(line, description=(), unit=line.unit or words[:-1])
    if named and len(words) > 1 and _DATE.fullmatch(words[0].text):
        words = words[1:]  # of another column, or of a diary
    return replace(line, description=words if named else ())


# "2 x 3,36", "0,456 kg x 2,99 €/kg", "97 kWh × 0,1893 €/kWh", "3 @ 1.25", "2 uds. a 4,50 €"
_FACTORS = re.compile(
    r"(?P<quantity>-?\d{1,6}(?:[.,]\d{1,3})?)\s{0,2}(?P<unit>[^\W\d_]{1,6}[23²³]?\.?)?\s{0,2}[x\u00d7X*@àa]\s{0,2}"
    r"(?:[€$£]|RM|EUR)?\s?(?P<price>\d{1,6}(?:[.,]\d{1,6})?)(?:\s?(?:€|EUR|euros?|RM|\$|£))?(?:\s?/\s?[^\W\d_]{1,6}[23²³]?)?"
    r"(?:\s[^\W\d_]{1,4})?\s{0,2}=?",
    re.IGNORECASE,
)
_DATE = re.compile(r"\d{1,4}[/.-]\d{1,2}[/.-]\d{2,4}|\d\d/\d\d")
_TIMES = re.compile(r"[^\W\d_]{1,6}[23\u00b2\u00b3]?\.? ?[x\u00d7X*@]")  # what is left of "2 uds. x 3,36"
_COUNT = re.compile(r"\d{1,2}[xX\u00d7]?")
_MAX_FACTOR_WORDS = 8
_MAX_COUNTED = 0.8  # of the lines


def factors_of(row: PieceRow) -> tuple[Value, Value, tuple[Word, ...]] | None:
    """Quantity, price and unit of a row that is only a product: "2 x 3,36"."""
    words = [word for piece in row.pieces for word in piece.words]
    return factors_in(words)


def factors_in(words: Sequence[Word]) -> tuple[Value, Value, tuple[Word, ...]] | None:
    """Quantity, price and unit of words that are only a product."""
    text = " ".join(word.text for word in words)
    match = _FACTORS.fullmatch(text)
    if match is None:
        return None
    quantity, price = (_factor(words, match, name) for name in ("quantity", "price"))
    unit = words_at(words, *match.span("unit")) if match["unit"] else ()
    return quantity, price, tuple(word for word in unit if not word.text[0].isdigit())


def _factor(words: Sequence[Word], match: re.Match[str], name: str) -> Value:
    digits = match[name]
    number = Decimal(digits.replace(",", "."))
    others = (Decimal(re.sub(r"[.,]", "", digits)),) if _THOUSANDS.fullmatch(digits) else ()
    return Value(number, words_at(words, *match.span(name)), others=others)


def with_product(line: ItemLine) -> ItemLine:
    """The line with quantity and price from the end of its description: "BARRA PAN 2 x 0,90"."""
    if "Quantity" in line.values and "UnitPrice" in line.values:
        return line
    words = line.description
    for first in range(len(words) - 1, max(len(words) - _MAX_FACTOR_WORDS, -1), -1):
        factors = factors_in(words[first:])
        if factors is not None and (reckoned := with_factors(line, factors)) is not None:
            return replace(reckoned, description=words[:first])
    return line


def with_counts(lines: Sequence[ItemLine]) -> list[ItemLine]:
    """The lines with their quantities where all begin with one: "2 ATUN CLARO"."""
    counts = [_count(line) for line in lines]
    if sum(count is not None for count in counts) < _MAX_COUNTED * len(lines):
        return list(lines)
    return [
        line
        if count is None
        else settled(replace(line, description=line.description[1:], values={"Quantity": count, **line.values}))
        for line, count in zip(lines, counts, strict=True)
    ]


def _count(line: ItemLine) -> Value | None:
    """The whole number with which a description begins."""
    if len(line.description) < 2 or not _COUNT.fullmatch(line.description[0].text):
        return None
    return Value(Decimal(re.sub(r"\D", "", line.description[0].text)), line.description[:1])


def with_factors(line: ItemLine, factors: tuple[Value, Value, tuple[Word, ...]]) -> ItemLine | None:
    """The line with quantity and price of a row beside it; None where their product is not its amount."""
    quantity, price, unit = factors
    for q, p in product(_readings(quantity), _readings(price)):
        if _agrees(q, p, line.amount.number):
            values = {
                **line.values,
                "Quantity": replace(quantity, number=q),
                "UnitPrice": replace(price, number=p),
            }
            return replace(line, values=values, unit=line.unit or unit, holds=True)
    return None


Order = Literal["before", "beside", "after"]

_UNEVEN = 0.3  # line heights: gaps between rows that differ less are equal
_CLOSE = 0.35  # line heights between two rows of one cell
_BELOW_LAST = 0.75  # line heights: rows below the last line that still continue it, where none before was further
_MAX_ROWS = 40  # of text between two lines
_INDENT = 1.5  # line heights: a row that begins further left than the descriptions is none of them


def with_descriptions(entries: Sequence[ItemLine | PieceRow | None], height: float) -> list[ItemLine]:
    """The lines with the rows of text that belong to them.

    Args:
        entries: lines and rows of text from top to bottom, None where something else parts them.
        height: of a line of text.
    """
    lines: list[ItemLine] = []
    segment: list[ItemLine | PieceRow] = []
    named = [entry for entry in entries if isinstance(entry, ItemLine)]
    order = _order_of(entries)
    left = _left_of(named)
    for entry in (*entries, None):
        if entry is not None:
            segment.append(entry)
            continue
        lines.extend(_joined(segment, height, left, order))
        segment = []
    return lines


def _order_of(entries: Sequence[ItemLine | PieceRow | None]) -> Order:
    """Where descriptions stand: mostly beside their numbers, or in rows before or after them."""
    lines = [entry for entry in entries if isinstance(entry, ItemLine)]
    if 2 * sum(not line.description for line in lines) <= len(lines):
        return "beside"
    first = next(entry for entry in entries if entry is not None)
    return "after" if isinstance(first, ItemLine) and not first.description else "before"


def _left_of(lines: Sequence[ItemLine]) -> float | None:
    """Where descriptions begin; None where no line has one."""
    lefts = [_left(line.page.slope, line.description[0]) for line in lines if line.description]
    return median(lefts) if lefts else None


def _left(slope: float, word: Word) -> float:
    return word.box.left + slope * (word.box.top + word.box.bottom) / 2


def _joined(segment: Sequence[ItemLine | PieceRow], height: float, left: float | None, order: Order) -> list[ItemLine]:
    """The lines of a stretch without breaks, each with its rows of text."""
    lines: list[ItemLine] = []
    waiting: list[PieceRow] = []
    usual = _BELOW_LAST * height
    for entry in segment:
        if isinstance(entry, PieceRow):
            lines, waiting = _take_row(lines, waiting, entry, left, height)
            continue
        above, below = _split(lines[-1] if lines else None, waiting, entry, height, order)
        if lines and above:
            usual = max(usual, above[0].top - lines[-1].bottom + _UNEVEN * height)
            lines[-1] = _extended(lines[-1], above, [])
        lines.append(_extended(entry, [], below))
        waiting = []
    if lines:
        lines[-1] = _extended(lines[-1], _below_last(lines[-1], waiting, usual), [])
    return lines


def _take_row(
    lines: list[ItemLine], waiting: list[PieceRow], row: PieceRow, left: float | None, height: float
) -> tuple[list[ItemLine], list[PieceRow]]:
    """A row of text after some lines: the product that makes the last amount, a sub-heading, or a description."""
    factors = factors_of(row)
    if factors is not None:
        reckoned = with_factors(lines[-1], factors) if lines and lines[-1].holds is None else None
        if reckoned is not None:
            return [*lines[:-1], replace(reckoned, bottom=max(reckoned.bottom, row.bottom))], waiting
        return lines, [*waiting, row]
    if is_subheading(row.text) or not _names(row, left, height):
        return lines, waiting
    return lines, [*waiting, row][:_MAX_ROWS]


def _names(row: PieceRow, left: float | None, height: float) -> bool:
    """Whether a row can be a piece of a description."""
    texts = [piece for piece in row.pieces if piece.has_letters]
    sums = sum(piece.number is not None and piece.number.decimals > 0 for piece in row.pieces)
    if not texts or sums > 1 or is_page_number(row.text):
        return False
    return left is None or texts[0].left >= left - _INDENT * height


def _split(
    last: ItemLine | None, rows: Sequence[PieceRow], line: ItemLine, height: float, order: Order
) -> tuple[list[PieceRow], list[PieceRow]]:
    """Rows between two lines: those that continue the upper one and those that begin the lower one."""
    rows = [row for row in rows if factors_of(row) is None]
    if not rows:
        return [], []
    gaps = [lower - upper for upper, lower in _edges(last, rows, line)]
    count = 0 if order == "before" or last is None else len(rows)
    if last is not None and max(gaps) - min(gaps) > _UNEVEN * height:
        count = gaps.index(max(gaps))
    if not line.description and order != "after":
        count = min(count, len(rows) - 1)
    if _goes_on(rows[-1], line):
        return list(rows[:-1]), [rows[-1]]
    upper, lower = list(rows[:count]), list(rows[count:])
    if lower and line.description and gaps[-1] > _CLOSE * height:
        lower = []  # a heading over some lines
    return upper, lower


def _goes_on(row: PieceRow, line: ItemLine) -> bool:
    """Whether a line's text goes on within what the row above it begins: "Mantenimiento" / "del jardín  1  40,00"."""
    first = next((piece for piece in row.pieces if piece.has_letters), None)
    if first is None or not line.description:
        return False
    return first.text[:1].isupper() and line.description[0].text[:1].islower()


def _edges(last: ItemLine | None, rows: Sequence[PieceRow], line: ItemLine) -> list[tuple[float, float]]:
    """The lower side of each row and the upper side of the next one."""
    bottoms = [last.bottom if last is not None else rows[0].top, *(row.bottom for row in rows)]
    tops = [*(row.top for row in rows), line.top]
    return list(zip(bottoms, tops, strict=True))


def _below_last(line: ItemLine, rows: Sequence[PieceRow], gap: float) -> list[PieceRow]:
    """The rows below the last line that follow each other at gaps no wider than those before."""
    found: list[PieceRow] = []
    bottom = line.bottom
    for row in rows:
        if row.top - bottom > gap or factors_of(row) is not None:
            break
        found.append(row)
        bottom = row.bottom
    return found


def _extended(line: ItemLine, after: Sequence[PieceRow], above: Sequence[PieceRow]) -> ItemLine:
    """The line with rows of text above and below its own."""
    if not after and not above:
        return line
    return replace(
        line,
        description=(*_words(above), *line.description, *_words(after)),
        top=min([line.top, *(row.top for row in above)]),
        bottom=max([line.bottom, *(row.bottom for row in after)]),
    )


def _words(rows: Sequence[PieceRow]) -> list[Word]:
    return [word for row in rows for piece in row.pieces for word in piece.words]
