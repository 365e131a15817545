"""The rows of taxes of an invoice: rate, base and amount, from tables of taxes, lines and bare rows that agree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import chain, permutations
from typing import Literal

from backend.files.visual_rows import PageRows, VisualRow
from backend.invoices.money.labels import KNOWN_RATES, SURCHARGE_RATES, Kind
from backend.invoices.money.lines import HeaderTable, Labelled, MoneyLines, TableRow
from backend.tables.numbers import Number

TAX_TOLERANCE = Decimal("0.02")  # a row's tax is rounded, and so may its base be
_HUNDRED = Decimal(100)
_MAX_ROWS = 40
_NEAR_ROWS = 3
_MAX_NUMBERS = 12  # of a row that are tried together
_LETTERS_OF_CODE = 3  # "SR  6  120.00  7.20": no goods in the row
_BARE_RATES = KNOWN_RATES | SURCHARGE_RATES
_TOTALS: tuple[Kind, ...] = ("total", "due", "base", "gross", "paid", "balance")
# The printed word -> Type of a row.
_TYPES = (
    ("IGIC", ("igic",)), ("IPSI", ("ipsi",)), ("IVA", ("iva", "lva", "ive")), ("VAT", ("vat",)),
    ("Sales tax", ("sales tax",)), ("GST", ("gst",)), ("HST", ("hst",)), ("SST", ("sst", "service tax")),
    ("TVA", ("tva",)), ("MwSt", ("mwst", "ust", "umsatzsteuer", "mehrwertsteuer", "steuer")),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TaxRow:
    """One rate with its base and its amount."""

    rate: Decimal
    amount: Number
    base: Number | None  # None where it is not printed
    page: PageRows
    type: str  # "IVA", "RE", "VAT", …; "Tax" where nothing tells
    by: Literal["table", "line", "sum", "network"]  # headers, a label, or only because base x rate = amount

    @property
    def is_surcharge(self) -> bool:
        """Recargo de equivalencia."""
        return self.type == "RE"

    @property
    def holds(self) -> bool | None:
        """Whether base x rate = amount; None without a base."""
        return None if self.base is None else is_tax(self.base.value, self.rate, self.amount.value)


@dataclass(frozen=True, slots=True)
class Withholding:
    """Income tax that the customer pays to the state: IRPF, ritenuta d'acconto."""

    amount: Number
    rate: Decimal | None
    base: Number | None
    page: PageRows
    words_of: Labelled | None


def is_tax(base: Decimal, rate: Decimal, amount: Decimal) -> bool:
    """Whether base x rate = amount, within rounding."""
    return abs(base * rate / _HUNDRED - amount) <= TAX_TOLERANCE


def is_included_tax(gross: Decimal, rate: Decimal, amount: Decimal) -> bool:
    """Whether an amount is the tax within a sum that includes it."""
    return rate > 0 and abs(gross * rate / (_HUNDRED + rate) - amount) <= TAX_TOLERANCE


def tax_rows(lines: MoneyLines) -> tuple[TaxRow, ...]:
    """The rows of value-added and sales taxes, each once, as printed from top to bottom."""
    rows: list[TaxRow] = []
    for row in chain(_of_tables(lines), _of_lines(lines), _of_series(lines), _bare(lines)):
        if len(rows) < _MAX_ROWS:
            _add(rows, row)
    return tuple(sorted((row for row in rows if not _is_discount(row, rows)), key=_place))


def _is_discount(row: TaxRow, rows: Sequence[TaxRow]) -> bool:
    """Whether a product without labels is what was taken off before the tax: what it leaves is another row's base."""
    if row.by != "sum" or row.base is None:
        return False
    left = row.base.value - abs(row.amount.value)
    return any(other is not row and other.base is not None and other.base.value == left for other in rows)


def withholding_of(lines: MoneyLines) -> Withholding | None:
    """The withholding, where one is printed."""
    found = [*_withheld_lines(lines), *_withheld_columns(lines)]
    return max(found, key=lambda w: (w.rate is not None, bool(w.amount.value)), default=None)


def _place(row: TaxRow) -> tuple[int, int, float]:
    return row.page.page.number, row.amount.cell.row, row.amount.cell.box.left


