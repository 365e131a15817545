"""What a person may write into the fields of a document, and what can be checked of it. Pure; no record of a file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from typing import Literal

from stdnum import iban

from backend.errors import InvalidField, TooLarge
from backend.invoices.money import balance
from backend.invoices.money.balance import Equation, are_equal, totals_hold
from backend.invoices.parties.tax_ids import is_valid
from backend.invoices.records import TAX_IDS, Validity
from backend.text.patterns.pattern import compact

FieldType = Literal["date", "time", "number", "id", "currency", "text"]
TEXT_CHARS, MAX_ROWS = 2_000, 1_000
_ID_CHARS = 64

# The columns of lists by name.
LIST_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "Items": ("Description", "ProductCode", "Unit", "Quantity", "UnitPrice", "Discount", "TaxRate", "Amount"),
    "TaxDetails": ("Type", "Rate", "Base", "Amount"),
    "Movements": ("Date", "ValueDate", "Description", "Amount", "Balance"),
}
_TYPES: Mapping[FieldType, tuple[str, ...]] = {
    "date": ("InvoiceDate", "DueDate", "TransactionDate", "PeriodStart", "PeriodEnd", "Date", "ValueDate"),
    "time": ("TransactionTime",),
    "number": (
        "SubTotal", "TotalTax", "TotalDiscount", "InvoiceTotal", "AmountDue", "WithholdingRate", "WithholdingAmount",
        "EquivalenceSurcharge", "Total", "Tip", "OpeningBalance", "ClosingBalance", "Quantity", "UnitPrice", "Discount",
        "TaxRate", "Rate", "Base", "Amount", "Balance",
    ),
    "id": (*TAX_IDS, "IBAN"),
    "currency": ("CurrencyCode",),
}  # fmt: skip
_TYPE_OF: Mapping[str, FieldType] = {name: kind for kind, names in _TYPES.items() for name in names}
_FORMS: Mapping[FieldType, re.Pattern[str]] = {
    "time": re.compile(r"([01]\d|2[0-3]):[0-5]\d(:[0-5]\d)?", re.ASCII),
    "number": re.compile(r"-?\d{1,15}(\.\d{1,6})?", re.ASCII),
    "currency": re.compile("[A-Z]{3}"),
}
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_YEARS = range(1900, 2200)


def type_of(name: str) -> FieldType:
    """What kind of value a field, or a column of a list, has."""
    return _TYPE_OF.get(name, "text")


def checked_value(name: str, value: str, location: str) -> str:
    """The value as the fields write it.

    Args:
        name: of the field or the column.
        location: of the value in the request, for messages.

    Raises: InvalidField for what is no such value, TooLarge for a text that is too long.
    """
    text = value.strip()
    if len(text) > TEXT_CHARS:
        advice = "Send the value alone, not the text around it."
        raise TooLarge(f"{location} (characters)", len(text), TEXT_CHARS, "fixed", advice=advice, param=location)
    if not text:
        raise InvalidField(
            f"{location}: is empty; send null for a field that the document does not have", param=location
        )
    if found := _UNPRINTABLE.search(text):
        character = f"U+{ord(found[0]):04X}"
        raise InvalidField(f"{location}: holds the character {character}; a value is one line of text", param=location)
    kind = type_of(name)
    checked = _checked(kind, text)
    if checked is None:
        raise InvalidField(f"{location}: must be {_WANTED[kind]}, got '{text[:60]}'", param=location)
    return checked


def _checked(kind: FieldType, text: str) -> str | None:
    """The value of a kind that a text is; None where it is none."""
    if kind == "date":
        return _date(text)
    if kind == "id":
        value = compact(text)
        return value if value and len(value) <= _ID_CHARS else None
    return text if kind not in _FORMS or _FORMS[kind].fullmatch(text) else None


def _date(text: str) -> str | None:
    try:
        day = date.fromisoformat(text) if len(text) == len("2026-03-12") else None
    except ValueError:
        return None
    return None if day is None or day.year not in _YEARS else day.isoformat()


# What values look like, for schemas. A day that no month has is refused, too.
PATTERNS: Mapping[FieldType, str] = {
    "date": r"^(19|20|21)\d\d-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])$",
    "id": r"^[A-Za-z0-9][A-Za-z0-9 .-]{0,62}$",
    "text": r"^[^\x00-\x20\x7f-\xa0\u2028\u2029]+$",
    **{kind: f"^{form.pattern}$" for kind, form in _FORMS.items()},
}
_WANTED: Mapping[FieldType, str] = {
    "date": f"a date such as 2026-03-12, of the years {_YEARS.start} to {_YEARS.stop - 1}",
    "time": "a time of day such as 18:05",
    "number": "a decimal such as -1284.50: a point before the decimals, at most 15 digits before and 6 behind it",
    "id": f"an id of at most {_ID_CHARS} letters and digits",
    "currency": "an ISO 4217 code such as EUR",
}


def check_digits(name: str, value: str) -> bool | None:
    """Whether an id's check digits are right; None for a field, or a kind of id, without any."""
    if name in TAX_IDS:
        return is_valid(value)
    return bool(iban.is_valid(value)) if name == "IBAN" else None


