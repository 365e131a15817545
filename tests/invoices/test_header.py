"""Ids, dates, terms and accounts at the head of invoices and receipts."""

from __future__ import annotations

import time

import pytest

from backend.files.pages import Document
from backend.files.visual_rows import rows_of
from backend.invoices.header.find import find_header
from tests.invoices.rows import document_of_rows, page_of_rows, rows_of_text


def values(*texts: str) -> dict[str, str]:
    return {field.name: field.value for field in find_header(rows_of_text(*texts), None)}


def scanned(text: str) -> dict[str, str]:
    """What is found where the page comes from OCR."""
    page = page_of_rows(text, source="ocr")
    return {field.name: field.value for field in find_header(rows_of(Document("png", (page,), 1, "0" * 64)), None)}


DATES = [
    ("Fecha: 12/03/2026", "2026-03-12"),
    ("Fecha factura\n12-03-26", "2026-03-12"),
    ("FECHA DE EMISIÓN   VENCIMIENTO\n12/03/2026         12/04/2026", "2026-03-12"),
    ("Fecha emisión factura: 15 de marzo de 2026", "2026-03-15"),
    ("Madrid, a 3 de mayo de 2026", "2026-05-03"),
    ("Factura nº 23 de 3 de mayo de 2026", "2026-05-03"),
    ("Invoice Date  Sep 8, 2025", "2025-09-08"),
    ("Date\n19 November 2025", "2025-11-19"),
    ("Rechnungsdatum: 08.09.2025", "2025-09-08"),
    ("Datum  8. September 2026", "2026-09-08"),
    ("Date de facture : 8 mars 2026", "2026-03-08"),
    ("Data factura: 8 de març de 2026", "2026-03-08"),
    ("Data de emissão: 08/03/2026", "2026-03-08"),
    ("Fecha factura: 12/03/2026\nFecha de entrega: 10/03/2026", "2026-03-12"),
    ("Periodo de facturación: 11/02/2026 a 13/03/2026\nEmitida el 15/03/2026", "2026-03-15"),
    ("Rectifica a: 2077555 de 18/01/2026\nFecha: 08/03/2026", "2026-03-08"),
    ("TICKET\n03/08/2025 13:36 Caja 5\nTOTAL  3,20", "2025-08-03"),
    ("Fecha:06/03/2026", "2026-03-06"),
    ("Fecha de operación: 12/03/2026", "2026-03-12"),
    ("Fecha de         Fecha de\nemisión          vencimiento\n12/03/2026       12/04/2026", "2026-03-12"),
    ("Fait à Angers, le vingt-deux janvier deux mille vingt-six", "2026-01-22"),
    ("Graz, am fünften Mai\nzweitausendsechsundzwanzig", "2026-05-05"),
    ("Madrid, a treinta y uno de marzo de dos mil veintiséis", "2026-03-31"),
    ("Barcelona, vint-i-dos de maig de dos mil vint-i-sis", "2026-05-22"),
    ("Roma, ventuno aprile duemilaventisei", "2026-04-21"),
    ("Lisboa, 2 de março de dois mil e vinte e seis", "2026-03-02"),
]


@pytest.mark.parametrize(("text", "value"), DATES, ids=[text.split("\n")[-1][:40] for text, _ in DATES])
def test_invoice_dates(text, value):
    """By its label, behind the number, or alone; not orders', deliveries' and periods' dates."""
    assert value == values(text).get("InvoiceDate")


