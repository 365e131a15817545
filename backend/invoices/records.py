"""Records of the fields that are read from business documents: invoices, receipts, bank statements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from backend.files.pages import TextLocation

FieldSource = Literal["text", "xml", "qr", "computed"]
# Names of Azure's prebuilt invoice and receipt, so that clients port; the rest is Spanish.
FIELD_NAMES = (
    "VendorName", "VendorAddress", "VendorTaxId", "CustomerName", "CustomerAddress", "CustomerTaxId",
    "InvoiceId", "InvoiceDate", "DueDate", "PurchaseOrder", "RectifiedInvoiceId",
    "SubTotal", "TotalTax", "TotalDiscount", "InvoiceTotal", "AmountDue", "CurrencyCode", "PaymentTerm", "IBAN",
    "WithholdingRate", "WithholdingAmount", "EquivalenceSurcharge", "TaxDetails", "Items",
    "MerchantName", "TransactionDate", "TransactionTime", "Total", "Tip",
    "AccountNumber", "AccountHolder", "PeriodStart", "PeriodEnd", "OpeningBalance", "ClosingBalance", "Movements",
)  # fmt: skip
TAX_IDS = ("VendorTaxId", "CustomerTaxId")


@dataclass(frozen=True, slots=True)
class Field:
    """One field. `Items`, `TaxDetails` and `Movements` have ``rows`` and no value of their own."""

    name: str  # of FIELD_NAMES; in a row "Description", "Quantity", "Rate", …
    value: str  # ISO 8601 date, decimal ("1284.50"), id without separators, or text on one line; empty with ``rows``
    text: str  # as printed; empty where it is not printed
    score: float  # 0 to 1
    source: FieldSource
    why: str  # one sentence: by what it was found
    start: int | None = None  # of the words in the document's text; what they span may hold other words between columns
    end: int | None = None
    places: tuple[TextLocation, ...] = ()  # one for each printed line
    valid: bool | None = None  # by its check digits or the calendar; None where neither applies
    repair: str | None = None  # the likely value where OCR confused characters of an id; only offered
    ambiguous: bool = False  # a date whose day and month cannot be told apart
    rows: tuple[FieldRow, ...] = ()


@dataclass(frozen=True, slots=True)
class FieldRow:
    """One line of goods, rate of tax or movement of an account."""

    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """An equation of the document that does not hold."""

    equation: str  # "SubTotal + TotalTax = InvoiceTotal"
    expected: str  # decimal, from the left side
    printed: str  # decimal, on the right side


@dataclass(frozen=True, slots=True)
class Validity:
    """What can be checked of the whole; None where a part for it is missing."""

    totals: bool | None = None
    vendor_tax_id: bool | None = None
    customer_tax_id: bool | None = None
    iban: bool | None = None
    differences: tuple[Difference, ...] = ()


@dataclass(frozen=True, slots=True)
class ExtractedFields:
    """The fields of a document: of the first one where a file holds several."""

    fields: tuple[Field, ...]  # each name once
    validity: Validity
    why: str  # one sentence: what kind of document it was read as, or why there are no fields
    kind: str | None = None  # "invoice", "receipt", …; None where it is none of them
    pages: tuple[int, ...] = ()  # numbers of its pages in the file
    others: tuple[ExtractedFields, ...] = ()  # the documents after it in the same file
