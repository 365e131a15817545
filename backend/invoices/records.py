"""Records of the fields that are read from business documents, and one made of the words in which it is printed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any, Literal

from backend.files.pages import TextLocation, Word, bounding_box
from backend.files.visual_rows import PageRows

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

    @property
    def values(self) -> dict[str, str]:
        """By the fields' names."""
        return {field.name: field.value for field in self.fields}


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


def words_at(words: Sequence[Word], start: int, end: int) -> tuple[Word, ...]:
    """The words that a span of their text touches, which is joined by blanks."""
    found, offset = [], 0
    for word in words:
        if offset < end and start < offset + len(word.text):
            found.append(word)
        offset += len(word.text) + 1
    return tuple(found)


def printed_field(
    name: str, value: str, words: Sequence[Word], page: PageRows, *, score: float, why: str, **more: Any
) -> Field:
    """A field read from a page.

    Args:
        words: those that print the value, in the order in which they are read: line by line for an address.
        page: the page they stand on.
        more: other fields of the record: ``valid``, ``repair``, ``ambiguous``, ``rows``.
    """
    lines = [bounding_box(word.box for word in group) for _, group in groupby(words, attrgetter("line", "block"))]
    return Field(
        name=name,
        value=value,
        text=" ".join(word.text for word in words),
        score=round(score, 4),
        source="text",
        why=why,
        start=page.start + min(word.start for word in words),
        end=page.start + max(word.end for word in words),
        places=tuple(TextLocation(page.page.number, box) for box in lines),
        **more,
    )
