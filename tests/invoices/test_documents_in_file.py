"""Several invoices in one file: each is read, and nothing of one is told of another."""

from __future__ import annotations

from dataclasses import replace

from backend.files.einvoice.records import EInvoice
from backend.files.pages import Document
from backend.invoices.extract import extract_fields
from tests.invoices.rows import page_of_rows

HEAD = """
Aceros del Norte, S.L.      FACTURA
NIF A58818501               Nº factura: {number}
                            Fecha: 12/03/2026

Concepto                    Importe
Tornillo                     100,00
"""
SUMS = """
Base imponible               100,00
IVA 21 %                      21,00
Total factura                121,00
"""


def _document(*texts: str) -> Document:
    pages = tuple(page_of_rows(text, number=number) for number, text in enumerate(texts, 1))
    return Document("pdf", pages, len(pages), "")


def test_two_invoices_in_one_file() -> None:
    """The pages before the second number count; where it begins is said."""
    extracted = extract_fields(_document(HEAD.format(number="A-1") + SUMS, HEAD.format(number="A-2") + SUMS))

    values = {field.name: field.value for field in extracted.fields}
    assert ("A-1", "121.00") == (values["InvoiceId"], values["InvoiceTotal"])
    assert "another one, A-2, begins on page 2" in extracted.why
    assert [one.pages for one in (extracted, *extracted.others)] == [(1,), (2,)]
    others = {field.name: (field.value, field.places[0].page) for field in extracted.others[0].fields if field.places}
    assert others["InvoiceId"] == ("A-2", 2)
    assert others["InvoiceTotal"] == ("121.00", 2)


def test_an_invoice_that_repeats_its_head() -> None:
    """The same number on each page is one invoice, its sums on the last."""
    extracted = extract_fields(_document(HEAD.format(number="A-1"), HEAD.format(number="A-1") + SUMS))

    values = {field.name: field.value for field in extracted.fields}
    assert ("A-1", "121.00") == (values["InvoiceId"], values["InvoiceTotal"])
    assert "another one" not in extracted.why


def test_an_invoice_whose_number_is_not_found_is_another_one() -> None:
    """Its title, its total and its supplier tell."""
    other = """
Ferretería Puig, S.A.       FACTURA
NIF A28079093

Martillo                     200,00
Base imponible               200,00
IVA 21 %                      42,00
Total factura                242,00
"""
    extracted = extract_fields(_document(HEAD.format(number="A-1") + SUMS, other))

    values = {field.name: field.value for field in extracted.fields}
    assert ("A-1", "A58818501", "121.00") == (values["InvoiceId"], values["VendorTaxId"], values["InvoiceTotal"])
    assert "another one begins on page 2" in extracted.why


def test_a_page_that_counts_on_is_the_same_invoice() -> None:
    """ "Página 2 de 2" after "Página 1 de 2", whatever else the page says."""
    first, second = HEAD.format(number="A-1") + "Página 1 de 2", HEAD.format(number="B-7") + SUMS + "Página 2 de 2"
    extracted = extract_fields(_document(first, second))

    assert {field.name: field.value for field in extracted.fields}["InvoiceTotal"] == "121.00"
    assert "another one" not in extracted.why


def test_a_code_on_another_invoices_page_is_that_ones() -> None:
    """The tax QR code of page 2 is reported under the invoice of page 2 alone."""
    both = _document(HEAD.format(number="A-1") + SUMS, HEAD.format(number="A-2") + SUMS)
    values = {"InvoiceId": "A-2", "InvoiceTotal": "999.00", "VendorTaxId": "A28079093"}
    extracted = extract_fields(replace(both, einvoice=EInvoice("VERI*FACTU", values, page=2, box=(0, 0, 1, 1))))

    found = {field.name: (field.value, field.source) for field in extracted.fields}
    assert found["InvoiceTotal"] == ("121.00", "text")
    assert found["InvoiceId"] == ("A-1", "text")
    other = {field.name: (field.value, field.source) for field in extracted.others[0].fields}
    assert other["InvoiceTotal"] == ("999.00", "qr")