DUE_DATES = [
    ("Vencimiento: 21/11/2025", "2025-11-21"),
    ("Forma de pago: Giro a 30 días. Vto.: 01-01-2026", "2026-01-01"),
    ("Fecha de cargo: 13 de noviembre de 2025", "2025-11-13"),
    ("Fecha prevista de cobro\n25/03/2026", "2026-03-25"),
    ("Pagar antes del 31 de marzo de 2026", "2026-03-31"),
    ("Payment due    29 November 2025", "2025-11-29"),
    ("Please pay by 12 April 2026", "2026-04-12"),
    ("Due Date: Sep 30, 2019", "2019-09-30"),
    ("Zahlbar bis zum 22.09.2025", "2025-09-22"),
    ("Date d'échéance : 13/12/2017", "2017-12-13"),
    ("Scadenza: 30/04/2026", "2026-04-30"),
    ("Data de vencimento  30/04/2026", "2026-04-30"),
    ("Data de venciment: 30/04/2026", "2026-04-30"),
    ("Fecha adeudo  30/04/2026", "2026-04-30"),
    ("Pasaremos el recibo al cobro el día 5 de mayo de 2026", "2026-05-05"),
    ("El importe se cargará en su cuenta el día 5 de mayo de 2026", "2026-05-05"),
    ("La renta se abonará antes del vencimiento, 5 de mayo de 2026", "2026-05-05"),
    ("Día del adeudo en su banco: 30/04/2026", "2026-04-30"),
    ("Día del adeudo en su banco  30/04/2026", "2026-04-30"),
    ("Fecha de adeudo estimada  30/04/2026", "2026-04-30"),
    ("Pagadero hasta el: 30/04/2026", "2026-04-30"),
    ("Plazo para el pago: hasta el 30/04/2026", "2026-04-30"),
    ("Fecha de cargo en cuenta   30/04/2026", "2026-04-30"),
    ("Recibo domiciliado. Cobro: 30/04/2026", "2026-04-30"),
    ("Your bank will be debited on or after 30 April 2026", "2026-04-30"),
    ("To be settled before 30 April 2026", "2026-04-30"),
    ("We will debit your account on 5 May 2026", "2026-05-05"),
    ("Merci de bien vouloir régler cette somme au plus tard le 21 février\n2026. Pas d'escompte.", "2026-02-21"),
]


@pytest.mark.parametrize(("text", "value"), DUE_DATES, ids=[text[:40] for text, _ in DUE_DATES])
def test_due_dates(text, value):
    """When it is to be paid or will be debited; the invoice's date is another."""
    found = values(f"Fecha factura: 20/01/2015\n{text}")

    assert ("2015-01-20", value) == (found.get("InvoiceDate"), found.get("DueDate"))


@pytest.mark.parametrize(
    "text", ["Vto.: a la vista", "Vencimiento: 30 días", "Payment due upon receipt", "Total due  £20"]
)
def test_terms_are_no_due_dates(text):
    """A term or an amount beside the label is no date."""
    assert "DueDate" not in values(f"Fecha: 12/03/2026\n\n\n\n{text}")


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("Condiciones de pago: 30 días fecha factura", "PaymentTerm", "30 días fecha factura"),
        ("Terms\nNet 30", "PaymentTerm", "Net 30"),
        (
            "This bill is payable within 28 days of its date. Thank you.",
            "PaymentTerm",
            "payable within 28 days of its date",
        ),
        ("Zahlbar innerhalb von 14 Tagen ohne Abzug.", "PaymentTerm", "Zahlbar innerhalb von 14 Tagen ohne Abzug"),
        ("Forma de pago: Giro bancario a 30 días. Vto.: 01-01-2026", "PaymentTerm", "Giro bancario a 30 días"),
        ("Transferencia a ES98 1465 7372 9704 0552 5537", "IBAN", "ES9814657372970405525537"),
    ],
)
def test_other_fields(text, name, value):
    """Orders, the rectified invoice, terms and accounts."""
    assert value == values(text).get(name)


def test_wrong_national_digits_do_not_hide_an_account():
    """The IBAN's own check digits decide; those of the Spanish account inside are wrong here."""
    (field,) = find_header(rows_of_text("Transferencia a ES47 1465 1234 0012 3456 7890"), None)

    assert ("ES4714651234001234567890", True) == (field.value, field.valid)


