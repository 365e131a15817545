"""Explains amounts that do not agree on a scanned page by a digit that OCR took for another one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import NamedTuple

from backend.invoices.money.balance import Balance
from backend.invoices.money.candidates import Candidate
from backend.invoices.money.check import Equation, equations_of, totals_hold
from backend.invoices.money.taxes import TaxRow
from backend.tables.numbers import Number

# Below it an amount may be misread; 1 in 100 amounts of the scans in fields_dev has so little.
_DOUBTFUL = 0.9
# Digits that OCR takes for one another.
_LIKE = {
    "0": "86",
    "1": "74",
    "2": "7",
    "3": "895",
    "4": "19",
    "5": "63",
    "6": "508",
    "7": "12",
    "8": "3069",
    "9": "834",
}


class Repair(NamedTuple):
    """The likely reading of a misread amount."""

    numbers: tuple[Number, ...]  # of the candidate, as read
    value: Decimal
    equations: tuple[Equation, ...]  # with it; all hold


def repair_of(balance: Balance, rows: Sequence[TaxRow], items: Decimal | None) -> Repair | None:
    """The one amount with one doubtful digit that makes all equations hold; None where none does, or several do.

    Args:
        items: sum of the lines, where they were found.
    """
    found: list[Repair] = []
    for candidate, mended in _mended(balance):
        same_rows = [_with_amount(row, candidate, mended.value) for row in rows]
        equations = equations_of(mended.balance, same_rows, items, complete=False)
        if totals_hold(equations):
            found.append(Repair(candidate.numbers, mended.value, equations))
    return found[0] if len({repair.value for repair in found}) == 1 else None


class _Mended(NamedTuple):
    value: Decimal
    balance: Balance


def _mended(balance: Balance) -> Iterator[tuple[Candidate, _Mended]]:
    """The balance with every likely reading of each doubtful amount."""
    plain = replace(balance, adds_up=False)
    parts: tuple[tuple[Candidate | None, Callable[[Candidate], Balance]], ...] = (
        (balance.base, lambda read: replace(plain, base=read)),
        (balance.tax, lambda read: replace(plain, tax=read)),
        (balance.total, lambda read: replace(plain, total=read)),
        (balance.withheld, lambda read: replace(plain, withheld=read)),
    )
    for candidate, with_reading in parts:
        if candidate is not None and _is_doubtful(candidate):
            for value in _readings(candidate):
                yield candidate, _Mended(value, with_reading(replace(candidate, value=value)))


def _is_doubtful(candidate: Candidate) -> bool:
    page = candidate.page
    if page is None or page.page.source != "ocr" or len(candidate.numbers) != 1:
        return False
    return min(word.confidence for word in candidate.numbers[0].words) < _DOUBTFUL


def _readings(candidate: Candidate) -> Iterator[Decimal]:
    digits = f"{candidate.value:f}"
    for index, digit in enumerate(digits):
        for other in _LIKE.get(digit, ""):
            yield Decimal(digits[:index] + other + digits[index + 1 :])


def _with_amount(row: TaxRow, candidate: Candidate, value: Decimal) -> TaxRow:
    """A tax row in which the misread number stands, with its likely reading."""
    number = candidate.numbers[0]
    amount = row.amount._replace(value=value) if row.amount == number else row.amount
    base = row.base._replace(value=value) if row.base == number and row.base is not None else row.base
    return replace(row, amount=amount, base=base)
