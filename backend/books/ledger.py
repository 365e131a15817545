"""Ledger rows of documents, what stands twice among them, which numbers of a series are missing, and sums.

Knows documents as the wire has them (an item of ``documents``: pages, kind, fields, valid), corrected or not; no store.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from backend.text.patterns.pattern import compact, plain_tax_id

STATEMENT = "bank_statement"
BOOKED = frozenset({"invoice", "credit_note", "receipt", None})  # kinds; None: whatever a person gave a total or number
ZERO = Decimal(0)
SURCHARGE = "RE"  # the type of recargo de equivalencia among the taxes of an invoice
AMOUNTS = ("base", "tax", "surcharge", "withholding", "total", "amount_due")
_DECIMAL = re.compile(r"-?\d{1,15}(?:\.\d{1,10})?")
_YEAR = re.compile(r"(?:19|20)\d\d")
# Between two numbers of one series there are at most so many others: more is another year's or another shop's.
_WIDEST_GAP = 20
_MIN_NUMBERS = 3  # that show that a supplier counts for us alone
_MAX_DIGITS = 18  # of a counter


@dataclass(frozen=True, slots=True)
class BookedFile:
    """A stored file as books see it."""

    id: str
    name: str
    documents: Sequence[Mapping[str, Any]]  # of the wire's answer
    chosen: frozenset[int] | None = None  # indices of those that are meant; None: all


@dataclass(frozen=True, slots=True)
class DocumentRef:
    """Which document of which file a row is of."""

    document_id: str
    index: int  # from 0, in the file
    filename: str
    pages: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TaxLine:
    """What an invoice has of one rate of tax, with the equivalence surcharge on the same base."""

    type: str | None  # "IVA", "IGIC", "VAT", …
    rate: Decimal | None  # per cent
    base: Decimal | None
    amount: Decimal | None
    surcharge_rate: Decimal | None = None
    surcharge: Decimal | None = None


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """One document. What it does not say is None; dates are as they stand there where they are none."""

    source: DocumentRef
    state: str  # "to_review" or "confirmed"
    kind: str | None
    date: str | None  # ISO 8601; of a statement the last day of its period
    due_date: str | None
    number: str | None
    supplier: str | None  # of a statement its account's holder
    tax_id: str | None
    customer: str | None
    customer_tax_id: str | None
    currency: str | None
    base: Decimal | None
    taxes: tuple[TaxLine, ...]
    tax: Decimal | None  # surcharge included
    surcharge: Decimal | None
    withholding_rate: Decimal | None
    withholding: Decimal | None
    total: Decimal | None
    amount_due: Decimal | None
    totals_agree: bool | None  # None where nothing could be checked
    duplicates: int = 0  # other rows with its supplier, number and total
    duplicate_of: DocumentRef | None = None  # the first of them; None for the first itself

    @property
    def is_bookable(self) -> bool:
        """Whether it belongs into a book of invoices: statements, letters and empty pages do not."""
        return self.kind in BOOKED and (self.total is not None or self.number is not None)


@dataclass(frozen=True, slots=True)
class MissingNumbers:
    """Numbers that a supplier's series leaves out between two that are there."""

    supplier: str | None
    tax_id: str | None
    first: str  # of the run
    last: str
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sums:
    """What rows in one currency, or of one supplier in it, come to."""

    currency: str | None
    documents: int
    amounts: Mapping[str, Decimal]  # by name, of AMOUNTS
    taxes: tuple[TaxLine, ...]  # one for each type and rate


def value_of(fields: Mapping[str, Any], *names: str) -> str | None:
    """The value of the first of these fields that has one."""
    for name in names:
        value = fields[name].get("value") if name in fields else None
        if isinstance(value, str) and value.strip():
            return value
    return None


def list_of(fields: Mapping[str, Any], name: str) -> Sequence[Mapping[str, Any]]:
    """The rows of a list of goods, taxes or movements."""
    rows = fields[name].get("value") if name in fields else None
    return rows if isinstance(rows, list) else ()


def number_of(value: str | None) -> Decimal | None:
    """A decimal of the wire; None for what is none."""
    return Decimal(value) if value is not None and _DECIMAL.fullmatch(value) else None


