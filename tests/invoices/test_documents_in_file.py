"""Several invoices in one file: each is read, and nothing of one is told of another."""

from __future__ import annotations

from dataclasses import replace
from itertools import zip_longest

import pytest

from backend.files.einvoice.records import EInvoice
from backend.files.pages import Document
from backend.invoices.extract import extract_fields
from backend.invoices.records import ExtractedFields
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
GROCER = """
FRUTERÍA LA HUERTA
C/ Mayor 3, Madrid
12/03/2026  10:21
2 MANZANAS        2,40
1 PERA            1,10
TOTAL             3,50
EFECTIVO          5,00
CAMBIO            1,50
"""
BAR = """
BAR EL PUERTO
Paseo del Mar 8, Cádiz
14/03/2026  14:02
1 MENU DEL DIA   12,00
1 CAFE            1,40
TOTAL            13,40
TARJETA          13,40
"""
TERMS = """
CONDICIONES GENERALES
El comprador acepta estas condiciones al recibir la mercancía y renuncia a las suyas propias, si las tuviera.
La mercancía viaja por cuenta y riesgo del comprador, aunque el transporte lo pague el vendedor por su parte.
El vendedor conserva la propiedad de los bienes hasta que se hayan pagado por completo, con sus intereses.
Las partes se someten a los juzgados y tribunales de Madrid para cuantas cuestiones surjan de este contrato.
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
    assert [one.pages for one in _all(extracted)] == [(1,), (2,)]
    others = {field.name: (field.value, field.places[0].page) for field in extracted.others[0].fields if field.places}
    assert others["InvoiceId"] == ("A-2", 2)
    assert others["InvoiceTotal"] == ("121.00", 2)


def test_an_invoice_that_names_the_one_before() -> None:
    """A number of its own, beside that of another document, begins one."""
    later = HEAD.format(number="A-2").replace("Concepto  ", "Anula la factura A-1\n\nConcepto  ")
    extracted = extract_fields(_document(HEAD.format(number="A-1") + SUMS, later + SUMS))

    assert [one.pages for one in _all(extracted)] == [(1,), (2,)]


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


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        pytest.param("A-2", [((2,), "999.00"), ((1,), "121.00")], id="first-of-the-documents"),
        pytest.param("Z-9", [((1, 2), "999.00")], id="printed-nowhere: all pages are its own"),
    ],
)
def test_data_in_a_file_are_of_the_invoice_that_prints_their_number(
    number: str, expected: list[tuple[tuple[int, ...], str]]
) -> None:
    """No other invoice of the file has a value of them, and they have none of its."""
    both = _document(HEAD.format(number="A-1") + SUMS, HEAD.format(number="A-2") + SUMS)
    data = EInvoice("Facturae", {"InvoiceId": number, "InvoiceTotal": "999.00"})
    extracted = extract_fields(replace(both, einvoice=data))

    totals = [next(field.value for field in one.fields if field.name == "InvoiceTotal") for one in _all(extracted)]
    assert expected == list(zip([one.pages for one in _all(extracted)], totals, strict=True))


def test_a_number_that_a_credit_note_names_is_its_invoices() -> None:
    """Where its own number is not found, it has none, rather than that of the invoice before it."""
    note = HEAD.replace("FACTURA  ", "ABONO    ").replace("Nº factura: {number}", "Abono de la factura A-1")
    note = note.replace("12/03/2026", "19/04/2026") + SUMS.replace("121,00", "-121,00")
    extracted = extract_fields(_document(HEAD.format(number="A-1") + SUMS, note), split="1,2")

    numbers = [[field.value for field in one.fields if field.name == "InvoiceId"] for one in _all(extracted)]
    assert numbers == [["A-1"], []]


def test_two_receipts_without_numbers_or_ids() -> None:
    """A page that looks like the beginning of another one is, though nothing on it contradicts the one before."""
    extracted = extract_fields(_document(GROCER, BAR))

    assert [one.pages for one in _all(extracted)] == [(1,), (2,)]


def test_two_receipts_side_by_side() -> None:
    """On a photo they are two documents of one page; a code is that one's among whose words it stands."""
    lines = zip_longest(GROCER.strip().split("\n"), BAR.strip().split("\n"), fillvalue="")
    photo = page_of_rows("\n".join(f"{left:30}{right}" for left, right in lines), source="ocr")
    code = EInvoice("VERI*FACTU", {"InvoiceId": "B-9"}, page=1, box=(300, 40, 320, 60))
    first, second = _all(extract_fields(replace(_document(BAR), pages=(photo,), einvoice=code)))

    totals = [next(f.value for f in one.fields if f.name in ("Total", "InvoiceTotal")) for one in (first, second)]
    assert [((1,), "3.50"), ((1,), "13.40")] == [(first.pages, totals[0]), (second.pages, totals[1])]
    assert [False, True] == ["B-9" in [field.value for field in one.fields] for one in (first, second)]


