"""Which printed amounts may be the base, the tax, the total and so on, and how surely by their labels alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from itertools import product, zip_longest

from backend.files.visual_rows import PageRows
from backend.invoices.money.labels import Kind
from backend.invoices.money.lines import HeaderTable, Labelled, MoneyLines, TableRow
from backend.invoices.money.taxes import TaxRow, is_tax
from backend.reasons import because
from backend.tables.numbers import Number

_MOST = 6  # candidates of a kind that are tried together
_SUM_OF_ROWS = 0.9  # where rates stand on lines of their own
_SUM_BESIDE_TABLE = 0.5  # where a table of taxes may repeat what is printed
_PART = 0.4  # one rate of several is not the whole
_REPEATED = 0.1  # a value that is printed more than once
_LATER = 0.15  # the last page's end over the first one's beginning
_READ_TOTAL = 0.4
_SUM_OF_ITEMS = 0.3
_SURE = 0.75  # score of a label that is right
_MAX_PARTS = 8
_BY_ARITHMETIC = 0.45
_PAID_AS_TOTAL = 0.6
_DUE_AS_TOTAL = 0.6  # "Amount due" alone is the total, too
# A row of totals begins with one of these.
_TOTAL_HEADINGS: tuple[Kind, ...] = ("total", "due")


def cents_of(value: Decimal) -> int:
    """An amount in hundredths."""
    return int((value * 100).to_integral_value())


@dataclass(frozen=True)
class Candidate:
    """A value that an amount of a kind may have."""

    value: Decimal
    score: float
    numbers: tuple[Number, ...]  # as printed; those it is the sum of where it is computed
    page: PageRows | None  # of the numbers; None where it is computed
    why: str

    @cached_property
    def cents(self) -> int:
        """The value in hundredths."""
        return cents_of(self.value)


@dataclass(slots=True)
class Candidates:
    """By kind, best first, each value once."""

    by_kind: dict[Kind, list[Candidate]]

    def of(self, *kinds: Kind) -> list[Candidate]:
        """All of some kinds, best first."""
        found = [candidate for kind in kinds for candidate in self.by_kind.get(kind, ())]
        return sorted(found, key=lambda candidate: -candidate.score)


def candidates(
    pages: Sequence[PageRows],
    lines: MoneyLines,
    rows: Sequence[TaxRow],
    items: Decimal | None,
    learned: Sequence[tuple[Kind, Candidate]] = (),
) -> Candidates:
    """The candidates of each kind, by labels and tables, and the sums of tax rows and lines.

    Args:
        items: sum of the lines, where they were found.
        learned: what the network takes amounts for.
    """
    found: dict[Kind, list[Candidate]] = {}
    untaxed = {rate for label in lines.labelled if label.kind in ("base", "charge") for rate in label.rates if not rate}
    several = len({row.rate for row in rows if not row.is_surcharge} | untaxed) > 1
    places = {page.page.number: index for index, page in enumerate(pages)}
    for kind, candidate in [*_of_labels(_not_carried(lines), several), *_of_tables(lines), *learned]:
        found.setdefault(kind, []).append(_placed(candidate, places))
    for kind, candidate in _sums(rows, found):
        if not _is_printed(kind, rows, found.get(kind, ())):
            found.setdefault(kind, []).append(candidate)
    if items is not None and not any(base.score >= _SURE for base in found.get("base", ())):
        found.setdefault("base", []).append(Candidate(items, _SUM_OF_ITEMS, (), None, because("sum_of_lines")))
    for candidate in (*_bases_of_rates(lines, rows), *_untaxed_bases(lines)):
        found.setdefault("base", []).append(candidate)
    for kind, candidate in _by_arithmetic(lines, found):
        found.setdefault(kind, []).append(candidate)
    for paid in _paid(found):
        found.setdefault("total", []).append(paid)
    for due in found.get("due", ()):
        found.setdefault("total", []).append(replace(due, score=_DUE_AS_TOTAL * due.score))
    return Candidates({kind: _best(options) for kind, options in found.items()})


def _not_carried(lines: MoneyLines) -> Iterable[Labelled]:
    """The labels without carried sums: the last of a page, printed again on the next above a greater one."""
    for label, later in zip_longest(lines.labelled, lines.labelled[1:]):
        ends_page = later is not None and later.page is not label.page
        if not (ends_page and len(label.amounts) == 1 and label.strength("base") and _goes_on(lines, label, later)):
            yield label


def _goes_on(lines: MoneyLines, last: Labelled, later: Labelled) -> bool:
    carried = last.amounts[0].value
    alone = [n[0].value for page, _, n in (*lines.goods, *lines.plain) if page is later.page and len(n) == 1]
    below = [number.value for label in lines.labelled if label.page is later.page for number in label.amounts]
    return carried in alone and max(below, default=carried) > carried


def _bases_of_rates(lines: MoneyLines, rows: Sequence[TaxRow]) -> Iterable[Candidate]:
    """The only printed amount that a tax of a known rate is on, whatever its label says: "Derechos  310,00"."""
    taxed = [row for row in rows if not row.is_surcharge]
    if len(taxed) != 1 or not taxed[0].rate or taxed[0].base is not None:
        return
    printed = {
        cents_of(number.value): (page, number)
        for page, _, numbers in (*lines.plain, *lines.goods)
        for number in numbers
        if _is_money(number) and is_tax(number.value, taxed[0].rate, taxed[0].amount.value)
    }
    if len(printed) == 1:
        page, number = next(iter(printed.values()))
        yield Candidate(number.value, _BY_ARITHMETIC, (number,), page, because("rate_makes_tax"))


def _untaxed_bases(lines: MoneyLines) -> Iterable[Candidate]:
    """The amount right above a tax of nothing, and the same again below it: "Importe  200,00", "IVA  0,00", "Total"."""
    printed: dict[tuple[int, int], Labelled] = {}
    for label in lines.labelled:
        if len(label.amounts) == 1 and _is_money(label.amounts[0]):
            printed[label.page.page.number, label.row] = label
    for (page, row), tax in printed.items():
        above, below = printed.get((page, row - 1)), printed.get((page, row + 1))
        if above is None or below is None or tax.amounts[0].value or not tax.strength("tax"):
            continue
        if above.amounts[0].value == below.amounts[0].value and below.strength("total"):
            yield Candidate(above.amounts[0].value, _BY_ARITHMETIC, above.amounts, above.page, because("arithmetic"))


def _by_arithmetic(lines: MoneyLines, found: dict[Kind, list[Candidate]]) -> Iterable[tuple[Kind, Candidate]]:
    """Printed sums under an unknown label: base + tax is the total, less withholding and payments what is due."""
    printed: dict[int, tuple[PageRows, Number]] = {}
    for page, _, numbers in lines.plain:
        printed.update({cents_of(number.value): (page, number) for number in numbers if _is_money(number)})

    def sums(kinds: Sequence[Kind], parts: Sequence[Kind], sign: int) -> Iterable[Candidate]:
        wholes = [whole for kind in kinds for whole in _best(found.get(kind, ()))[:3]]
        others = [other for kind in parts for other in _best(found.get(kind, ()))[:3]]
        for whole, other in product(wholes, others):
            cents = whole.cents + sign * (abs(other.cents) if sign < 0 else other.cents)
            if other.cents and cents in printed:
                page, number = printed[cents]
                score = _BY_ARITHMETIC * min(whole.score, other.score, 1.0)
                yield Candidate(number.value, score, (number,), page, because("arithmetic"))

    yield from (("total", candidate) for candidate in sums(["base"], ["tax"], 1))
    if not any(base.score >= _SURE for base in found.get("base", ())):
        yield from (("base", candidate) for candidate in sums(["total"], ["tax"], -1))
    if not any(tax.score >= _SURE for tax in found.get("tax", ())):
        yield from (("tax", candidate) for candidate in sums(["total"], ["base"], -1))
    due = sums(["total"], ["withholding", "paid"], -1)
    yield from (("due", candidate) for candidate in due if candidate.value)  # any 0.00 would do where all is paid


def _paid(found: dict[Kind, list[Candidate]]) -> Iterable[Candidate]:
    """A receipt's total from what was paid, where none is read: the card's amount, or cash less change."""
    if any(total.score >= _READ_TOTAL and total.value for total in found.get("total", ())):
        return
    changes: list[Candidate | None] = [*found.get("change", ())]
    for cash, change in product(found.get("cash", ()), changes or [None]):
        if not cash.value:
            continue
        if change is None or not change.value:
            yield replace(cash, score=_PAID_AS_TOTAL * cash.score)
        elif abs(cash.value) > abs(change.value):
            numbers = (*cash.numbers, *change.numbers)
            value = abs(cash.value) - abs(change.value)
            yield Candidate(
                value, _PAID_AS_TOTAL * min(cash.score, change.score), numbers, None, because("cash_less_change")
            )


def _placed(candidate: Candidate, places: dict[int, int]) -> Candidate:
    """Sums stand at the end: of two totals the later one is likelier."""
    page = candidate.page
    if page is None or not page.rows:
        return candidate
    number = candidate.numbers[0]
    order = (places[page.page.number] + number.cell.row / len(page.rows)) / len(places)
    return replace(candidate, score=candidate.score + _LATER * order * min(candidate.score, 1.0))


def _best(options: Iterable[Candidate]) -> list[Candidate]:
    """Each value once, as its surest candidate, a little surer where it is printed repeatedly."""
    by_value: dict[int, Candidate] = {}
    for option in options:
        old = by_value.get(option.cents)
        if old is None:
            by_value[option.cents] = option
        else:
            best = max(old, option, key=lambda candidate: (candidate.page is not None, candidate.score))
            score = max(old.score, option.score) + _REPEATED * min(old.score, option.score)
            by_value[option.cents] = replace(best, score=score)
    return sorted(by_value.values(), key=lambda candidate: -candidate.score)[:_MOST]


def _of_labels(labelled: Iterable[Labelled], several: bool) -> Iterable[tuple[Kind, Candidate]]:
    for label in labelled:
        if not label.amounts:
            continue
        for kind, strength in label.readings:
            score = strength * label.weight
            if several and label.rates and kind in ("base", "tax"):
                score *= _PART
            yield from _of_label(label, kind, score)


def _of_label(label: Labelled, kind: Kind, score: float) -> Iterable[tuple[Kind, Candidate]]:
    def candidate(number: Number, factor: float = 1.0) -> Candidate:
        return Candidate(
            number.value,
            factor * score,
            (number,),
            label.page,
            because("money_label", position="beside", label=_text(label)),
        )

    amounts = label.amounts
    if len(amounts) == 1:
        yield kind, candidate(amounts[0])
        if label.page.page.source == "ocr" and _lost_its_mark(amounts[0]):
            yield kind, replace(candidate(amounts[0]), value=amounts[0].value / 100)
    elif kind in ("total", "due") and len(amounts) == 3 and amounts[0].value + amounts[1].value == amounts[2].value:
        yield kind, candidate(amounts[2])
        yield "base", candidate(amounts[0], 0.7)
        yield "tax", candidate(amounts[1], 0.7)
    elif len(amounts) > 2 and sum(number.value for number in amounts[:-1]) == amounts[-1].value:
        yield kind, candidate(amounts[-1], 0.9)  # one of each rate, and their sum
    elif label.rates and len(amounts) == 2 and kind in ("tax", "surcharge", "withholding"):
        smaller = min(amounts, key=lambda number: abs(number.value))
        yield kind, candidate(smaller)
    elif len(amounts) <= 3:
        for index, number in enumerate(reversed(amounts)):
            yield kind, candidate(number, 0.3 - 0.1 * index)


def _lost_its_mark(number: Number) -> bool:
    """Whether OCR may have missed the decimal mark: "60500" for "605,00"."""
    return not number.decimals and number.digits.isdigit() and len(number.digits) > 2


def _text(label: Labelled) -> str:
    return " ".join(word.text for word in label.match.words).rstrip(":")


def _of_tables(lines: MoneyLines) -> Iterable[tuple[Kind, Candidate]]:
    for table in lines.tables:
        sums = [row for row in table.rows if _is_sum(row)]
        data = [row for row in table.rows if row not in sums]
        for row in sums or (data if len(data) == 1 else ()):
            yield from _of_row(row, table)
        if not sums and len(data) > 1:
            for kind in _TOTAL_HEADINGS:
                numbers = [row.number(kind) for row in data]
                printed = [number for number in numbers if number is not None and _is_money(number)]
                if len(printed) == 1:
                    yield kind, Candidate(printed[0].value, 0.9, (printed[0],), table.page, because("below_header"))


def _is_sum(row: TableRow) -> bool:
    return row.label is not None and any(row.label.strength(kind) for kind in _TOTAL_HEADINGS)


def _is_money(number: Number) -> bool:
    return not number.percent and (number.decimals > 0 or number.currency is not None)


def _of_row(row: TableRow, table: HeaderTable) -> Iterable[tuple[Kind, Candidate]]:
    for column, number in row.numbers:
        if not _is_money(number):
            continue
        text = " ".join(word.text for word in column.match.words)
        for kind, strength in column.readings:
            yield (
                kind,
                Candidate(
                    number.value,
                    0.95 * strength,
                    (number,),
                    table.page,
                    because("money_label", position="below", label=text),
                ),
            )


def _sums(rows: Sequence[TaxRow], found: dict[Kind, list[Candidate]]) -> Iterable[tuple[Kind, Candidate]]:
    """The sums of the tax rows, and of a tax and its surcharge."""
    if rows:
        by_lines = all(row.by == "line" for row in rows)
        score = _SUM_OF_ROWS if by_lines or len(rows) > 1 else _SUM_BESIDE_TABLE
        amounts = tuple(row.amount for row in rows)
        yield "tax", _sum(amounts, score, because("sum_of_taxes"))
        bases = tuple(row.base for row in rows if row.base is not None and not row.is_surcharge)
        if len(bases) == sum(not row.is_surcharge for row in rows):
            yield "base", _sum(bases, _SUM_BESIDE_TABLE, because("sum_of_taxes"))
    if not any(row.is_surcharge for row in rows):
        for tax, surcharge in product(_best(found.get("tax", ()))[:3], _best(found.get("surcharge", ()))[:2]):
            numbers = (*tax.numbers, *surcharge.numbers)
            yield "tax", _sum(numbers, (tax.score + surcharge.score) / 2, because("tax_and_surcharge"))


def _is_printed(kind: Kind, rows: Sequence[TaxRow], options: Iterable[Candidate]) -> bool:
    """Whether the sum of the tax rows is printed, rightly or wrongly: a good label whose amount is no part of it."""
    parts = part_sums(row.amount if kind == "tax" else row.base for row in rows)
    return any(option.score >= _SURE and not any(abs(option.cents - part) <= 1 for part in parts) for option in options)


def part_sums(numbers: Iterable[Number | None]) -> set[int]:
    """All sums of some of a few numbers but not of all, in cents."""
    values = [cents_of(number.value) for number in numbers if number is not None][:_MAX_PARTS]
    sums = {0}
    for value in values:
        sums |= {known + value for known in sums}
    return sums - {0, sum(values)}


def _sum(numbers: tuple[Number, ...], score: float, why: str) -> Candidate:
    return Candidate(sum((number.value for number in numbers), Decimal(0)), score, numbers, None, why)