def ledger_rows(file: BookedFile) -> Iterator[LedgerRow]:
    """A row for each document of a file that is meant."""
    for index, document in enumerate(file.documents):
        if file.chosen is None or index in file.chosen:
            yield _row(DocumentRef(file.id, index, file.name, tuple(document["pages"])), document)


def _row(source: DocumentRef, document: Mapping[str, Any]) -> LedgerRow:
    fields = document["fields"]

    def amount(*names: str) -> Decimal | None:
        return number_of(value_of(fields, *names))

    base, tax, surcharge = amount("SubTotal"), amount("TotalTax"), amount("EquivalenceSurcharge")
    return LedgerRow(
        source=source,
        state="confirmed" if document.get("confirmed") else "to_review",
        kind=document["kind"],
        date=value_of(fields, "InvoiceDate", "TransactionDate", "PeriodEnd"),
        due_date=value_of(fields, "DueDate"),
        number=value_of(fields, "InvoiceId"),
        supplier=value_of(fields, "VendorName", "MerchantName", "AccountHolder"),
        tax_id=value_of(fields, "VendorTaxId"),
        customer=value_of(fields, "CustomerName"),
        customer_tax_id=value_of(fields, "CustomerTaxId"),
        currency=value_of(fields, "CurrencyCode"),
        base=base,
        taxes=_taxes(fields, base, tax, surcharge),
        tax=tax,
        surcharge=surcharge,
        withholding_rate=amount("WithholdingRate"),
        withholding=amount("WithholdingAmount"),
        total=amount("InvoiceTotal", "Total"),
        amount_due=amount("AmountDue"),
        totals_agree=document["valid"]["totals"],
    )


def _taxes(
    fields: Mapping[str, Any], base: Decimal | None, tax: Decimal | None, surcharge: Decimal | None
) -> tuple[TaxLine, ...]:
    """The taxes by rate, each surcharge beside the tax on its base; one without a rate where none is told."""
    lines = [_tax_line(row) for row in list_of(fields, "TaxDetails")]
    taxes = [line for line in lines if line.type != SURCHARGE]
    if not taxes:
        own = tax if tax is None or surcharge is None else tax - surcharge
        return () if base is None and tax is None else (TaxLine(None, None, base, own, None, surcharge),)
    if len(taxes) == 1 and taxes[0].base is None:
        taxes = [replace(taxes[0], base=base)]
    for line in lines:
        if line.type == SURCHARGE:
            _put_beside(taxes, line)
    return tuple(taxes)


def _tax_line(row: Mapping[str, Any]) -> TaxLine:
    rate, base, amount = (number_of(value_of(row, name)) for name in ("Rate", "Base", "Amount"))
    return TaxLine(value_of(row, "Type"), rate, base, amount)


def _put_beside(taxes: list[TaxLine], surcharge: TaxLine) -> None:
    free = [index for index, tax in enumerate(taxes) if tax.surcharge is None]
    same = [index for index in free if taxes[index].base == surcharge.base]
    if same or len(free) == 1:
        at = (same or free)[0]
        taxes[at] = replace(taxes[at], surcharge_rate=surcharge.rate, surcharge=surcharge.amount)
    else:
        taxes.append(TaxLine(None, None, None, None, surcharge.rate, surcharge.amount))


def supplier_key(row: LedgerRow) -> str | None:
    """What tells a supplier from others: its tax id, else its name; None where a document names none."""
    if row.tax_id is not None:
        return plain_tax_id(row.tax_id)
    return None if row.supplier is None else compact(row.supplier)


def mark_duplicates(rows: Sequence[LedgerRow]) -> list[LedgerRow]:
    """The rows with those marked that have supplier, number, total and currency of another, in their order."""
    same: dict[tuple[str, str, Decimal, str | None], list[LedgerRow]] = defaultdict(list)
    for row in rows:
        if (key := _duplicate_key(row)) is not None:
            same[key].append(row)
    return [_marked(row, same.get(_duplicate_key(row), [])) for row in rows]  # type: ignore[arg-type]


