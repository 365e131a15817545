"""What is an invoice, a receipt or a statement, and what is none."""

from __future__ import annotations

import pytest

from backend.files.text_files import document_of_text
from backend.files.visual_rows import rows_of
from backend.invoices.document_kind import document_kind

INVOICE = """Aceros del Norte, S.L.      FACTURA
Nº factura: 2026/017       Fecha: 12/03/2026
Base imponible    1.000,00 €
IVA 21 %            210,00 €
Total             1.210,00 €"""
SPACED = """Estudio Luna        F A C T U R A
FECHA DE EMI S IÓN   2 de mayo de 2026
Total a pagar   50,00 €"""
LETTER_INVOICE = """Factura que emite Juan Pérez (NIF 12345678Z) con el número 14 a la empresa Talleres Ruiz S.L. por
los servicios prestados en el mes de febrero según lo acordado entre las partes y sin más condiciones que las dichas.
Importe       500,00 €
Total         605,00 €"""
SPOKEN_INVOICE = """Bufete Arriaga y Ochoa, S.L.P.
Minuta de honorarios n.º 31/2026
Muy señores nuestros: por nuestra intervención en el procedimiento ordinario 512/2025, hasta la sentencia firme.
Nuestros honorarios ascienden a 2.850,00 €, a los que debe añadirse el IVA del 21 %, es decir, 598,50 €. El importe
total de la minuta es por tanto de 3.448,50 €, que les rogamos abonen antes del 25 de junio de 2026."""
SPOKEN_LETTER = """Bufete Arriaga y Ochoa, S.L.P.
Nuestra factura n.º 31/2026
Muy señores nuestros: no hemos recibido hasta hoy el importe total de 3.448,50 €, que les rogamos abonen cuanto antes en
nuestra cuenta, pues en otro caso tendríamos que reclamarlo por vía judicial sin nuevo aviso y con sus intereses."""
CREDIT = """CREDIT NOTE
Credit note number: CN-7
Total   -120.00"""
RECEIPT = """CAFE LUNA
2 CAFE SOLO   2,40
TOTAL         2,40
EFECTIVO      5,00
CAMBIO        2,60"""
STATEMENT = """Banco Sur       Extracto de cuenta
Fecha    Concepto     Cargo    Abono    Saldo
01/03    NOMINA                1.000,00  2.000,00"""
CONTRACT = """CONTRATO DE ARRENDAMIENTO
El arrendatario pagará la renta dentro de los cinco primeros días de cada mes contra la factura que emita el arrendador
en la cuenta que este le indique, y el importe total de la fianza se entrega en este acto en metálico."""
PAYSLIP = """RECIBO INDIVIDUAL DE SALARIOS
Devengos          Importe
Salario base      1.200,00
Total devengado   1.200,00
Líquido           1.000,00"""
QUOTE = """PRESUPUESTO
Pintar la fachada   900,00 €
IVA 21 %            189,00 €
Total             1.089,00 €"""


def _kind(text: str, document_type: str | None = None) -> str | None:
    return document_kind(rows_of(document_of_text(text)), document_type).kind


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        pytest.param(INVOICE, "invoice", id="invoice"),
        pytest.param(SPACED, "invoice", id="letter-spaced"),
        pytest.param(LETTER_INVOICE, "invoice", id="written-as-a-letter"),
        pytest.param(SPOKEN_INVOICE, "invoice", id="amounts-in-sentences"),
        pytest.param(SPOKEN_LETTER, None, id="letter-about-an-invoice"),
        pytest.param(CREDIT, "credit_note", id="credit-note"),
        pytest.param(RECEIPT, "receipt", id="receipt-without-a-title"),
        pytest.param(STATEMENT, "bank_statement", id="statement"),
        pytest.param(CONTRACT, None, id="contract-that-mentions-an-invoice"),
        pytest.param(PAYSLIP, None, id="payslip"),
        pytest.param(QUOTE, None, id="quote"),
        pytest.param("", None, id="nothing"),
    ],
)
def test_kinds(text: str, kind: str | None) -> None:
    """Titles, numbers' labels and totals beside amounts make a business document."""
    assert kind == _kind(text)


@pytest.mark.parametrize(
    "sentence",
    [
        "Este documento no es una factura y no tiene validez fiscal.",
        "Este documento não serve de fatura.",
        "Il presente documento non costituisce fattura.",
        "Diese Aufstellung ist keine Rechnung.",
        "Ce document ne constitue pas une facture.",
        "This document is not an invoice.",
    ],
)
def test_what_says_that_it_is_no_invoice(sentence: str) -> None:
    """A pro forma invoice has the title, the parties and the sums of one."""
    assert _kind(f"{INVOICE}\n{sentence}") is None
    assert _kind(f"{INVOICE}\nThis is not a VAT invoice.") == "invoice"


@pytest.mark.parametrize(
    "heading",
    [
        "RECORDATORIO DE PAGO",
        "2. Mahnung",
        "REMITTANCE ADVICE                    31/05/2026",
        "Certificado de retenciones 2025",
        "Liquidación de gastos de viaje",
    ],
)
def test_headings_of_other_papers(heading: str) -> None:
    """What lists invoices with a total is none, whatever class they have; above an invoice's title it is a label."""
    rows = "Factura     Fecha        Importe\n26/0331     01/06/2026    312,40\nTotal pendiente           312,40"

    assert [None, None] == [_kind(f"{heading}\n{rows}"), _kind(f"{heading}\n{rows}", "invoice")]
    assert _kind(f"{heading}\n{INVOICE}") == _kind(f"Contrato: 0098812231\n{INVOICE}") == "invoice"


def test_the_classifier_helps_where_the_page_says_little() -> None:
    """Two points are too few alone, enough for what was classed as a receipt, and too few against another class."""
    text = "Bar Sol\nTOTAL   2,40\nIVA  0,22"

    assert [None, "receipt", None] == [_kind(text), _kind(text, "receipt"), _kind(text, "contract")]


def test_the_reason_is_said() -> None:
    """What was found, or what is missing."""
    assert "title invoice" in document_kind(rows_of(document_of_text(INVOICE))).why
    assert "title is a quote's" in document_kind(rows_of(document_of_text(QUOTE))).why


def test_end_of_a_sentence_is_no_heading():
    """ "hoja de encargo" on a line of its own is an order's title, and the end of a sentence is not."""
    text = "Factura número 09/26\nHonorarios del proyecto, según la\nhoja de encargo de 3 de febrero.\n"
    amounts = "Base imponible: 100,00 €\nIVA 21 %: 21,00 €\nTotal: 121,00 €\n"
    assert _kind(text + amounts) == "invoice"
