"""Composes the fields of a document from what its parts tell. Pure; milliseconds a page: call it on a thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from backend.files.einvoice.records import EInvoice
from backend.files.pages import Document
from backend.files.visual_rows import PageRows, rows_of
from backend.invoices.document_kind import document_kind
from backend.invoices.electronic import einvoice_validity, with_einvoice
from backend.invoices.first_document import first_document
from backend.invoices.header.find import find_header
from backend.invoices.items.find import find_items
from backend.invoices.money.find import find_money
from backend.invoices.parties.find import find_parties
from backend.invoices.records import FIELD_NAMES, ExtractedFields, Field, Validity
from backend.invoices.statement.find import find_statement
from backend.tables.numbers import decimal_mark_of


def extract_fields(document: Document, document_type: str | None = None) -> ExtractedFields:
    """The fields of an invoice, a receipt or a bank statement.

    Args:
        document: with its electronic invoice, where there is one: that wins.
        document_type: the label of the bundled classifier of document types, where it is known.
    """
    printed = _printed_fields(document, document_type)
    return printed if document.einvoice is None else with_electronic(printed, document.einvoice)


def with_electronic(printed: ExtractedFields, invoice: EInvoice) -> ExtractedFields:
    """What is printed, where the electronic invoice does not say otherwise."""
    fields = with_einvoice(printed.fields, invoice)
    why = f"{printed.why}; the electronic invoice ({invoice.format}) wins"
    if invoice.page is not None:  # a code says a few values of the page: the page's own amounts are checked
        return replace(_with_ids(fields, printed.validity), why=why)
    return ExtractedFields(fields, einvoice_validity(fields, invoice), why)


def _printed_fields(document: Document, document_type: str | None) -> ExtractedFields:
    pages: Sequence[PageRows] = rows_of(document)
    kind, why = document_kind(pages, document_type)
    if kind is None:
        return ExtractedFields((), Validity(), why)
    pages, others = first_document(pages)
    why = f"{why}; {others}" if others else why
    mark = decimal_mark_of(document)
    if kind == "bank_statement":
        statement = find_statement(pages, mark)
        return replace(_with_ids(statement, Validity()), why=why)
    items = find_items(pages, mark)
    money = find_money(pages, mark, items)
    found = [*find_parties(pages, kind), *find_header(pages, items), *money.fields]
    if items is not None:
        found.append(items.field)
    by_name = {field.name: field for field in reversed(found)}  # the first of a name counts
    fields = tuple(by_name[name] for name in FIELD_NAMES if name in by_name)
    return replace(_with_ids(fields, money.validity), why=why)


def _with_ids(fields: tuple[Field, ...], validity: Validity) -> ExtractedFields:
    """The fields with what their check digits say beside what arithmetic says."""
    valid = {field.name: field.valid for field in fields}
    checked = replace(
        validity,
        vendor_tax_id=valid.get("VendorTaxId"),
        customer_tax_id=valid.get("CustomerTaxId"),
        iban=valid.get("IBAN"),
    )
    return ExtractedFields(fields, checked, "")
