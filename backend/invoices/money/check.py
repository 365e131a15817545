"""Whether the printed amounts of a document agree: which equations hold, which do not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

from backend.invoices.money.balance import CENTS, Balance
from backend.invoices.money.taxes import TAX_TOLERANCE, TaxRow
from backend.invoices.records import Difference
from backend.text.patterns.numbers import format_decimal

_CENT = Decimal("0.01")
_TOLERANCE = CENTS * _CENT


@dataclass(frozen=True, slots=True)
class Equation:
    """Two sides that should be equal."""

    text: str  # "SubTotal + TotalTax = InvoiceTotal"
    expected: Decimal  # from the left side
    printed: Decimal  # the right side
    settles: bool  # whether it holding is enough to say that the totals are right

    @property
    def holds(self) -> bool:
        """Within rounding."""
        return abs(self.expected - self.printed) <= _TOLERANCE

    @property
    def difference(self) -> Difference:
        """For the answer, where it does not hold."""
        return Difference(self.text, format_decimal(self.expected.quantize(_CENT)), format_decimal(self.printed))


def totals_hold(equations: Sequence[Equation]) -> bool | None:
    """Whether all equations hold; None where those that do not fail cannot settle it."""
    if any(not equation.holds for equation in equations):
        return False
    return True if any(equation.settles for equation in equations) else None


def equations_of(
    balance: Balance, rows: Sequence[TaxRow], items: Decimal | None, *, complete: bool
) -> tuple[Equation, ...]:
    """The equations that the amounts of a document should satisfy, as far as their parts are printed.

    Args:
        rows: with their bases, where these are known.
        items: sum of the lines, where they were found.
        complete: whether no line can be missing or misread, as on a page that OCR read.
    """
    equations = [*_of_rows(rows), *_of_total(balance, rows), *_of_due(balance)]
    if items is not None:
        settled = any(equation.settles for equation in equations)
        equations += _of_items(balance, rows, items, alone=complete and not settled)
    return tuple(equations)


def _of_rows(rows: Sequence[TaxRow]) -> Iterator[Equation]:
    for row in rows:
        if row.base is not None:
            expected = row.base.value * row.rate / 100
            text = f"Base x Rate ({format_decimal(row.rate.normalize())} %) = Amount"
            if abs(expected - row.amount.value) <= TAX_TOLERANCE:
                expected = row.amount.value
            yield Equation(text, expected, row.amount.value, settles=False)


def _of_total(balance: Balance, rows: Sequence[TaxRow]) -> Iterator[Equation]:
    """Base, taxes, charges and withholding make the total."""
    base, tax, total = balance.base, balance.tax, balance.total
    if base is None or total is None or (tax is None and not balance.adds_up):
        return
    if balance.adds_up and (balance.tax_in_base or tax is None):
        yield Equation("SubTotal = InvoiceTotal", total.value, total.value, settles=not rows or balance.tax_in_base)
        return
    assert tax is not None
    text, expected = "SubTotal + TotalTax", base.value + tax.value
    if balance.adds_up:
        for extra in balance.extras:
            text += f" {'+' if extra.cents >= 0 else '-'} {_NAMES.get(extra.kind, extra.kind)}"
            expected += Decimal(extra.cents) / 100
    if balance.withheld is not None and (balance.withheld_in_total or not balance.adds_up):
        text += " - WithholdingAmount"
        expected -= abs(balance.withheld.value) * (-1 if total.value < 0 else 1)
    yield Equation(f"{text} = InvoiceTotal", expected, total.value, settles=True)


_NAMES: dict[str, str] = {"discount": "TotalDiscount", "tip": "Tip"}


def _of_items(balance: Balance, rows: Sequence[TaxRow], items: Decimal, *, alone: bool) -> Iterator[Equation]:
    """The lines make the base; where the tax is in them, the total.

    Lines that were misread would call right totals wrong: those that do not add up are told only where nothing else
    can be checked.
    """
    for name, amount in (("SubTotal", balance.base), ("InvoiceTotal", balance.total)):
        if amount is not None and amount.page is not None and abs(items - amount.value) <= _TOLERANCE:
            settles = name == "InvoiceTotal" and not rows
            yield Equation(f"sum of Items = {name}", items, amount.value, settles=settles)
            return
    printed = balance.base is not None and balance.base.page is not None
    if alone and balance.total is not None and not printed and balance.tax is None and not balance.extras:
        yield Equation("sum of Items = InvoiceTotal", items, balance.total.value, settles=True)


def _of_due(balance: Balance) -> Iterator[Equation]:
    total, due, withheld = balance.total, balance.due, balance.withheld
    if total is None or due is None or withheld is None or balance.withheld_in_total:
        return
    if due.cents != total.cents and not balance.due_agrees:
        expected = total.value - abs(withheld.value) * (-1 if total.value < 0 else 1)
        yield Equation("InvoiceTotal - WithholdingAmount = AmountDue", expected, due.value, settles=False)