def _duplicate_key(row: LedgerRow) -> tuple[str, str, Decimal, str | None] | None:
    supplier = supplier_key(row)
    if supplier is None or row.number is None or row.total is None or not row.is_bookable:
        return None
    return supplier, compact(row.number), row.total, row.currency


def _marked(row: LedgerRow, same: Sequence[LedgerRow]) -> LedgerRow:
    if len(same) < 2:
        return row
    first = same[0].source
    return replace(row, duplicates=len(same) - 1, duplicate_of=None if first == row.source else first)


def missing_numbers(rows: Iterable[LedgerRow]) -> list[MissingNumbers]:
    """What the series of each supplier leave out, by supplier and number.

    A run of a series has three numbers at least, no gap over twenty, and more numbers there than missing: who sells to
    others too leaves out most numbers, which tells nothing.
    """
    series: dict[tuple[str, str, str], dict[int, LedgerRow]] = defaultdict(dict)
    for row in rows:
        supplier = supplier_key(row)
        if supplier is not None and row.number is not None and row.is_bookable and (parts := _counter(row.number)):
            prefix, digits, suffix = parts
            series[supplier, prefix, suffix].setdefault(int(digits), row)
    return [gap for key in sorted(series) for gap in _gaps(series[key])]


def _counter(number: str) -> tuple[str, str, str] | None:
    """What stands before the digits that count, these, and what stands behind: the last digits that are no year."""
    groups = list(re.finditer(r"\d+", number))
    if not groups:
        return None
    counts = groups[-1]
    if len(groups) > 1 and _YEAR.fullmatch(counts.group()):
        counts = groups[-2]
    if len(counts.group()) > _MAX_DIGITS:
        return None
    return number[: counts.start()], counts.group(), number[counts.end() :]


def _gaps(numbers: Mapping[int, LedgerRow]) -> Iterator[MissingNumbers]:
    run: list[int] = []
    for number in [*sorted(numbers), None]:
        if run and (number is None or number - run[-1] > _WIDEST_GAP + 1):
            yield from _gaps_of_run(run, numbers)
            run = []
        if number is not None:
            run.append(number)


def _gaps_of_run(run: Sequence[int], rows: Mapping[int, LedgerRow]) -> Iterator[MissingNumbers]:
    absent = run[-1] - run[0] + 1 - len(run)
    if len(run) < _MIN_NUMBERS or not 0 < absent < len(run):
        return
    first, last = rows[run[0]], rows[run[-1]]
    prefix, digits, suffix = _counter(first.number or "") or ("", "", "")
    width = len(digits) if digits.startswith("0") else 1
    missing = (f"{prefix}{number:0{width}d}{suffix}" for number in range(run[0], run[-1]) if number not in rows)
    yield MissingNumbers(first.supplier, first.tax_id, first.number or "", last.number or "", tuple(missing))


def sums_by_currency(rows: Iterable[LedgerRow]) -> list[Sums]:
    """The sums of bookable rows, the currency of most documents first."""
    by_currency: dict[str | None, list[LedgerRow]] = defaultdict(list)
    for row in rows:
        if row.is_bookable:
            by_currency[row.currency].append(row)
    return sorted((sums_of(one) for one in by_currency.values()), key=lambda sums: -sums.documents)


def sums_of(rows: Sequence[LedgerRow]) -> Sums:
    """The sums of rows of one currency, of which there is one at least."""
    amounts = {name: sum((getattr(row, name) or ZERO for row in rows), ZERO) for name in AMOUNTS}
    by_rate: dict[tuple[str | None, Decimal | None], list[TaxLine]] = defaultdict(list)
    for row in rows:
        for line in row.taxes:
            by_rate[line.type, line.rate].append(line)
    taxes = [_tax_sum(key, by_rate[key]) for key in sorted(by_rate, key=lambda key: (key[0] or "", key[1] or ZERO))]
    return Sums(rows[0].currency, len(rows), amounts, tuple(taxes))


def _tax_sum(key: tuple[str | None, Decimal | None], lines: Sequence[TaxLine]) -> TaxLine:
    base, amount, surcharge = (
        sum((getattr(line, name) or ZERO for line in lines), ZERO) for name in ("base", "amount", "surcharge")
    )
    return TaxLine(*key, base, amount, None, surcharge)
