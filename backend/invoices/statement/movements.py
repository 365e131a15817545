"""The movements of a bank account: a line each, by the columns of their header, checked by the balance.

A debit is negative. Where amounts have neither a sign nor columns of their own, the balance says which they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import NamedTuple

from backend.files.pages import Word, bounding_box
from backend.files.visual_rows import PageRows, VisualRow
from backend.invoices.header.dates import dates_in
from backend.invoices.printed_field import printed_field
from backend.invoices.records import Field, FieldRow
from backend.invoices.statement.labels import COLUMNS, FACTS
from backend.tables.numbers import Number, numbers_in
from backend.text.patterns.date_order import DateOrder

_LEAST_COLUMNS = 3
_MONEY = ("Debit", "Credit", "Amount", "Balance")
_DAY_AND_MONTH = re.compile(r"(\d{1,2})[/.-](\d{1,2})\.?")
_DECIMALS = 2
_MOST_DRIFT = 4.0  # line heights between the edge of a number and that of its column
_SURE, _LIKELY = 0.97, 0.8


@dataclass(frozen=True, slots=True)
class Column:
    """A column of movements, by the place of its label on the levelled page."""

    name: str
    left: float
    right: float


@dataclass(frozen=True, slots=True)
class Movement:
    """One line of an account."""

    page: PageRows
    date: str  # ISO 8601; "--03-12" where no year is known
    date_words: tuple[Word, ...]
    value_date: str | None
    value_words: tuple[Word, ...]
    description: tuple[Word, ...]
    amount: Number
    signed: Decimal
    balance: Number | None
    holds: bool | None  # whether the balance before and the amount make the balance; None where one is missing


class Notation(NamedTuple):
    """How a statement writes numbers and dates."""

    mark: str  # its decimal separator
    order: DateOrder
    last_day: str | None  # ISO 8601; of its period: the year of dates that are printed without one


def movement_columns(row: VisualRow, page: PageRows) -> tuple[Column, ...]:
    """The columns that a row heads; empty where it is no header of movements."""
    columns: dict[str, Column] = {}
    for cell in row.cells:
        for match in COLUMNS.find(cell):
            box = bounding_box(page.level(word.box) for word in match.words)
            columns.setdefault(match.label, Column(match.label, box.left, box.right))
    names = columns.keys()
    has_money = "Amount" in names or {"Debit", "Credit"} <= names
    is_account = "Balance" in names or {"Debit", "Credit"} <= names
    if len(names) < _LEAST_COLUMNS or "Date" not in names or not (has_money and is_account):
        return ()
    return tuple(sorted(columns.values(), key=lambda column: column.left))


def find_movements(pages: Sequence[PageRows], notation: Notation, opening: Decimal | None) -> list[Movement]:
    """The movements of all pages in their order; a page without a header continues the columns of the one before.

    Args:
        opening: the balance before the first movement, if it is printed.
    """
    columns: tuple[Column, ...] = ()
    found: list[Movement] = []
    for page in pages:
        open_line = False  # whether a line may go on in the next row
        for row in page.rows:
            header = movement_columns(row, page)
            if header:
                columns, open_line = header, False
            elif columns:
                movement = _movement(page, row, columns, notation)
                if movement is not None:
                    found.append(movement)
                    open_line = True
                elif open_line and found and _goes_on(row, columns, notation.mark):
                    found[-1] = replace(found[-1], description=(*found[-1].description, *row.words))
                else:
                    open_line = False
    return _settled(found, opening)


def _movement(page: PageRows, row: VisualRow, columns: Sequence[Column], notation: Notation) -> Movement | None:
    """The movement in a row; None where it has no date or no amount."""
    dates = _leading_dates(row, notation, is_ocr=page.page.source == "ocr")
    if not dates:
        return None
    used = {word.start for _, words in dates for word in words}
    numbers = [
        number for cell in row.cells for number in numbers_in(cell, notation.mark) if number.decimals == _DECIMALS
    ]
    placed: dict[str, Number] = {}
    for number in numbers:
        column = _column_of(page, number, columns)
        if column is not None and not used & {word.start for word in number.words}:
            placed.setdefault(column.name, number)
    name = next((name for name in ("Debit", "Credit", "Amount") if name in placed), None)
    if name is None:
        return None
    amount = placed[name]
    money = {word.start for number in placed.values() for word in number.words} | used
    description = tuple(word for word in row.words if word.start not in money and any(map(str.isalnum, word.text)))
    signed = -abs(amount.value) if name == "Debit" else amount.value
    value_date, value_words = dates[1] if len(dates) > 1 else (None, ())
    return Movement(
        page,
        dates[0][0],
        dates[0][1],
        value_date,
        value_words,
        description,
        amount,
        signed,
        placed.get("Balance"),
        None,
    )


def _leading_dates(row: VisualRow, notation: Notation, *, is_ocr: bool) -> list[tuple[str, tuple[Word, ...]]]:
    """The dates at the beginning of a row, two at most: of booking and of value."""
    words = row.words
    found: list[tuple[str, tuple[Word, ...]]] = []
    index = 0
    while index < len(words) and len(found) < 2:
        dates = dates_in(words[index : index + 4], notation.order, is_ocr=is_ocr)
        if dates and dates[0].first == 0:
            found.append((dates[0].value, dates[0].words))
            index += len(dates[0].words)
            continue
        value = _without_year(words[index].text, notation)
        if value is None:
            break
        found.append((value, (words[index],)))
        index += 1
    return found


def _without_year(text: str, notation: Notation) -> str | None:
    """A day and a month, in the year that puts them before the end of the period: "--03-12" where that is unknown."""
    match = _DAY_AND_MONTH.fullmatch(text)
    if match is None:
        return None
    first, second = int(match[1]), int(match[2])
    day, month = (second, first) if notation.order.month_first else (first, second)
    if not (1 <= day <= 31 and 1 <= month <= 12):
        return None
    if notation.last_day is None:
        return f"--{month:02}-{day:02}"
    year = int(notation.last_day[:4]) - (f"{month:02}-{day:02}" > notation.last_day[5:])
    return f"{year:04}-{month:02}-{day:02}"


def _column_of(page: PageRows, number: Number, columns: Sequence[Column]) -> Column | None:
    """The money column whose edge or middle is nearest to the number's."""
    box = bounding_box(page.level(word.box) for word in number.words)

    def distance(column: Column) -> float:
        middle = abs(box.left + box.right - column.left - column.right) / 2
        return min(abs(box.right - column.right), abs(box.left - column.left), middle)

    nearest = min((column for column in columns if column.name in _MONEY), key=distance, default=None)
    return nearest if nearest is not None and distance(nearest) < _MOST_DRIFT * page.line_height else None


