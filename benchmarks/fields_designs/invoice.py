"""An invoice as its seller's books have it, its sums, and its truth in the format of ../shared/data/fields_dev."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from random import Random
from typing import Any

from benchmarks.fields_designs.formats import CENT, cents, plain
from benchmarks.fields_designs.parties import Party

LABELLED = (
    "VendorName", "VendorTaxId", "VendorAddress", "CustomerName", "CustomerTaxId", "InvoiceId", "InvoiceDate",
    "DueDate", "SubTotal", "TotalTax", "InvoiceTotal", "AmountDue", "CurrencyCode", "IBAN", "WithholdingRate",
    "WithholdingAmount", "TaxDetails", "Items", "valid",
)  # fmt: skip
ALL_COLUMNS = ("Description", "Quantity", "UnitPrice", "Amount")
SURCHARGES = {Decimal(21): Decimal("5.2"), Decimal(10): Decimal("1.4"), Decimal(4): Decimal("0.5")}
_ZERO = Decimal(0)
_WRONG_SHARE = 1 / 8


@dataclass(frozen=True, slots=True)
class Line:
    """One line of goods; ``unit_price`` has the tax where the whole bill's prices have it."""

    description: str
    quantity: Decimal
    unit_price: Decimal
    rate: Decimal  # percent
    discount: Decimal = _ZERO  # percent
    code: str = ""

    @property
    def amount(self) -> Decimal:
        return cents(self.quantity * self.unit_price * (100 - self.discount) / 100)


@dataclass(frozen=True, slots=True)
class TaxRow:
    """A rate with its base."""

    kind: str  # "IVA", "RE", "IGIC", "VAT", …
    rate: Decimal
    base: Decimal
    amount: Decimal


@dataclass(frozen=True, slots=True)
class Bill:
    """The sums; ``total`` less ``withholding`` and ``prepaid`` is ``payable``, unless the bill is a wrong one."""

    lines: tuple[Line, ...]
    taxes: tuple[TaxRow, ...]
    discount: Decimal  # taken off the sum of the lines
    sub_total: Decimal
    total: Decimal  # before withholding
    payable: Decimal
    withholding_rate: Decimal = _ZERO
    withholding: Decimal = _ZERO
    disbursements: Decimal = _ZERO
    prepaid: Decimal = _ZERO
    adds_up: bool = True

    @property
    def total_tax(self) -> Decimal:
        return sum((row.amount for row in self.taxes), _ZERO)

    @property
    def gross(self) -> Decimal:
        """The sum of the lines, before a discount on the whole."""
        return sum((line.amount for line in self.lines), _ZERO)


@dataclass(frozen=True, slots=True)
class Terms:
    """What is special about a bill."""

    tax: str = "IVA"
    surcharge: bool = False  # recargo de equivalencia
    withholding_rate: Decimal = _ZERO
    discount_rate: Decimal = _ZERO
    disbursements: Decimal = _ZERO
    prepaid_share: Decimal = _ZERO
    tax_included: bool = False  # in the prices, as on receipts
    tax_rate: Decimal | None = None  # of all lines, instead of theirs


def settle(random: Random, lines: Sequence[Line], terms: Terms) -> Bill:
    """Add up; one bill in eight gets a wrong total or a wrong amount of tax."""
    taxes, sub_total, discount = _taxes(lines, terms)
    wrong = random.random() < _WRONG_SHARE
    error = Decimal(random.choice((-1, 1)) * random.randrange(110, 4000)) / 100 if wrong else _ZERO
    in_tax = bool(wrong and taxes and taxes[0].amount > 50 and random.random() < 0.4)
    total = sub_total + sum((row.amount for row in taxes), _ZERO)
    if in_tax:  # the total is of the right amounts
        taxes[0] = replace(taxes[0], amount=taxes[0].amount + error)
    else:
        total += error if total + error > 0 else -error
    withholding = cents(sub_total * terms.withholding_rate / 100)
    prepaid = cents(total * terms.prepaid_share)
    return Bill(
        tuple(lines), tuple(taxes), discount, sub_total, total,
        total - withholding - prepaid + terms.disbursements, terms.withholding_rate, withholding,
        terms.disbursements, prepaid, not wrong,
    )  # fmt: skip