def test_an_annex_and_a_delivery_note() -> None:
    """The annex is of the invoice before it; what another paper's heading begins is a document of its own."""
    annex = (
        "Anexo a la factura\nDía      Operario      Horas\n03       M. Cano         4,0\nSuma                    4,0"
    )
    packed = "PACKING LIST\nCarton   Contents     Net kg\n1        40 shirts      9,2\nTotal    1 carton       9,2"
    extracted = extract_fields(_document(HEAD.format(number="A-1") + SUMS, annex, packed, GROCER))

    assert [(1, 2), (4,), (3,)] == [one.pages for one in _all(extracted)]


def test_a_statement_of_account_names_invoices() -> None:
    """It is none of them, though it has the letterhead and the number of the one before it."""
    statement = """
Aceros del Norte, S.L.
NIF A58818501

Extracto de cuenta a 31/03/2026
Fecha         Documento               Cargo      Abono      Saldo
12/03/2026    Factura A-1            121,00                121,00
20/03/2026    Transferencia                      121,00      0,00
Saldo a su cargo: 0,00 €. Este extracto no es una factura.
"""
    first, last = (HEAD.format(number=number) + SUMS for number in ("A-1", "A-2"))

    found = _all(extract_fields(_document(first, statement, last)))
    assert [((1,), "invoice"), ((3,), "invoice"), ((2,), None)] == [(one.pages, one.kind) for one in found]


def test_terms_and_letters() -> None:
    """Terms behind an invoice are of it; what is before it is a document without fields, and told last."""
    invoice = HEAD.format(number="A-1") + SUMS

    assert [(1, 2)] == [one.pages for one in _all(extract_fields(_document(invoice, TERMS)))]
    assert [((2,), "invoice"), ((1,), None)] == [
        (one.pages, one.kind) for one in _all(extract_fields(_document(TERMS, invoice)))
    ]


def _all(extracted: ExtractedFields) -> tuple[ExtractedFields, ...]:
    return (extracted, *extracted.others)


@pytest.mark.parametrize(
    ("split", "pages"),
    [
        ("none", [(1, 2, 3)]),
        ("pages", [(1,), (2,), (3,)]),
        ("2-,1", [(2, 3), (1,)]),
        ("3", [(3,)]),
        ("1,9", [(1,)]),
    ],
)
def test_a_caller_says_which_pages_are_one_document(split: str, pages: list[tuple[int, ...]]) -> None:
    """In the order of the list, those too that are no invoice; a page that was not read is of none."""
    file = _document(HEAD.format(number="A-1") + SUMS, HEAD.format(number="A-2") + SUMS, TERMS)

    extracted = extract_fields(file, split=split)

    assert [one.pages for one in _all(extracted)] == pages
    assert all((one.kind is None) == (one.pages == (3,)) for one in _all(extracted))


def test_data_of_the_file_is_told_once() -> None:
    """XML says nothing of the other documents that a caller cuts the file into."""
    file = _document(HEAD.format(number="A-1") + SUMS, HEAD.format(number="A-2") + SUMS)
    extracted = extract_fields(replace(file, einvoice=EInvoice("UBL", {"InvoiceTotal": "999.00"})), split="pages")

    totals = [next(field.value for field in one.fields if field.name == "InvoiceTotal") for one in _all(extracted)]
    assert totals == ["999.00", "121.00"]