def _add(rows: list[TaxRow], row: TaxRow) -> None:
    """Add a row, unless the same one is there; one that adds the base to it takes its place."""
    if row.by == "sum" and any(_shares_amount(old, row) and old.rate != row.rate for old in rows):
        return  # of "10,00  2,00  0,20" below headers the rate is 10, not 2
    for index, old in enumerate(rows):
        if old.rate != row.rate or old.is_surcharge != row.is_surcharge:
            continue
        if old.amount.value == row.amount.value or _shares_amount(old, row):
            if old.base is None and row.base is not None:
                rows[index] = replace(row, type=old.type if row.type == "Tax" else row.type)
            return
        if row.by == "sum" or old.holds or (old.base and row.base is None) or old.by == "table":
            return  # a rate has one row
    rows.append(row)


def _shares_amount(one: TaxRow, other: TaxRow) -> bool:
    shared = {word.start for word in one.amount.words} & {word.start for word in other.amount.words}
    return bool(shared) and one.page is other.page


def type_of(text: str) -> str:
    """The Type of a row by its words; "Tax" where none tells."""
    folded = f" {text.lower().replace('.', '')} "
    for name, words in _TYPES:
        if any(word in folded for word in words):
            return name
    return "Tax"


# ---- tables with headers


def _of_tables(lines: MoneyLines) -> Iterator[TaxRow]:
    for table in lines.tables:
        kinds = {reading.kind for column in table.columns for reading in column.readings}
        text = " ".join(column.match.cell.text for column in table.columns)
        if "tax" in kinds and ("base" in kinds or "rate" in kinds):
            for row in table.rows:
                yield from _table_row(table, row, type_of(text))


def _table_row(table: HeaderTable, row: TableRow, name: str) -> Iterator[TaxRow]:
    """Rate, base and tax below their headers; a surcharge beside them."""
    label = row.label
    if label is not None and not label.rates and any(label.strength(kind) for kind in _TOTALS):
        return
    base, tax, rate = row.number("base"), _tax_number(row), row.number("rate")
    values = [rate.value] if rate is not None else list(label.rates) if label is not None else []
    values += [number.value for _, number in row.numbers if number.percent]
    values += [value for column, _ in row.numbers for value in column.rates]
    if not values:
        values = [n.value for column, n in row.numbers if n is not tax and n is not base and n.value in KNOWN_RATES]
    if not values and base is not None and tax is not None:
        values = [value for value in sorted(KNOWN_RATES) if value and is_tax(base.value, value, tax.value)][-1:]
    if tax is None or not values or tax is base:
        return
    yield TaxRow(values[0], tax, base, table.page, name, "table")
    surcharge, surcharge_rate = row.number("surcharge"), row.number("surcharge_rate")
    if surcharge is None or base is None:
        return
    rates = [surcharge_rate.value] if surcharge_rate is not None else []
    if not surcharge.value and not (rates and rates[0] and is_tax(base.value, rates[0], surcharge.value)):
        return  # a column without a surcharge, not one of less than a cent
    rates += [value for value in SURCHARGE_RATES if is_tax(base.value, value, surcharge.value)]
    if rates:
        yield TaxRow(rates[0], surcharge, base, table.page, "RE", "table")


def _tax_number(row: TableRow) -> Number | None:
    """The amount of tax: below "VAT" may stand the rate ("21 %"), and the amount below "VAT amount"."""
    numbers = [
        number
        for column, number in row.numbers
        if not number.percent and any(reading.kind == "tax" for reading in column.readings)
    ]
    return next((number for number in reversed(numbers) if number.decimals), None) or next(iter(numbers), None)


# ---- lines with a label: "IVA 21 % s/ 59,47: 12,49"


def _of_lines(lines: MoneyLines) -> Iterator[TaxRow]:
    rates = {rate for label in lines.labelled if label.strength("tax") for rate in label.rates}
    loose = set(lines.loose_rates("rate", "tax"))
    for label in lines.labelled:
        surcharge = label.strength("surcharge") > 0
        if label.kind not in ("tax", "surcharge") or label.weight < 0.3:
            continue
        name = "RE" if surcharge else type_of(label.match.cell.text)
        if label.rates:
            row = _line_row(label, label.rates[0], name)
            if row is not None:
                yield row
        elif not rates and len(loose) == 1 and len(label.amounts) == 1:
            yield TaxRow(next(iter(loose)), label.amounts[0], None, label.page, name, "line")