def _goes_on(row: VisualRow, columns: Sequence[Column], mark: str) -> bool:
    """Whether a row is a further line of the description above: words in its column, no amount, no label."""
    first = next((column for column in columns if column.name == "Description"), None)
    if first is None or len(row.cells) > 1 or any(FACTS.find(cell) for cell in row.cells):
        return False
    cell = row.cells[0]
    starts_there = abs(cell.box.left - first.left) < 2 * (cell.box.bottom - cell.box.top)
    return starts_there and not any(number.decimals == _DECIMALS for number in numbers_in(cell, mark))


def _settled(movements: Sequence[Movement], opening: Decimal | None) -> list[Movement]:
    """The movements with their signs as the balances say, and whether each agrees with its balance.

    Statements run either way: newest last or newest first.
    """
    forward = _checked(movements, opening)
    newest_first = _checked(movements[::-1], None)
    if sum(m.holds is True for m in newest_first) > sum(m.holds is True for m in forward):
        return newest_first[::-1]
    return forward


def _checked(movements: Sequence[Movement], opening: Decimal | None) -> list[Movement]:
    before, checked = opening, []
    for movement in movements:
        after = movement.balance.value if movement.balance is not None else None
        holds: bool | None = None
        signed = movement.signed
        if before is not None and after is not None:
            if before + signed != after and before - signed == after:
                signed = -signed
            holds = before + signed == after
        checked.append(replace(movement, signed=signed, holds=holds))
        before = after if after is not None else None if before is None else before + signed
    return checked


def movements_field(movements: Sequence[Movement]) -> Field:
    """The field `Movements`."""
    score = sum(_SURE if movement.holds else _LIKELY for movement in movements) / len(movements)
    checked = [movement.holds for movement in movements if movement.holds is not None]
    why = f"{len(movements)} lines with a date and an amount under the header of an account's movements"
    rows = tuple(FieldRow(tuple(_row(movement))) for movement in movements)
    valid = all(checked) if checked else None
    return Field("Movements", "", "", round(score, 4), "text", why, rows=rows, valid=valid)


def _row(movement: Movement) -> Iterator[Field]:
    page, score = movement.page, _SURE if movement.holds else _LIKELY
    why = (
        "in its column"
        if movement.holds is None
        else "the balance agrees"
        if movement.holds
        else "the balance disagrees"
    )
    yield printed_field(
        "Date", movement.date, movement.date_words, page, score=score, why="at the beginning of its line"
    )
    if movement.value_date is not None:
        value_why = "behind the date of booking"
        yield printed_field("ValueDate", movement.value_date, movement.value_words, page, score=score, why=value_why)
    if movement.description:
        text = " ".join(word.text for word in movement.description)
        yield printed_field("Description", text, movement.description, page, score=score, why="in its column")
    yield printed_field(
        "Amount", f"{movement.signed:f}", movement.amount.words, page, score=score, why=why, valid=movement.holds
    )
    if movement.balance is not None:
        value = f"{movement.balance.value:f}"
        yield printed_field("Balance", value, movement.balance.words, page, score=score, why=why, valid=movement.holds)
