"""Pages that no printer makes: they cost time in proportion to their words, and raise nothing."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import pytest

from backend.files.pages import Box, Document, Page, Ruling
from backend.files.text_files import document_of_text
from backend.invoices.extract import extract_fields
from backend.tables.find import find_tables

INVOICE = (
    "Aceros del Norte, S.L.\nFACTURA 2026/017   Fecha 12/03/2026\nCliente: Ana Ruiz\n"
    "Concepto   Cantidad   Precio   Importe\nTornillo   2   30,00   60,00\nTuerca   4   10,00   40,00\n"
    "Base imponible  100,00\nIVA 21 %  21,00\nTotal  121,00 EUR"
)


def _document(page: Page) -> Document:
    return Document("pdf", (page,), 1, "0" * 64)


def _with_boxes(box: Box, *, share: int) -> Document:
    """The invoice with every ``share``-th word there."""
    page = document_of_text(INVOICE).pages[0]
    words = tuple(replace(word, box=box) if index % share == 0 else word for index, word in enumerate(page.words))
    return _document(replace(page, words=words))


@pytest.mark.parametrize("share", [1, 2, 3])
@pytest.mark.parametrize(
    "box",
    [
        Box(0.0, 0.0, 0.0, 0.0), Box(10.0, 10.0, 50.0, 10.0), Box(math.nan, 1.0, 2.0, math.nan),
        Box(-math.inf, 0.0, math.inf, 10.0), Box(0.0, 0.0, 1e308, 1e308), Box(50.0, 20.0, 10.0, 5.0),
    ],
)  # fmt: skip
def test_words_at_impossible_places(box: Box, share: int) -> None:
    """Words without a height or off any paper are not looked at."""
    document = _with_boxes(box, share=share)

    extract_fields(document, "invoice")
    find_tables(document)


def test_a_page_without_a_size() -> None:
    """Its words have places all the same."""
    page = replace(
        document_of_text(INVOICE).pages[0], width=0.0, height=0.0, rulings=(Ruling(math.nan, 1, math.inf, 1),)
    )
    values = {field.name: field.value for field in extract_fields(_document(page)).fields}

    assert "121.00" == values["InvoiceTotal"]
    find_tables(_document(page))


def test_numbers_that_are_no_amounts() -> None:
    """Beyond a quadrillion nothing is reckoned with: Decimal rounds 28 digits."""
    text = INVOICE.replace("121,00", "9" * 30 + ",99").replace("30,00", "9" * 26 + ",00")

    assert all(field.value.count("9") < 20 for field in extract_fields(document_of_text(text)).fields)


@pytest.mark.slow
def test_a_number_as_long_as_a_book() -> None:
    """Two hundred thousand digits took twelve seconds, a million five minutes."""
    document = document_of_text(INVOICE.replace("121,00", "1" * 200_000))
    started_s = time.thread_time()
    extract_fields(document)

    assert time.thread_time() - started_s < 5.0


def test_a_base_on_the_page_before_its_tax() -> None:
    """Each value has the place at which it is printed: start, end and page."""
    texts = ("FACTURA 2026/017\nBase imponible   100,00", "IVA 21 %   21,00\nTotal   121,00 EUR")
    pages = [replace(document_of_text(text).pages[0], number=number) for number, text in enumerate(texts, 1)]
    document = Document("pdf", tuple(pages), 2, "0" * 64)
    rows = next(field.rows for field in extract_fields(document, "invoice").fields if field.name == "TaxDetails")

    printed = [field for row in rows for field in row.fields if field.start is not None]
    assert {"Base", "Amount"} == {field.name for field in printed}
    assert all(document.text[field.start : field.end] == field.text for field in printed)
    assert [1, 2] == [field.places[0].page for field in printed]
