"""Dates under labels of two dates, and in the boxes of day, month and year."""

from __future__ import annotations

import time

import pytest

from backend.invoices.header.find import find_header
from tests.invoices.rows import rows_of_text


def values(text: str) -> dict[str, str]:
    return {field.name: field.value for field in find_header(rows_of_text(text), None)}


@pytest.mark.parametrize(
    "text",
    [
        "Invoice date / Delivery date 4 March 2026",
        "Invoice date/Delivery date: 4 March 2026",
        "Invoice date / Delivery date 04 March 2026 / 02 March 2026",
        "Fecha de factura / Fecha de entrega: 04/03/2026",
        "Date of issue / date of supply: 4 March 2026",
        "Rechnungsdatum / Lieferdatum: 04.03.2026",
        "Rechnungs-/Lieferdatum 04.03.2026",
        "Date de la facture / Date de livraison 4 mars 2026",
        "Invoice / delivery date   04 March 2026",
    ],
)
def test_a_label_of_two_dates_says_the_invoices(text: str) -> None:
    """The first date behind it is the invoice's."""
    assert values(f"Invoice no. 33\n{text}")["InvoiceDate"] == "2026-03-04"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("FACTURA Nº    Día    Mes    Año\n118           12     03     2026", "2026-03-12"),
        ("Factura nº 118\nFecha\nDía  Mes  Año\n12   03   2026", "2026-03-12"),
        ("Factura nº 118\nFecha   Día 12 Mes 03 Año 2026", "2026-03-12"),
        ("FACTURA     DIA | MES | AÑO\n118         12 | 03 | 2026", "2026-03-12"),
        ("Recibo 118    Fecha   D     M       A\n                      12    marzo   26", "2026-03-12"),
        ("Invoice 118\nDate\nMonth    Day    Year\n  3       12    2026", "2026-03-12"),
        ("Factura 118\nDía  Mes  Año\n31   02   2026", None),
        ("Factura 118\nCuota por día  mes  año\n10   300   3000", None),
    ],
)
def test_a_date_in_three_boxes_is_read(text: str, expected: str | None) -> None:
    """Below or behind the headings, in their order; never a day that no calendar has."""
    assert values(text).get("InvoiceDate") == expected


def test_the_label_above_the_boxes_says_which_date_it_is() -> None:
    """Issued and due, side by side; a delivery's is neither."""
    found = values(
        "Factura nº 118\n"
        "FECHA FACTURA           FECHA VENCIMIENTO\n"
        "Día  Mes  Año           Día  Mes  Año\n"
        "12   03   2026          12   04   2026\n"
    )
    assert (found["InvoiceDate"], found["DueDate"]) == ("2026-03-12", "2026-04-12")
    delivered = values("Factura 118\nFecha de entrega    D   M   A\n                    12  03  2026\n")
    assert "InvoiceDate" not in delivered


def test_headings_of_boxes_all_over_a_page_take_linear_time() -> None:
    """Thousands of headings and numbers."""
    rows = rows_of_text("\n".join("Día Mes Año " * 15 + "\n" + "99 03 2026 " * 15 for _ in range(50)))
    start = time.process_time()
    find_header(rows, None)
    assert time.process_time() - start < 2.0
