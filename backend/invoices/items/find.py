"""The lines of goods and services of an invoice or a receipt."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from backend.files.pages import Word
from backend.files.visual_rows import PageRows
from backend.invoices.items.lines import ItemLine, Value
from backend.invoices.items.lists import list_lines
from backend.invoices.items.pieces import piece_rows
from backend.invoices.items.tables import table_lines
from backend.invoices.printed_field import printed_field
from backend.invoices.records import Field, FieldRow
from backend.reasons import because
from backend.text.patterns.numbers import format_decimal

_LEADERS = re.compile(r"(?<![\s.:·…_])[\s.:·…_]{2,}$|\s?:$")  # between a text and its amount
_FIGURE = re.compile(r"^[-\d.,]+")  # to which a unit is glued: "2UD"
_SURE, _LIKELY = 0.95, 0.8  # of a line: its arithmetic holds; nothing to reckon
_COMPUTED = 0.6  # of a quantity that follows from price and amount


@dataclass(frozen=True, slots=True)
class ItemLines:
    """The lines and where they stand."""

    field: Field  # "Items", with its rows
    regions: Mapping[int, tuple[float, float]]  # page number -> top and bottom of header and lines, on the level page
    reckoned: int  # how many lines' amounts are made by their other numbers

    @property
    def amounts(self) -> tuple[Decimal, ...]:
        """The amount of each line."""
        return tuple(Decimal(c.value) for row in self.field.rows for c in row.fields if c.name == "Amount")

    @property
    def total(self) -> Decimal:
        """The sum of the amounts."""
        return sum(self.amounts, Decimal(0))

    def contains(self, page: int, middle: float) -> bool:
        """Whether a height of the levelled page is among the lines."""
        region = self.regions.get(page)
        return region is not None and region[0] <= middle <= region[1]


def find_items(pages: Sequence[PageRows], mark: str) -> ItemLines | None:
    """The lines; None where there are none.

    Args:
        mark: the document's decimal separator, from `numbers.decimal_mark_of`.
    """
    rows = [piece_rows(page, mark) for page in pages]
    if (table := table_lines(rows)) is not None:
        return item_lines(table.lines, table.tops, because("columns_labelled"))
    lines = list_lines(rows)
    return item_lines(lines, {}, because("rows_above_total")) if lines else None


def item_lines(
    lines: Sequence[ItemLine], tops: Mapping[int, float], why: str, why_number: str = because("in_column")
) -> ItemLines:
    """Lines as the field that they are.

    Args:
        tops: page number -> top of the header.
        why_number: of a number that no arithmetic proves.
    """
    regions: dict[int, tuple[float, float]] = {}
    for line in lines:
        number = line.page.page.number
        top, bottom = regions.get(number, (tops.get(number, line.top), line.bottom))
        regions[number] = (min(top, line.top), max(bottom, line.bottom))
    rows = tuple(FieldRow(tuple(_fields(line, why_number))) for line in lines)
    score = sum(_score(line) for line in lines) / len(lines)
    field = Field("Items", "", "", round(score, 4), "text", why, rows=rows)
    return ItemLines(field, regions, sum(line.holds is True for line in lines))


def _score(line: ItemLine) -> float:
    return _SURE if line.holds else _LIKELY


def _fields(line: ItemLine, why_number: str) -> Iterator[Field]:
    if line.description:
        yield _text("Description", line.description, line)
    if line.code:
        yield _text("ProductCode", line.code, line)
    if line.unit:
        yield _text("Unit", line.unit, line, dropped=_FIGURE)
    for name in ("Quantity", "UnitPrice", "Discount", "TaxRate"):
        value = line.values.get(name)
        if value is not None:
            yield _number(name, value, line, why_number)
    yield _number("Amount", line.amount, line, why_number)


def _text(name: str, words: Sequence[Word], line: ItemLine, dropped: re.Pattern[str] = _LEADERS) -> Field:
    text = dropped.sub("", " ".join(word.text for word in words))
    return printed_field(name, text, words, line.page, score=_score(line), why=because("beside_amount"))


def _number(name: str, value: Value, line: ItemLine, why: str) -> Field:
    if not value.words:
        why = f"{because('amount_by_price')}; {because('not_read')}"
        return Field(name, format_decimal(value.number), "", _COMPUTED, "computed", why)
    why = because("quantity_by_price") if line.holds else why
    return printed_field(name, format_decimal(value.number), value.words, line.page, score=_score(line), why=why)
