"""Bank statements: the account, its holder, the period, balances and movements."""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import NamedTuple

from backend.files.pages import Word
from backend.files.visual_rows import Cell, PageRows
from backend.invoices.header.dates import PrintedDate, dates_in
from backend.invoices.label_match import LabelMatch
from backend.invoices.printed_field import printed_field
from backend.invoices.records import Field
from backend.invoices.statement.labels import FACTS, TITLES
from backend.invoices.statement.movements import Notation, find_movements, movement_columns, movements_field
from backend.tables.numbers import Number, numbers_in
from backend.text.patterns import find_patterns
from backend.text.patterns.date_order import DateOrder
from backend.text.patterns.dates import find_dates, order_of
from backend.text.patterns.folding import fold

_LABEL_WORDS = 14  # of a cell that may hold a label: prose is longer
_DECIMALS = 2
_MONTH = re.compile(r"\d{4}-\d\d")
_ACCOUNT = re.compile(r"[\dA-Z][\dA-Z*Xx./-]*")
_LEAST_ACCOUNT_DIGITS = 6
_MOST_NAME_WORDS = 8
_TOP_ROWS = 30  # of a page, in which titles and periods stand


class _Fact(NamedTuple):
    """A label and where its value may stand."""

    page: PageRows
    label: LabelMatch
    places: tuple[tuple[Word, ...], ...]  # behind, beside, below


def find_statement(pages: Sequence[PageRows], mark: str) -> tuple[Field, ...]:
    """AccountNumber, AccountHolder, PeriodStart, PeriodEnd, OpeningBalance, ClosingBalance, Movements.

    Nothing where no page heads an account's movements and none has a statement's title and balances.

    Args:
        mark: the document's decimal separator, from `numbers.decimal_mark_of`.
    """
    facts = [fact for page in pages for fact in _facts(page)]
    opening = _balance(facts, "OpeningBalance", mark)
    closing = _balance(facts, "ClosingBalance", mark)
    has_columns = any(movement_columns(row, page) for page in pages for row in page.rows)
    if not (has_columns or (opening is not None and closing is not None and _is_titled(pages))):
        return ()
    order = order_of(fold("\n".join(page.page.text for page in pages)).text)
    period = _period(pages, facts, order)
    notation = Notation(mark, order, period[1].value if period else None)
    before = Decimal(opening.value) if opening is not None else None
    movements = find_movements(pages, notation, before)
    fields = [*_account(pages, facts), *period]
    fields += [field for field in (opening, closing) if field is not None]
    if movements:
        fields.append(movements_field(movements))
        last = movements[-1]
        if closing is None and last.balance is not None and last.date >= movements[0].date:
            why = "the balance of the last movement"
            value = f"{last.balance.value:f}"
            fields.append(printed_field("ClosingBalance", value, last.balance.words, last.page, score=0.8, why=why))
    return tuple(fields)


def _is_titled(pages: Sequence[PageRows]) -> bool:
    cells = (cell for page in pages[:1] for row in page.rows[:_TOP_ROWS] for cell in row.cells)
    return any(len(cell.words) <= _LABEL_WORDS and TITLES.find(cell) for cell in cells)


def _facts(page: PageRows) -> Iterator[_Fact]:
    for cell in page.cells:
        if len(cell.words) > _LABEL_WORDS:
            continue
        matches = FACTS.find(cell)
        for index, match in enumerate(matches):
            stop = matches[index + 1].first if index + 1 < len(matches) else None
            yield _Fact(page, match, tuple(_places(page, cell, cell.words[match.last : stop])))


def _places(page: PageRows, cell: Cell, behind: tuple[Word, ...]) -> Iterator[tuple[Word, ...]]:
    if behind:
        yield behind
    row = page.rows[cell.row]
    yield from (other.words for other in row.cells if other.box.left >= cell.box.right and not FACTS.find(other))
    for below in page.rows[cell.row + 1 : cell.row + 2]:
        under = [other for other in below.cells if other.box.left < cell.box.right and cell.box.left < other.box.right]
        yield from (other.words for other in under if not FACTS.find(other))


def _amounts(fact: _Fact, mark: str) -> Iterator[Number]:
    for words in fact.places:
        cell = Cell(fact.label.cell.page, words, fact.label.cell.box, fact.label.cell.row)
        yield from (number for number in numbers_in(cell, mark) if number.decimals == _DECIMALS)