def _line_row(label: Labelled, rate: Decimal, name: str) -> TaxRow | None:
    amounts = label.amounts[:_MAX_NUMBERS]
    if len(amounts) == 1:
        return TaxRow(rate, amounts[0], None, label.page, name, "line")
    for base in amounts:
        for tax in amounts:
            if base is not tax and is_tax(base.value, rate, tax.value):
                return TaxRow(rate, tax, base, label.page, name, "line")
    for gross in amounts:
        for tax in amounts:
            if gross is not tax and is_included_tax(gross.value, rate, tax.value):
                return TaxRow(rate, tax, None, label.page, name, "line")
    if len(amounts) == 2 and abs(amounts[0].value) > abs(amounts[1].value):
        return TaxRow(rate, amounts[1], amounts[0], label.page, name, "line")
    return None


# ---- bases in one row, taxes in another: "BASE  100,00  50,00", "CUOTA  21,00  5,00"


def _of_series(lines: MoneyLines) -> Iterator[TaxRow]:
    """Columns of rates without a header that was read; which rate it is, the amounts tell."""
    series = [label for label in lines.labelled if 1 < len(label.amounts) <= _MAX_NUMBERS][-_MAX_ROWS:]
    for bases, taxes in permutations(series, 2):
        near = bases.page is taxes.page and abs(bases.row - taxes.row) <= _NEAR_ROWS
        if not near or bases.kind != "base" or taxes.kind != "tax" or len(bases.amounts) != len(taxes.amounts):
            continue
        pairs = list(zip(bases.amounts, taxes.amounts, strict=True))
        if len(pairs) > 2 and sum(base.value for base, _ in pairs[:-1]) == pairs[-1][0].value:
            pairs.pop()  # the column of sums
        for base, tax in pairs:
            rates = [rate for rate in KNOWN_RATES if rate and is_tax(base.value, rate, tax.value)]
            if tax.value and rates:
                rate = min(rates, key=lambda rate: abs(base.value * rate / _HUNDRED - tax.value))
                yield TaxRow(rate, tax, base, bases.page, type_of(taxes.match.cell.text), "table")


# ---- rows without labels that agree: "21 %   36,06   7,57"


def _bare(lines: MoneyLines) -> Iterator[TaxRow]:
    for page, row, numbers in lines.plain:
        if 3 <= len(numbers) <= _MAX_NUMBERS or (len(numbers) == 2 and any(n.percent for n in numbers)):
            yield from _bare_row(page, numbers, row)


def _bare_row(page: PageRows, numbers: Sequence[Number], row: VisualRow) -> Iterator[TaxRow]:
    name = type_of(row.text)
    codes = all(sum(map(str.isalpha, word.text)) <= _LETTERS_OF_CODE for word in row.words)
    amounts = [n for n in numbers if not n.percent and (n.decimals == 2 or n.currency)]
    rates = [n for n in numbers if n.percent or (codes and n.currency is None and n.value in _BARE_RATES)]
    for rate in rates:
        if not rate.value:
            continue
        for base in amounts:
            for tax in amounts:
                if len({id(rate), id(base), id(tax)}) < 3 or abs(tax.value) <= TAX_TOLERANCE:
                    continue
                if is_tax(base.value, rate.value, tax.value):
                    surcharge = rate.value in SURCHARGE_RATES and rate.value not in KNOWN_RATES
                    yield TaxRow(rate.value, tax, base, page, "RE" if surcharge else name, "sum")
                elif rate.percent and is_included_tax(base.value, rate.value, tax.value):
                    yield TaxRow(rate.value, tax, None, page, name, "sum")


# ---- withholding


def _withheld_lines(lines: MoneyLines) -> Iterator[Withholding]:
    loose = lines.loose_rates("withholding", "withholding_rate")
    for label in lines.labelled:
        if not label.strength("withholding") or label.weight < 0.3:
            continue
        amounts = label.amounts[:_MAX_NUMBERS]
        rate = next(iter(label.rates or loose), None)
        base = None
        amount = min(amounts, key=lambda n: abs(n.value))
        if rate is not None and len(amounts) > 1:
            pairs = (
                (b, t) for b in amounts for t in amounts if b is not t and is_tax(abs(b.value), rate, abs(t.value))
            )
            base, amount = next(pairs, (None, amount))
        yield Withholding(amount, rate, base, label.page, label)


