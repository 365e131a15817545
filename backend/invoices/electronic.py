"""Puts what an electronic invoice says before what was read from the pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal, InvalidOperation

from stdnum import iban
from stdnum.es import nif
from stdnum.eu import vat

from backend.files.einvoice.records import EInvoice
from backend.files.einvoice.values import compact_id
from backend.files.pages import Box
from backend.files.text_locations import TextLocation
from backend.invoices.records import FIELD_NAMES, Difference, Field, FieldRow, FieldSource, Validity

_CENT = Decimal("0.02")  # per rate of tax: each is rounded by itself
_CHECKS: Mapping[str, Callable[[str], bool]] = {
    "VendorTaxId": lambda number: bool(nif.is_valid(number) or vat.is_valid(number)),
    "CustomerTaxId": lambda number: bool(nif.is_valid(number) or vat.is_valid(number)),
    "IBAN": lambda number: bool(iban.is_valid(number)),
}
_PRINTED_FORM = ("InvoiceId", "RectifiedInvoiceId")  # series and number are data in parts; paper has them joined


def with_einvoice(found: tuple[Field, ...], invoice: EInvoice) -> tuple[Field, ...]:
    """The fields of both, each name once: the electronic value wins, with its place where it is printed alike."""
    printed = {field.name: field for field in found}
    fields = {**printed, **{name: _field(name, value, invoice, printed.get(name)) for name, value in _values(invoice)}}
    for name, rows in (("Items", invoice.items), ("TaxDetails", invoice.taxes)):
        if rows:
            fields[name] = _rows(name, rows, invoice)
    return tuple(fields[name] for name in FIELD_NAMES if name in fields)


def einvoice_validity(fields: tuple[Field, ...], invoice: EInvoice) -> Validity:
    """Whether the electronic invoice's own amounts agree, and its ids are right."""
    by_name = {field.name: field for field in fields}

    def valid(name: str) -> bool | None:
        return by_name[name].valid if name in by_name else None

    differences = _differences(invoice)
    amounts = {"SubTotal", "TotalTax", "InvoiceTotal"} <= invoice.values.keys()
    totals = not differences if amounts else None
    return Validity(totals, valid("VendorTaxId"), valid("CustomerTaxId"), valid("IBAN"), differences)


def _values(invoice: EInvoice) -> list[tuple[str, str]]:
    return [(name, value) for name, value in invoice.values.items() if name in FIELD_NAMES]


def _source(invoice: EInvoice) -> FieldSource:
    return "xml" if invoice.page is None else "qr"


def _why(invoice: EInvoice) -> str:
    if invoice.page is None:
        return f"the electronic invoice ({invoice.format}) says so"
    return f"the {invoice.format} code on page {invoice.page} says so"


def _field(name: str, value: str, invoice: EInvoice, printed: Field | None) -> Field:
    check = _CHECKS.get(name)
    valid = None if check is None else check(value)
    if printed is not None and _is_same(name, printed.value, value):
        value = printed.value if name in _PRINTED_FORM else value
        return replace(
            printed, value=value, score=1.0, source=_source(invoice), why=_why(invoice), valid=valid, repair=None,
            ambiguous=False,
        )  # fmt: skip
    places = () if invoice.page is None or invoice.box is None else (TextLocation(invoice.page, Box(*invoice.box)),)
    return Field(name, value, "", 1.0, _source(invoice), _why(invoice), places=places, valid=valid)


def _is_same(name: str, printed: str, value: str) -> bool:
    if name in _PRINTED_FORM or name in _CHECKS:
        return compact_id(printed) == compact_id(value)
    try:
        return Decimal(printed) == Decimal(value)
    except InvalidOperation:
        return printed.casefold() == value.casefold()


def _rows(name: str, rows: tuple[dict[str, str], ...], invoice: EInvoice) -> Field:
    source, why = _source(invoice), _why(invoice)
    made = tuple(
        FieldRow(tuple(Field(column, value, "", 1.0, source, why) for column, value in row.items())) for row in rows
    )
    return Field(name, "", "", 1.0, source, why, rows=made)


def _differences(invoice: EInvoice) -> tuple[Difference, ...]:
    amounts = {name: Decimal(value) for name, value in invoice.values.items() if name in _AMOUNTS}
    base, tax, total = (amounts.get(name) for name in ("SubTotal", "TotalTax", "InvoiceTotal"))
    if base is None or tax is None or total is None:
        return ()
    withheld = amounts.get("WithholdingAmount", Decimal(0))
    slack = _CENT * max(1, len(invoice.taxes))
    if min(abs(base + tax - total), abs(base + tax - withheld - total)) <= slack:
        return ()
    return (Difference("SubTotal + TotalTax = InvoiceTotal", f"{base + tax:f}", f"{total:f}"),)


_AMOUNTS = frozenset({"SubTotal", "TotalTax", "InvoiceTotal", "WithholdingAmount"})
