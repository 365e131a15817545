"""Several invoices in one file: the first is read, and the others are told."""

from __future__ import annotations

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


def test_an_invoice_that_repeats_its_head() -> None:
    """The same number on each page is one invoice, its sums on the last."""
    extracted = extract_fields(_document(HEAD.format(number="A-1"), HEAD.format(number="A-1") + SUMS))

    values = {field.name: field.value for field in extracted.fields}
    assert ("A-1", "121.00") == (values["InvoiceId"], values["InvoiceTotal"])
    assert "another one" not in extracted.why
