"""Settles which amounts are base, tax, total and due: those by good labels whose equations hold.

`differences` tells the equations that a document's amounts should satisfy, and by how much they do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import combinations
from math import inf
from typing import NamedTuple

from backend.invoices.money.candidates import Candidate, Candidates, cents_of, part_sums
from backend.invoices.money.labels import Kind
from backend.invoices.money.taxes import TaxRow, is_tax
from backend.invoices.records import Difference
from backend.text.patterns.amounts import format_decimal

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


CENTS = 2  # tolerance of sums: each part is rounded
_ADDS_UP = 2.5  # beside labels of at most 1.25 each
_UNUSED = 3.5
_STRONG_TOTAL = 0.75  # score of a plain "Total"
_STRONG_BASE = 0.95  # score of "Base imponible"
_WITHOUT_TAX = 1.0  # base and charges alone are the total: exempt, or the tax is in it
_PER_EXTRA = 0.2  # for each charge or discount that is needed for it
_SUM_AGREES = 0.6  # with the sum of the tax rows or of the lines
_RATE_AGREES = 1.0  # base x the only rate = tax
_ROUNDED = 0.6  # the total after rounding, beside the one before
_PAYMENT_AGREES = 0.8  # cash less change, or the card's amount, is the total
_DUE_AGREES = 1.0  # total less payments, withholding, plus the older balance
_PER_STEP = 0.15  # the last of several figures to be paid: after withholding, then with disbursements
_TELLING: dict[Kind, float] = {"paid": 1.0, "balance": 1.0, "charge": 0.15, "rounding": 0.0}
_DUE_UNEXPLAINED = -0.7
_COIN = 5  # cents: the smallest that totals are rounded to
_MAX_EXTRAS = 5
_LEAST = 0.2  # score of a candidate that is considered
_NO_TOTAL = -0.5
_SIGNS: dict[Kind, tuple[int, ...]] = {
    "charge": (1,), "tip": (1,), "rounding": (1, -1), "discount": (-1,), "paid": (-1,), "balance": (1,),
}  # fmt: skip


class Extra(NamedTuple):
    """A charge, discount, rounding or payment between two sums."""

    kind: Kind
    cents: int  # as it is added
    candidate: Candidate


@dataclass(frozen=True, slots=True)
class Balance:
    """The amounts that were settled on; None where there is none."""

    base: Candidate | None = None
    tax: Candidate | None = None
    withheld: Candidate | None = None
    total: Candidate | None = None
    due: Candidate | None = None
    extras: tuple[Extra, ...] = ()  # between base and total
    withheld_in_total: bool = False  # the total is after withholding
    adds_up: bool = False  # base + tax + extras (- withholding) = total
    due_agrees: bool | None = None  # None where nothing stands between total and due
    score: float = 0.0


class Context(NamedTuple):
    """What amounts are checked against, in cents."""

    bases: int | None  # sum of the tax rows' bases
    taxes: int | None  # sum of their amounts
    totals: tuple[int, ...]  # printed beside words that say "total" and nothing else
    taxable: tuple[int, ...]  # printed beside words that say "base", for all rates
    rate: Decimal | None  # the only rate without a base
    items: int | None  # sum of the lines
    lines: frozenset[int]  # amount of each of several


def settle(
    found: Candidates, rows: Sequence[TaxRow], withheld: Candidate | None, items: Sequence[Decimal] | None
) -> Balance:
    """The best combination of candidates.

    Args:
        items: amounts of the lines, where they were found.
    """
    context = _context(found, rows, items)
    extras = _extras(found)
    best = Balance(score=-inf)
    totals = _likely(found.of("total"))
    for total in [*([total for total in totals if total.cents] or totals), None]:
        balance = max(
            _balances(found, context, withheld, total, extras), key=lambda balance: balance.score, default=Balance()
        )
        balance = with_due(found, balance)
        balance = replace(balance, score=balance.score + _payment_bonus(found, balance))
        if balance.score > best.score:
            best = balance
    return best


def _context(found: Candidates, rows: Sequence[TaxRow], items: Sequence[Decimal] | None) -> Context:
    due = {candidate.cents for candidate in found.of("due")}
    parts = part_sums(row.base for row in rows if not row.is_surcharge)
    own = [row for row in rows if not row.is_surcharge]
    bases = [row.base.value for row in own if row.base is not None]
    return Context(
        cents_of(sum(bases, Decimal(0))) if bases and len(bases) == len(own) else None,
        cents_of(sum((row.amount.value for row in rows), Decimal(0))) if rows else None,
        tuple(c.cents for c in found.of("total") if c.page and c.score >= _STRONG_TOTAL and c.cents not in due),
        tuple(c.cents for c in found.of("base") if c.page and c.score >= _STRONG_BASE and c.cents not in parts),
        own[0].rate if len(own) == 1 and own[0].base is None else None,
        None if items is None else cents_of(sum(items, Decimal(0))),
        frozenset(map(cents_of, items or ()) if len(items or ()) > 1 else ()),
    )


def _likely(options: Iterable[Candidate]) -> list[Candidate]:
    return [option for option in options if option.score >= _LEAST]


def _extras(found: Candidates) -> list[tuple[int, tuple[Extra, ...]]]:
    """What may stand between base and total: sums of a few charges, discounts and rounding, the fewest first."""
    single: list[Extra] = []
    for kind in ("charge", "discount", "rounding", "tip"):
        for candidate in _likely(found.of(kind)):
            if candidate.cents and all(candidate.numbers != extra.candidate.numbers for extra in single):
                single.append(Extra(kind, candidate.cents, candidate))
    single = sorted(single, key=lambda extra: -extra.candidate.score)[:_MAX_EXTRAS]
    sums: dict[int, tuple[Extra, ...]] = {}
    for count in range(len(single) + 1):
        for group in combinations(single, count):
            for signed in _signed(group):
                sums.setdefault(sum(extra.cents for extra in signed), signed)
    return list(sums.items())


def _signed(group: Sequence[Extra]) -> Iterator[tuple[Extra, ...]]:
    """Discounts are taken off whether or not a minus sign is printed; rounding has its own sign, or has lost it."""
    if not group:
        yield ()
        return
    first, rest = group[0], group[1:]
    for signed in _signed(rest):
        for sign in _SIGNS[first.kind]:
            cents = sign * (abs(first.cents) if first.kind == "discount" else first.cents)
            yield (first._replace(cents=cents), *signed)


def _balances(
    found: Candidates,
    context: Context,
    withheld: Candidate | None,
    total: Candidate | None,
    extras: Sequence[tuple[int, tuple[Extra, ...]]],
) -> Iterator[Balance]:
    between = dict(extras)
    for base in [*_likely(found.of("base")), *_likely(found.of("gross"))[:2], None]:
        for tax in [*_likely(found.of("tax")), None]:
            score = sum(part.score for part in (base, tax, total) if part is not None)
            score += _agreement(context, base, tax) + (0 if total is not None else _NO_TOTAL)
            score -= _UNUSED * _unused(context, found, base, tax, total)
            if base is not None and total is not None and base.numbers == total.numbers:
                continue
            plain = Balance(base, tax, withheld, total, score=score)
            yield plain
            if base is not None and total is not None:
                yield from _that_add_up(plain, base, total, between, context)


def _unused(
    context: Context, found: Candidates, base: Candidate | None, tax: Candidate | None, total: Candidate | None
) -> int:
    """How many amounts with good labels have no place: a wrong total is still the total."""
    left = base.cents if base is not None else 0
    known = {part.cents for part in (base, tax, total) if part is not None}
    known |= {left + (tax.cents if tax is not None else 0), context.items or 0, 0, *context.lines}
    near = {abs(rounding.cents) for rounding in found.of("rounding")}
    totals = sum(
        cents not in known and (total is None or abs(total.cents - cents) not in near) for cents in context.totals
    )
    taxable = [cents for cents in context.taxable if total is None or cents != total.cents]
    return totals + (bool(taxable) and left not in taxable)


def _that_add_up(
    plain: Balance, base: Candidate, total: Candidate, between: dict[int, tuple[Extra, ...]], context: Context
) -> Iterator[Balance]:
    """The ways in which base and tax make the total."""
    tax, withheld = plain.tax, plain.withheld
    taken_off = 0 if withheld is None else (-1 if total.cents < 0 else 1) * abs(withheld.cents)
    for after in (False, True) if withheld is not None else (False,):
        missing = total.cents - base.cents + (taken_off if after else 0)
        if tax is not None and abs(tax.cents) < abs(base.cents):
            group = _near(between, missing - tax.cents)
            if group is not None:
                yield _added(plain, _ADDS_UP, group, after=after)
        group = _near(between, missing)
        if group is None:
            continue
        if tax is None and not context.taxes:
            yield _added(plain, _WITHOUT_TAX, group, after=after)


def _added(plain: Balance, bonus: float, extras: tuple[Extra, ...], *, after: bool) -> Balance:
    return replace(
        plain,
        extras=extras,
        adds_up=True,
        withheld_in_total=after,
        score=plain.score + bonus - _PER_EXTRA * len(extras),
    )


def _near(between: dict[int, tuple[Extra, ...]], cents: int) -> tuple[Extra, ...] | None:
    for offset in sorted(range(-CENTS, CENTS + 1), key=abs):
        if cents + offset in between:
            return between[cents + offset]
    return None


def _agreement(context: Context, base: Candidate | None, tax: Candidate | None) -> float:
    """How well base and tax agree with the tax rows and the lines."""
    score = 0.0
    if base is not None:
        score += _SUM_AGREES * _is(context.bases, base.cents) + _SUM_AGREES * _is(context.items, base.cents) / 2
        if tax is not None and context.rate and is_tax(base.value, context.rate, tax.value):
            score += _RATE_AGREES
    if tax is not None:
        score += _SUM_AGREES * _is(context.taxes, tax.cents)
    return score


def _is(expected: int | None, cents: int) -> bool:
    return expected is not None and abs(expected - cents) <= CENTS


def with_due(found: Candidates, balance: Balance) -> Balance:
    """The amount to be paid beside a total: what is left after withholding, payments and with an older balance."""
    total = balance.total
    if total is None:
        return balance
    steps = _steps(found, balance)
    best = balance
    for due in _likely(found.of("due")):
        bonuses = [bonus for step, bonus in steps.items() if abs(total.cents + step - due.cents) <= CENTS]
        agrees = bool(bonuses)
        score = balance.score + due.score + max(bonuses, default=_DUE_UNEXPLAINED)
        if score > best.score:
            best = replace(balance, due=due, due_agrees=agrees, score=score)
    return best


def _steps(found: Candidates, balance: Balance) -> dict[int, float]:
    """What may be added to the total to make what is due, and how telling it is."""
    parts: list[tuple[int, float]] = []
    if balance.withheld is not None and not balance.withheld_in_total:
        parts.append((-balance.withheld.cents if balance.withheld.cents > 0 else balance.withheld.cents, _DUE_AGREES))
    used = [extra.candidate.numbers for extra in balance.extras]
    for kind, telling in _TELLING.items():
        unused = [part for part in _likely(found.of(kind))[:3] if part.numbers not in used and part.cents]
        parts += [(-abs(part.cents) if kind == "paid" else part.cents, telling) for part in unused]
    steps = {0: _PER_STEP}
    for cents, telling in parts[:_MAX_EXTRAS]:
        for step, bonus in list(steps.items()):
            steps.setdefault(step + cents, max(bonus, telling) + _PER_STEP)
    return steps


def _payment_bonus(found: Candidates, balance: Balance) -> float:
    """Cash less change is the total; so is the card's amount. Rounding makes the later total."""
    total = balance.total
    if total is None:
        return 0.0
    bonus = 0.0
    cash = [abs(candidate.cents) for candidate in _likely(found.of("cash"))]
    change = [abs(candidate.cents) for candidate in _likely(found.of("change"))] or [0]
    if any(given - back == total.cents for given in cash for back in (*change, 0)):
        bonus += _PAYMENT_AGREES
    roundings = {abs(rounding.cents) for rounding in _likely(found.of("rounding"))} - {0}
    before = (other.cents for other in _likely(found.of("total")) if abs(other.cents - total.cents) in roundings)
    if total.cents % _COIN == 0 and any(cents % _COIN for cents in before):
        bonus += _ROUNDED
    return bonus