def _balance(facts: Sequence[_Fact], name: str, mark: str) -> Field | None:
    """A balance beside or below its label."""
    for fact in facts:
        if fact.label.label == name:
            number = next(_amounts(fact, mark), None)
            if number is not None:
                why = f"beside the label “{' '.join(word.text for word in fact.label.words)}”"
                return printed_field(name, f"{number.value:f}", number.words, fact.page, score=0.9, why=why)
    return None


def _account(pages: Sequence[PageRows], facts: Sequence[_Fact]) -> Iterator[Field]:
    number = _iban(pages) or _account_number(facts)
    if number is not None:
        yield number
    for fact in facts:
        name = _name(fact) if fact.label.label == "AccountHolder" else ()
        if name:
            value = " ".join(word.text for word in name).strip(" .,:;-")
            yield printed_field("AccountHolder", value, name, fact.page, score=0.85, why="beside its label")
            return


def _name(fact: _Fact) -> tuple[Word, ...]:
    for words in fact.places:
        chosen = words[:_MOST_NAME_WORDS]
        letters = [word for word in chosen if any(map(str.isalpha, word.text))]
        if letters and not any(map(str.isdecimal, "".join(word.text for word in chosen))):
            return chosen
    return ()


def _iban(pages: Sequence[PageRows]) -> Field | None:
    for page in pages:
        for entity in find_patterns(page.page.text, ["IBAN"]):
            if entity.value is not None and entity.score > 0.6:  # less: wrong and without a label
                words = [word for word in page.page.words if word.start < entity.end and entity.start < word.end]
                return printed_field(
                    "AccountNumber", entity.value, words, page, score=0.97, why="an IBAN", valid=entity.valid
                )
    return None


def _account_number(facts: Sequence[_Fact]) -> Field | None:
    for fact in facts:
        if fact.label.label != "AccountNumber":
            continue
        for words in fact.places:
            chosen: list[Word] = []
            for word in words:
                if not _ACCOUNT.fullmatch(word.text.strip(".,:;")):
                    break
                chosen.append(word)
            value = "".join("".join(filter(str.isalnum, word.text)) for word in chosen)
            if sum(map(str.isdecimal, value)) >= _LEAST_ACCOUNT_DIGITS:
                return printed_field("AccountNumber", value, chosen, fact.page, score=0.85, why="beside its label")
    return None


def _period(pages: Sequence[PageRows], facts: Sequence[_Fact], order: DateOrder) -> list[Field]:
    """Start and end: two dates behind a label or in one title, or the month of the title."""
    for fact in facts:
        if fact.label.label == "Period":
            row = fact.page.rows[fact.label.cell.row]
            dates = dates_in(row.words, order, is_ocr=fact.page.page.source == "ocr")
            if len(dates) >= 2:
                return _span(fact.page, dates[0], dates[1], "behind its label")
    for page in pages[:1]:
        for row in page.rows[:_TOP_ROWS]:
            if movement_columns(row, page):
                break
            dates = dates_in(row.words, order, is_ocr=page.page.source == "ocr")
            if len(dates) == 2 and dates[0].value < dates[1].value:
                return _span(page, dates[0], dates[1], "two dates at the head of the statement")
            if any(TITLES.find(cell) for cell in row.cells):
                month = _month(page, row.words)
                if month:
                    return month
    return []


def _span(page: PageRows, first: PrintedDate, last: PrintedDate, why: str) -> list[Field]:
    return [
        printed_field(name, date.value, date.words, page, score=0.9, why=why, valid=True, ambiguous=date.ambiguous)
        for name, date in (("PeriodStart", first), ("PeriodEnd", last))
    ]


def _month(page: PageRows, words: Sequence[Word]) -> list[Field]:
    """Both ends of a month in words: "Extracto de cuenta - marzo 2026"."""
    text = " ".join(word.text for word in words)
    for match in find_dates(fold(text).text):
        if match.value is not None and _MONTH.fullmatch(match.value):
            year, month = map(int, match.value.split("-"))
            ends = (f"{match.value}-01", f"{match.value}-{monthrange(year, month)[1]:02}")
            why = "the month of its title"
            return [
                printed_field(name, value, words, page, score=0.75, why=why, valid=True)
                for name, value in zip(("PeriodStart", "PeriodEnd"), ends, strict=True)
            ]
    return []