def _withheld_columns(lines: MoneyLines) -> Iterator[Withholding]:
    for table in lines.tables:
        for row in table.rows:
            number = row.number("withholding")
            if number is None or number.percent:
                continue
            rate = row.number("withholding_rate")
            rates = (
                [rate.value]
                if rate is not None
                else [value for column, other in row.numbers if other is number for value in column.rates]
            )
            yield Withholding(number, next(iter(rates), None), None, table.page, None)


# ---- bases of lines that print none


def with_bases(rows: Sequence[TaxRow], lines: MoneyLines, base: Number | None) -> tuple[TaxRow, ...]:
    """The rows with the bases that are printed elsewhere.

    Args:
        base: the printed base of all taxes, which a lone rate applies to whether or not it agrees.
    """
    lone = sum(not row.is_surcharge for row in rows) == 1
    return tuple(row if row.base is not None else _with_base(row, lines, base if lone else None) for row in rows)


def _with_base(row: TaxRow, lines: MoneyLines, base: Number | None) -> TaxRow:
    if not row.rate:
        return replace(row, base=base)
    options = [number for label in lines.labelled if label.page is row.page for number in label.amounts]
    options += [base] if base is not None else []
    for number in options:
        if abs(number.value) > abs(row.amount.value) and is_tax(number.value, row.rate, row.amount.value):
            return replace(row, base=number)
    if base is not None and not is_included_tax(base.value, row.rate, row.amount.value):
        return replace(row, base=base)
    return row


def only_row(
    lines: MoneyLines, base: Decimal, printed: Number | None, tax: Number, page: PageRows
) -> tuple[TaxRow, ...]:
    """The row of the one printed rate that makes the settled tax of the settled base; none where several do."""
    rates = {rate for rate in rates_of(lines) if rate and is_tax(base, rate, tax.value)}
    named = type_of(" ".join(match.cell.text for match, _ in lines.loose))
    return (TaxRow(rates.pop(), tax, printed, page, named, "sum"),) if len(rates) == 1 else ()


def rates_of(lines: MoneyLines) -> Iterator[Decimal]:
    """The rates that are printed, with a percent sign or as a number that may be one."""
    for _, _, numbers in (*lines.goods, *lines.plain):
        for number in numbers:
            lead = number.digits.partition(" ")[0]
            if number.percent or abs(number.value) in KNOWN_RATES:
                yield abs(number.value)
            elif lead != number.digits and lead.isdigit():
                yield Decimal(lead)
    for label in lines.labelled:
        yield from map(abs, label.rates)
    for _, rates in lines.loose:
        yield from map(abs, rates)


def whole_rows(rows: Sequence[TaxRow], base: Decimal, tax: Decimal) -> tuple[TaxRow, ...]:
    """Rows that make the settled tax of the settled base, where these do; none where they do not.

    Args:
        rows: the base of one that prints none follows from its rate, the rate of one without from what others leave.
    """
    unrated = [row for row in rows if not row.rate and row.amount.value]
    left = base - sum(_base_of(row) for row in rows if row not in unrated)
    for row in unrated if len(unrated) == 1 else ():
        rate = next((rate for rate in sorted(KNOWN_RATES) if is_tax(left, rate, row.amount.value)), row.rate)
        rows = [replace(other, rate=rate, by="sum") if other is row else other for other in rows]
        left -= left if rate else 0
    slack = sum((_HUNDRED * TAX_TOLERANCE / row.rate for row in rows if row.rate), TAX_TOLERANCE)
    off = abs(sum(row.amount.value for row in rows) - tax)
    is_whole = off <= TAX_TOLERANCE and abs(left) <= slack
    is_taxed = all(row.rate or not row.amount.value for row in rows)  # at no rate is no tax: a figure that none is on
    return tuple(rows) if is_whole and is_taxed and all(row.holds is not False for row in rows) else ()


def _base_of(row: TaxRow) -> Decimal:
    if row.base is not None:
        return row.base.value
    return row.amount.value * _HUNDRED / row.rate if row.rate else Decimal(0)