Values = Mapping[str, str]  # of a document or of a row of a list, by name
AMOUNTS = frozenset(
    {"SubTotal", "TotalTax", "TotalDiscount", "InvoiceTotal", "Total", "AmountDue", "WithholdingAmount", "Tip",
     "EquivalenceSurcharge", "TaxDetails", "Items", "Movements", "OpeningBalance", "ClosingBalance"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class FieldValues:
    """The values of one document."""

    fields: Values  # without lists
    lists: Mapping[str, Sequence[Values]]

    def number(self, name: str) -> Decimal | None:
        return Decimal(self.fields[name]) if name in self.fields else None

    @property
    def total(self) -> Decimal | None:
        """Of an invoice or a receipt."""
        total = self.number("InvoiceTotal")
        return self.number("Total") if total is None else total

    def column(self, name: str, column: str) -> list[Decimal] | None:
        """The numbers of a list's column; None where a row has none, or there is no list."""
        rows = self.lists.get(name, ())
        return [Decimal(row[column]) for row in rows] if rows and all(column in row for row in rows) else None


def recheck(read: FieldValues, read_totals: bool | None, now: FieldValues, changed: frozenset[str]) -> Validity:
    """What can be checked of the amounts after a correction; ids are checked beside this.

    Args:
        read: as they were read from the document.
        read_totals: `Validity.totals` of them.
        changed: names of the fields that were corrected.
    """
    tax_in_base = bool(read_totals) and read.number("SubTotal") == read.total  # as receipts print it
    with_items = "Items" in changed or any(equation.holds for equation in _of_items(read))
    printed = _equations(now, tax_in_base=tax_in_base, with_items=with_items)
    # What stood between two sums of a document that adds up: a charge or a payment that is no field, rounding.
    before = _equations(read, tax_in_base=tax_in_base, with_items=with_items) if read_totals else []
    between = {equation.text: equation.expected - equation.printed for equation in before if not equation.holds}
    made = [
        replace(equation, expected=equation.printed)
        if are_equal(equation.expected - equation.printed, between.get(equation.text, Decimal(0)))
        else equation
        for equation in printed
    ]
    wrong = tuple(equation.difference for equation in made if not equation.holds)
    return Validity(totals_hold(made), differences=wrong)


def _equations(values: FieldValues, *, tax_in_base: bool, with_items: bool) -> list[Equation]:
    of_total = _of_total_with_tax(values) if tax_in_base else _of_total(values)
    of_items = _of_items(values) if with_items else ()
    return [*_of_rows(values), *_of_taxes(values), *of_total, *_of_due(values), *of_items, *_of_account(values)]


def _nearest(sums: Sequence[Decimal], total: Decimal) -> Decimal | None:
    return next((expected for expected in sums if are_equal(expected, total)), None)


def _sums(values: FieldValues, base: Decimal, tax: Decimal) -> Iterator[tuple[str, Decimal]]:
    """What the total may be: the plain sum first, then with what invoices add to it or take off it."""
    withheld, discount = values.number("WithholdingAmount"), values.number("TotalDiscount")
    surcharge, tip = values.number("EquivalenceSurcharge"), values.number("Tip")
    parts = (
        ("- WithholdingAmount", withheld, -1),
        ("- TotalDiscount", discount, -1),
        ("+ Tip", tip, 1),
        ("+ EquivalenceSurcharge", surcharge, 1),
    )
    known = [(text, -sign * balance.taken_off(amount, base)) for text, amount, sign in parts if amount is not None]
    for mask in range(2 ** len(known)):
        taken = [part for index, part in enumerate(known) if mask >> index & 1]
        yield (
            " ".join(["SubTotal + TotalTax", *(text for text, _ in taken)]),
            base + tax + sum((amount for _, amount in taken), Decimal(0)),
        )


def _of_total(values: FieldValues) -> Iterator[Equation]:
    base, tax, total = values.number("SubTotal"), values.number("TotalTax"), values.total
    if base is None or tax is None or total is None:
        return
    sums = list(_sums(values, base, tax))
    near = _nearest([expected for _, expected in sums], total)
    text, expected = sums[0]
    yield Equation(f"{text} = InvoiceTotal", expected if near is None else total, total, settles=True)


def _of_total_with_tax(values: FieldValues) -> Iterator[Equation]:
    base, total = values.number("SubTotal"), values.total
    if base is not None and total is not None:
        yield Equation("SubTotal = InvoiceTotal", base, total, settles=True)


def _of_rows(values: FieldValues) -> Iterator[Equation]:
    for row in values.lists.get("TaxDetails", ()):
        if {"Rate", "Base", "Amount"} <= row.keys():
            yield balance.of_rate(Decimal(row["Base"]), Decimal(row["Rate"]), Decimal(row["Amount"]))


def _of_taxes(values: FieldValues) -> Iterator[Equation]:
    """The rows of taxes make the tax, a surcharge counted in it or not."""
    amounts, tax = values.column("TaxDetails", "Amount"), values.number("TotalTax")
    if amounts is None or tax is None:
        return
    surcharge = values.number("EquivalenceSurcharge") or Decimal(0)
    whole = sum(amounts, Decimal(0))
    near = _nearest([whole, whole - surcharge], tax)
    yield Equation("sum of TaxDetails = TotalTax", whole if near is None else tax, tax, settles=False)


def _of_due(values: FieldValues) -> Iterator[Equation]:
    due, total, withheld = values.number("AmountDue"), values.total, values.number("WithholdingAmount")
    if due is not None and total is not None and withheld is not None and not are_equal(due, total):
        yield balance.of_due(total, withheld, due)


def _of_items(values: FieldValues) -> Iterator[Equation]:
    amounts, base, total = values.column("Items", "Amount"), values.number("SubTotal"), values.total
    if amounts is None or (base is None and total is None):
        return
    whole = sum(amounts, Decimal(0))
    named = [("SubTotal", base), ("InvoiceTotal", total)]
    known = [(name, amount) for name, amount in named if amount is not None]
    name, amount = next((pair for pair in known if are_equal(pair[1], whole)), known[0])
    yield balance.of_items(whole, name, amount, settles=base is None or values.number("TotalTax") is None)


def _of_account(values: FieldValues) -> Iterator[Equation]:
    """A statement's movements lead from its opening to its closing balance."""
    amounts = values.column("Movements", "Amount")
    opening, closing = values.number("OpeningBalance"), values.number("ClosingBalance")
    if amounts is not None and opening is not None and closing is not None:
        expected = opening + sum(amounts, Decimal(0))
        yield Equation("OpeningBalance + sum of Movements = ClosingBalance", expected, closing, settles=True)