def test_an_account_of_a_wrong_length_is_printed_but_not_valid():
    """Behind its label; the words after it are no part of it."""
    (field,) = find_header(rows_of_text("Pay to IBAN GB13 LOYD 5566 7718 29. Thank you"), None)

    assert ("GB13LOYD5566771829", False) == (field.value, field.valid)


@pytest.mark.parametrize("printed", ["ES06 2038 **** **** **** 9194", "ES21 0049 1811 3524 **** ****"])
def test_a_masked_account_is_none(printed):
    """Stars hide digits: nothing to pay to."""
    assert "IBAN" not in values(f"IBAN: {printed}")


def test_the_vendors_account_goes_before_the_customers():
    """An account to transfer to is wanted, not the one that is debited."""
    text = "Domiciliado en su cuenta ES91 2100 0418 4502 0005 1332\n\nTransferencia a ES98 1465 7372 9704 0552 5537"

    assert "ES9814657372970405525537" == values(text)["IBAN"]


def test_a_receipt_has_a_transaction():
    """Date and time beside each other; an invoice has no transaction."""
    found = values("Factura Simplificada\nNº: 001-077368\n11/03/2026 18:37 Caja 7\nTOTAL   62,52")

    assert ("2026-03-11", "18:37") == (found["TransactionDate"], found["TransactionTime"])
    assert "TransactionDate" not in values("FACTURA\nFecha: 11/03/2026")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Invoice Date: 03/12/2026\nAustin, TX 78701\nTotal  $34.00", "2026-03-12"),
        ("Date: 03/12/2026\nVAT GB442487189\nTotal  £34.00", "2026-12-03"),
        ("Invoice date: 03/12/2026   Due date: 04/11/2026", "2026-03-12"),
        ("Invoice date: 03/12/2026   Due date: 02/01/2027", "2026-12-03"),
    ],
)
def test_day_and_month_follow_the_country_and_the_due_date(text, value):
    """Where neither country nor another date tells, an invoice is not due before it was issued."""
    assert value == values(text)["InvoiceDate"]


def test_what_cannot_be_settled_is_called_ambiguous():
    """Day and month are told apart by something, or the field says so."""
    (field,) = find_header(rows_of_text("Date: 03/12/2026"), None)
    (sure,) = find_header(rows_of_text("Fecha: 03/12/2026\nImporte  3,00 €"), None)

    assert (True, False) == (field.ambiguous, sure.ambiguous)
    assert field.score < sure.score


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("Fecha: 0l/03/2026", "InvoiceDate", "2026-03-01"),
        ("Fecha: 03/08/2O25", "InvoiceDate", "2025-08-03"),
        ("Fecha: Is de marzo de 2026", "InvoiceDate", "2026-03-15"),
        ("IBAN ES98 1465 7372 97O4 0552 5537", "IBAN", "ES9814657372970405525537"),
        ("Fecha factvra: 01/03/2026", "InvoiceDate", "2026-03-01"),
    ],
)
def test_misread_characters(text, name, value):
    """Letters that stand for digits in a scan are read as these; the field's text is as printed."""
    assert value == scanned(text).get(name)


def test_fields_say_where_they_stand():
    """The words of the value alone, in the document's text."""
    document = document_of_rows("FACTURA", "Fecha factura:  12/03/2026")
    (field,) = [field for field in find_header(rows_of(document), None) if field.name == "InvoiceDate"]

    assert "12/03/2026" == field.text == document.text[field.start : field.end]
    assert [2] == [place.page for place in field.places]


@pytest.mark.slow
def test_hostile_pages_end():
    """Thousands of labels and dates on a page, in rows, columns and one long line."""
    for text in (
        "\n".join([" ".join(["factura nº 1/2"] * 13)] * 250),
        "\n".join(["Fecha  Vencimiento  Nº  12/03/2026"] * 2000),
        "\n".join([" ".join(["12/03/2026 a"] * 15)] * 300),
        " ".join(["12/03/2026 a"] * 500),
    ):
        pages = rows_of_text(text)
        started = time.perf_counter()
        find_header(pages, None)
        assert time.perf_counter() - started < 10
