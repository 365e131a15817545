"""Dates under labels of two dates."""

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


def test_headings_of_boxes_all_over_a_page_take_linear_time() -> None:
    """Thousands of headings and numbers."""
    rows = rows_of_text("\n".join("Día Mes Año " * 15 + "\n" + "99 03 2026 " * 15 for _ in range(50)))
    start = time.process_time()
    find_header(rows, None)
    assert time.process_time() - start < 2.0