def _taxes(lines: Sequence[Line], terms: Terms) -> tuple[list[TaxRow], Decimal, Decimal]:
    """Rows by falling rate, the taxable base, and the discount on the whole."""
    sums: dict[Decimal, Decimal] = {}
    for line in lines:
        rate = line.rate if terms.tax_rate is None else terms.tax_rate
        sums[rate] = sums.get(rate, _ZERO) + line.amount
    taxes, sub_total = [], _ZERO
    for rate, full in sorted(sums.items(), reverse=True):
        amount = full - cents(full * terms.discount_rate / 100)
        base = cents(amount / (1 + rate / 100)) if terms.tax_included else amount
        sub_total += base
        tax = amount - base if terms.tax_included else cents(base * rate / 100)
        if rate:
            taxes.append(TaxRow(terms.tax, rate, base, tax))
        if terms.surcharge and rate in SURCHARGES:
            taxes.append(TaxRow("RE", SURCHARGES[rate], base, cents(base * SURCHARGES[rate] / 100)))
    discount = sum(sums.values(), _ZERO) - sub_total if terms.discount_rate and not terms.tax_included else _ZERO
    return taxes, sub_total, discount


def negated(bill: Bill) -> Bill:
    """The credit note of a bill that prints minus signs."""
    lines = tuple(replace(line, quantity=-line.quantity) for line in bill.lines)
    taxes = tuple(replace(row, base=-row.base, amount=-row.amount) for row in bill.taxes)
    return replace(
        bill, lines=lines, taxes=taxes, discount=-bill.discount, sub_total=-bill.sub_total, total=-bill.total,
        payable=-bill.payable,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Invoice:
    """All that a design prints."""

    vendor: Party
    customer: Party | None
    number: str
    day: date
    bill: Bill
    due: date | None = None
    account: str = ""  # IBAN
    currency: str = "EUR"


@dataclass(frozen=True, slots=True)
class Printed:
    """What of it a design does not print, or prints in another way than plainly."""

    columns: Collection[str] = ALL_COLUMNS  # of the items
    optional: Collection[str] = ("AmountDue",)  # printed in no figure of their own
    absent: Collection[str] = ()
    one_total: bool = True  # else a total and what is to be paid
    accept: dict[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sheet:
    """A document to print, and its truth but for the file."""

    html: str
    truth: dict[str, Any]


def truth_of(invoice: Invoice, printed: Printed, *, language: str, doc_type: str = "invoice") -> dict[str, Any]:
    """The truth of a printed invoice."""
    bill, vendor, customer = invoice.bill, invoice.vendor, invoice.customer
    values = {
        "VendorName": vendor.name,
        "VendorTaxId": vendor.tax_id,
        "VendorAddress": vendor.address,
        "InvoiceId": invoice.number,
        "InvoiceDate": invoice.day.isoformat(),
        "CurrencyCode": invoice.currency,
        "CustomerName": customer.name if customer else "",
        "CustomerTaxId": customer.tax_id if customer else "",
        "DueDate": invoice.due.isoformat() if invoice.due else "",
        "IBAN": invoice.account,
        "SubTotal": str(bill.sub_total.quantize(CENT)),
        "TotalTax": str(bill.total_tax.quantize(CENT)) if bill.taxes else "",
        "InvoiceTotal": str((bill.payable if printed.one_total else bill.total).quantize(CENT)),
        "AmountDue": str(bill.payable.quantize(CENT)),
        "WithholdingRate": plain(bill.withholding_rate) if bill.withholding_rate else "",
        "WithholdingAmount": str(bill.withholding) if bill.withholding_rate else "",
    }
    known = {name: value for name, value in values.items() if value and name not in printed.absent}
    return {
        "lang": language,
        "medium": "digital",
        "source": "generated",
        "doc_type": doc_type,
        "fields": {name: value for name, value in known.items() if name not in printed.optional},
        "optional": {name: value for name, value in known.items() if name in printed.optional},
        "accept": printed.accept,
        "tax_details": [
            {"Type": row.kind, "Rate": plain(row.rate), "Base": str(row.base), "Amount": str(row.amount)}
            for row in bill.taxes
        ],
        "items": [_item(line, printed.columns) for line in bill.lines],
        "valid": {**({"VendorTaxId": vendor.tax_id_is_right} if vendor.tax_id else {}), "totals": bill.adds_up},
        "labelled": list(LABELLED),
    }


def _item(line: Line, columns: Collection[str]) -> dict[str, str]:
    cells = {
        "Description": line.description,
        "Quantity": plain(line.quantity),
        "UnitPrice": plain(line.unit_price),
        "Amount": str(line.amount),
    }
    return {name: value for name, value in cells.items() if name in columns}
