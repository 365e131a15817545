"""The equations that the amounts of a document should satisfy, as `differences` tell them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from backend.invoices.records import Difference
from backend.text.patterns.numbers import format_decimal

_CENT = Decimal("0.01")
_TOLERANCE = Decimal("0.02")  # each part is rounded


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
        return are_equal(self.expected, self.printed)

    @property
    def difference(self) -> Difference:
        """For the answer, where it does not hold."""
        return Difference(self.text, format_decimal(self.expected.quantize(_CENT)), format_decimal(self.printed))


def totals_hold(equations: Sequence[Equation]) -> bool | None:
    """Whether all equations hold; None where those that do not fail cannot settle it."""
    if any(not equation.holds for equation in equations):
        return False
    return True if any(equation.settles for equation in equations) else None


def are_equal(one: Decimal, other: Decimal) -> bool:
    """Whether two sums are the same within rounding."""
    return abs(one - other) <= _TOLERANCE


def of_rate(base: Decimal, rate: Decimal, amount: Decimal) -> Equation:
    """Of a row of taxes."""
    text = f"Base x Rate ({format_decimal(rate.normalize())} %) = Amount"
    return Equation(text, base * rate / 100, amount, settles=False)


def taken_off(amount: Decimal, total: Decimal) -> Decimal:
    """What a withholding or a discount adds to a sum, whatever sign it is printed with."""
    return abs(amount) * (1 if total < 0 else -1)


def of_due(total: Decimal, withheld: Decimal, due: Decimal) -> Equation:
    """Of what is left to be paid."""
    expected = total + taken_off(withheld, total)
    return Equation("InvoiceTotal - WithholdingAmount = AmountDue", expected, due, settles=False)


def of_items(items: Decimal, name: str, amount: Decimal, *, settles: bool) -> Equation:
    """Of the lines and the amount that they should make."""
    return Equation(f"sum of Items = {name}", items, amount, settles=settles)
