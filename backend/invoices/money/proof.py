"""Looks for the assignment of printed amounts that adds up, where the one that labels suggest does not.

Totals that stand where nobody expects them are bound to the wrong neighbours; the figures themselves then tell what is
what: base x rate = tax, and bases, taxes, surcharges and withholding make the total.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from itertools import combinations, islice
from typing import NamedTuple

from backend.files.visual_rows import PageRows
from backend.invoices.money.balance import CENTS, Balance
from backend.invoices.money.candidates import Candidate, Candidates, cents_of
from backend.invoices.money.labels import KNOWN_RATES, SURCHARGE_RATES, Kind
from backend.invoices.money.lines import MoneyLines
from backend.invoices.money.taxes import TaxRow, is_included_tax, is_tax, rates_of
from backend.reasons import because
from backend.tables.numbers import Number

_MAX_AMOUNTS = 90  # of a document that are tried: the last ones, where sums stand
_MAX_TOTALS = 12
_MAX_ROWS_OF_A_RATE = 6
_MAX_RATES = 8
_MAX_TAXES = 4  # rates of one document
_MAX_GROUPS = 2000
_MAX_RATE = 27  # percent, of all taxes on a base
_MIN_LABEL = 0.3  # of the total that is proven
_MIN_TAX = 5  # cents: smaller ones agree with anything
_TO_BEGIN_WITH = -0.3  # what labels have to make up for
_OF_PARTS = 0.4  # weight of a base's and a tax's label, beside the total's
_MIN_UNDOUBTED = 1.0
_CONTRADICTS = 4.0  # more than all that labels and sums may add
# Score of a label that says one thing and nothing else: what it names must have a place.
_CLEAR: tuple[tuple[Kind, float], ...] = (("total", 0.75), ("due", 0.75), ("base", 0.8), ("tax", 0.9))
_STEPS: tuple[Kind, ...] = ("paid", "balance", "discount", "charge", "rounding", "withholding")
_COMMON_RATES = KNOWN_RATES - {Decimal(rate) for rate in (0, 1, 2, 3, 12, 24)}
_WITHHOLDING_RATES = frozenset(
    map(Decimal, ("15", "7", "19", "24", "2", "1", "20", "21", "11.5", "25", "18", "9", "35"))
)
_SURCHARGES_OF = {21: ("5.2", "1.75"), 10: ("1.4",), 4: ("0.5",), 5: ("0.62",)}


class Withheld(NamedTuple):
    """An amount that is withheld at a rate."""

    number: Number
    rate: Decimal
    page: PageRows


class Proof(NamedTuple):
    """Amounts that add up, the tax rows they are made of, and what is withheld."""

    balance: Balance
    rows: tuple[TaxRow, ...]
    withheld: Withheld | None


class _Printed(NamedTuple):
    number: Number
    page: PageRows
    cents: int  # without its sign


class _Row(NamedTuple):
    rate: Decimal
    base: _Printed
    tax: _Printed
    surcharge: _Printed | None = None
    surcharge_rate: Decimal = Decimal(0)

    @property
    def taxes(self) -> tuple[_Printed, ...]:
        return (self.tax,) if self.surcharge is None else (self.tax, self.surcharge)

    @property
    def cents(self) -> int:
        return self.base.cents + sum(tax.cents for tax in self.taxes)


class _Group(NamedTuple):
    """Rows of different rates, with what is asked of them again and again."""

    rows: tuple[_Row, ...]
    bases: tuple[_Printed, ...]
    taxes: tuple[_Printed, ...]
    base: int  # sum of the bases in cents
    whole: int  # with the taxes
    used: frozenset[int]  # cents of each part

    @classmethod
    def of(cls, rows: tuple[_Row, ...]) -> _Group:
        bases, taxes = tuple(row.base for row in rows), tuple(tax for row in rows for tax in row.taxes)
        cents = [part.cents for part in (*bases, *taxes)]
        return cls(rows, bases, taxes, sum(cents[: len(bases)]), sum(cents), frozenset(cents))


class _Sum(NamedTuple):
    """Parts that make a total."""

    total: _Printed
    rows: tuple[_Row, ...]
    bases: tuple[_Printed, ...]  # those of the rows first
    taxes: tuple[_Printed, ...]
    withheld: Withheld | None
    bonus: float  # how telling it is that they do


def prove(lines: MoneyLines, found: Candidates, known: Sequence[TaxRow], *, doubted: bool) -> Proof | None:
    """The likeliest assignment in which everything adds up; None where there is none with a likely total.

    Args:
        found: candidates by labels: they say how likely each amount is what it is taken for.
        known: the tax rows that were read.
        doubted: whether what labels suggest contradicts itself; else it only lacks parts, and more is asked of a proof.
    """
    said = {row.rate for row in known} | {rate for label in lines.labelled for rate in map(abs, label.rates)}
    search = _Search(found, known, _amounts(lines), frozenset(rates_of(lines)) | said, frozenset(said))
    best, most = None, 0.0 if doubted else _MIN_UNDOUBTED
    for total in search.totals:
        for option in search.sums(total):
            score = option.bonus + search.likelihood(option)
            if score > most:
                proof = search.proof(option)
                score -= search.unexplained(proof)
                if score > most:
                    best, most = proof, score
    return best


def _amounts(lines: MoneyLines) -> dict[int, _Printed]:
    """The printed amounts by their cents: of equal ones the last."""
    found: list[_Printed] = []
    for page, _, numbers in (*lines.goods, *lines.plain):
        amounts = [n for n in numbers if not n.percent and (n.decimals == CENTS or n.currency) and n.value]
        found += [_Printed(n, page, abs(cents_of(n.value))) for n in amounts]
    last = sorted(found[-_MAX_AMOUNTS:], key=lambda printed: printed.number.value > 0)  # "-10,00" is what was paid
    return {printed.cents: printed for printed in last}


@dataclass(frozen=True)
class _Search:
    found: Candidates
    known: Sequence[TaxRow]
    printed: dict[int, _Printed]
    rates: frozenset[Decimal]
    said: frozenset[Decimal]  # those with a percent sign, or in a row of taxes

    @cached_property
    def totals(self) -> list[_Printed]:
        """Amounts that may be the total: those with a label for it, and the greatest."""
        options = self.found.of("total", "due")
        labelled = [abs(c.cents) for c in options if c.page is not None and c.score >= _MIN_LABEL]
        cents = dict.fromkeys([*labelled, *sorted(self.printed, reverse=True)[:2]])
        return [self.printed[value] for value in cents if value in self.printed][:_MAX_TOTALS]

    @cached_property
    def groups(self) -> list[_Group]:
        """Rows of different rates whose amounts are not each other's."""
        options = {rate: rows for rate in sorted(self.rates, reverse=True) if (rows := self._rows(rate))}
        most = max((total.cents for total in self.totals), default=0)
        grown = _grown(options, list(options)[:_MAX_RATES], (), 2 * most)
        return [_Group.of(rows) for rows in islice(grown, _MAX_GROUPS)]

    def _rows(self, rate: Decimal) -> list[_Row]:
        """Printed bases with their printed taxes at a rate, the greatest first."""
        rows: list[_Row] = []
        if not 0 < rate <= _MAX_RATE or (rate in SURCHARGE_RATES and rate not in KNOWN_RATES):
            return rows
        for cents in sorted(self.printed, reverse=True):
            tax = self._tax(cents, rate)
            itself = tax is not None and tax.number.value == rate and rate not in self.said  # "100,00 22,00" is no 22 %
            if tax is not None and tax.cents != cents and not itself:
                rows.append(_Row(rate, self.printed[cents], tax))
                for extra in map(Decimal, _SURCHARGES_OF.get(int(rate), ())):
                    surcharge = self._tax(cents, extra) if extra in self.rates else None
                    if surcharge is not None:
                        rows.append(_Row(rate, self.printed[cents], tax, surcharge, extra))
        return rows[:_MAX_ROWS_OF_A_RATE]

    def _tax(self, base: int, rate: Decimal) -> _Printed | None:
        exact = int((base * rate / 100).to_integral_value())
        tax = self._near(exact)
        right = tax is not None and is_tax(Decimal(base) / 100, rate, Decimal(tax.cents) / 100)
        return tax if right and exact >= _MIN_TAX else None

    def _near(self, cents: int) -> _Printed | None:
        """The printed amount, to a cent."""
        return next((self.printed[near] for near in (cents, cents - 1, cents + 1) if near in self.printed), None)

    def sums(self, total: _Printed) -> Iterator[_Sum]:
        """The ways in which printed amounts make a total."""
        yield from self._of_rows(total)
        yield from self._of_base_and_taxes(total)
        yield from self._with_tax_inside(total)

    def _of_rows(self, total: _Printed) -> Iterator[_Sum]:
        """Rows as they are, less withholding, or with an untaxed base."""
        for rows, bases, taxes, base, whole, used in self.groups:
            off, slack, bonus = whole - total.cents, CENTS + len(rows), 0.2 * (len(rows) - 1)
            if abs(off) <= slack:
                yield _Sum(total, rows, bases, taxes, None, 1.0 + bonus)
            for free in self._untaxed:
                if abs(off + free.cents) <= slack and free.cents not in used:
                    yield _Sum(total, rows, (*bases, free), taxes, None, 0.6 + bonus)
            if _MIN_TAX < off < base and total.cents not in used:
                for held in self._withheld(base):
                    if abs(off - held.number_cents) <= slack and held.number_cents not in used:
                        yield _Sum(total, rows, bases, taxes, held.withheld, 0.8 + bonus)

    @cached_property
    def _untaxed(self) -> list[_Printed]:
        if Decimal(0) not in self.rates:
            return []
        options = (self.printed.get(abs(c.cents)) for c in self.found.of("base", "gross")[:4] if c.page is not None)
        return [option for option in options if option is not None]

    def _withheld(self, base: int) -> Iterator[_Held]:
        """Printed amounts that are withheld from a base at a printed rate."""
        for rate in self.rates & _WITHHOLDING_RATES:
            printed = self._near(int((base * rate / 100).to_integral_value()))
            if printed is not None and printed.cents >= _MIN_TAX:
                yield _Held(printed.cents, Withheld(printed.number, rate, printed.page))

    def _of_base_and_taxes(self, total: _Printed) -> Iterator[_Sum]:
        """A base with one tax, or with a few that labels name, whatever their rates; less withholding."""
        for cents, base in self.printed.items():
            for held in (None, *self._withheld(cents)):
                missing = total.cents - cents + (0 if held is None else held.number_cents)
                if not _MIN_TAX < missing <= cents * _MAX_RATE / 100 + CENTS:
                    continue
                taxes = (self.printed[missing],) if missing in self.printed else self._named_taxes.get(missing, ())
                used = [cents, total.cents, *(tax.cents for tax in taxes), *([held.number_cents] if held else [])]
                if taxes and len(set(used)) == len(used):
                    known = any(is_tax(Decimal(cents), rate, Decimal(missing)) for rate in _COMMON_RATES)
                    bonus = (0.5 if known or len(taxes) > 1 else 0.25) - (0.1 if held else 0)
                    yield _Sum(total, (), (base,), taxes, held.withheld if held else None, bonus)

    @cached_property
    def _named_taxes(self) -> dict[int, tuple[_Printed, ...]]:
        """Sums of two or three printed amounts that labels call taxes."""
        options = self.found.of("tax", "surcharge")[:6]
        named = [self.printed[abs(c.cents)] for c in options if c.page is not None and abs(c.cents) in self.printed]
        return {sum(t.cents for t in group): group for count in (3, 2) for group in combinations(named, count)}

    def _with_tax_inside(self, total: _Printed) -> Iterator[_Sum]:
        """A total with the printed tax that is in it at a printed rate."""
        named = {abs(c.cents) for c in self.found.of("tax")} | {abs(int(row.amount.value * 100)) for row in self.known}
        rates, whole = self.rates & _COMMON_RATES, abs(total.number.value)
        bases = [abs(c.cents) for c in self.found.of("base") if c.page is not None and c.score >= _MIN_LABEL]
        for cents in named & self.printed.keys():
            if any(CENTS < abs(total.cents - cents - base) < total.cents / 50 for base in bases):
                continue  # the page says another base
            if cents >= _MIN_TAX and any(is_included_tax(whole, rate, Decimal(cents) / 100) for rate in rates):
                yield _Sum(total, (), (), (self.printed[cents],), None, 0.3)

    def _label(self, cents: int, *kinds: Kind) -> float:
        options = self.found.of(*kinds)
        return max((min(c.score, 1.0) for c in options if abs(c.cents) == cents and c.page is not None), default=0.0)

    def likelihood(self, option: _Sum) -> float:
        """What labels say for it, and against it: what is left to pay is no base, what was paid no tax."""
        score = _TO_BEGIN_WITH + self._label(option.total.cents, "total", "due")
        for part in option.bases:
            own, other = self._label(part.cents, "base", "gross"), self._label(part.cents, "due", "paid", "balance")
            score += _OF_PARTS * own - max(0.0, other - own)
        for part in option.taxes:
            own = self._label(part.cents, "tax", "surcharge")
            other = self._label(part.cents, "paid", "withholding", "discount", "balance")
            score += _OF_PARTS * own - max(0.0, other - own)
        return score

    def proof(self, option: _Sum) -> Proof:
        """The balance of a sum, and its tax rows: those that were read where it has none of its own."""
        sign = -1 if option.total.number.value < 0 else 1
        total, tax = self._candidate((option.total,), sign), self._candidate(option.taxes, sign)
        base = Candidate(total.value - tax.value, 0.5, (), None, because("total_without_tax"))
        held = option.withheld
        balance = Balance(
            base=self._candidate(option.bases, sign) if option.bases else base,
            tax=tax,
            total=total,
            withheld=held
            and Candidate(sign * abs(held.number.value), 1.0, (held.number,), held.page, because("withholding")),
            withheld_in_total=held is not None,
            adds_up=True,
        )
        rows = tuple(made for row in option.rows for made in _tax_rows(row))
        if not rows:
            kept = tuple(row for row in self.known if row.holds is not False)
            off = abs(sum((row.amount.value for row in kept), Decimal(0))) - abs(tax.value)
            rows = kept if abs(off) <= Decimal("0.05") else ()
        return Proof(balance, rows, held)

    def _candidate(self, parts: Sequence[_Printed], sign: int) -> Candidate:
        """The printed amount, or the sum of several: printed, too, or computed."""
        cents = sum(part.cents for part in parts)
        whole = parts[0] if len(parts) == 1 else self.printed.get(cents)
        if whole is not None:
            why = because("only_adds_up_so")
            return Candidate(sign * abs(whole.number.value), 0.9, (whole.number,), whole.page, why)
        numbers = tuple(part.number for part in parts)
        return Candidate(sign * Decimal(cents) / 100, 0.9, numbers, None, because("sum_of_taxes"))

    def unexplained(self, proof: Proof) -> float:
        """How much of what is clearly labelled has no place in it: a wrong total is still the total."""
        proven = _starts(row.amount for row in proof.rows)
        broken = [row for row in self.known if row.holds is False and not proven & _starts([row.amount])]
        if any(row.by == "table" or self._is_kept(row, proof.balance) for row in broken):
            return _CONTRADICTS
        balance = proof.balance
        parts = [part for part in (balance.base, balance.tax, balance.total, balance.withheld) if part is not None]
        words = proven | _starts(number for part in parts for number in part.numbers)
        known = self._explained(proof)
        return _CONTRADICTS * sum(
            not words & _starts(option.numbers) and not any(abs(abs(option.cents) - k) <= CENTS for k in known)
            for kind, least in _CLEAR
            for option in self.found.of(kind)
            if option.page is not None and option.score >= least
        )

    def _is_kept(self, row: TaxRow, balance: Balance) -> bool:
        """Whether a proof takes the base and the tax of the only rate, though they disagree; OCR may misread a rate."""
        base, tax, is_read = balance.base, balance.tax, row.page.page.source == "text_layer"
        if not is_read or len(self.known) > 1 or row.base is None or base is None or tax is None:
            return False
        return base.numbers == (row.base,) and _starts(tax.numbers) == _starts([row.amount])

    def _explained(self, proof: Proof) -> set[int]:
        """Amounts that may be printed beside those of a proof: before a discount or withholding, after a payment."""
        balance = proof.balance
        base, tax, total = (
            0 if part is None else abs(part.cents) for part in (balance.base, balance.tax, balance.total)
        )
        held = 0 if balance.withheld is None else abs(balance.withheld.cents)
        steps = {0, held, *(abs(step.cents) for step in self.found.of(*_STEPS)[:6])}
        known = {base, tax, base + tax, held} | {total + sign * step for step in steps for sign in (1, -1)}
        known |= {base + step for step in steps}
        known |= {abs(int(row.base.value * 100)) for row in proof.rows if row.base is not None}
        for gross in self.printed:
            if gross > base and gross - base in self.printed:
                known |= {gross, gross - base}
        return known


class _Held(NamedTuple):
    number_cents: int
    withheld: Withheld


def _grown(
    options: dict[Decimal, list[_Row]], rates: Sequence[Decimal], taken: tuple[_Row, ...], most: int
) -> Iterator[tuple[_Row, ...]]:
    if taken:
        yield taken
    if len(taken) == _MAX_TAXES:
        return
    used = {part.cents for row in taken for part in (row.base, row.tax)}
    for index, rate in enumerate(rates):
        for row in options[rate]:
            if row.base.cents not in used and row.tax.cents not in used and row.cents <= most:
                yield from _grown(options, rates[index + 1 :], (*taken, row), most)


def _tax_rows(row: _Row) -> Iterator[TaxRow]:
    yield TaxRow(row.rate, row.tax.number, row.base.number, row.tax.page, "Tax", "sum")
    if row.surcharge is not None:
        number, page = row.surcharge.number, row.surcharge.page
        yield TaxRow(row.surcharge_rate, number, row.base.number, page, "RE", "sum")


def _starts(numbers: Iterable[Number]) -> set[int]:
    """Where the words of numbers begin."""
    return {word.start for number in numbers for word in number.words}
