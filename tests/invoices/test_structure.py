"""Fields and tables of a bounded part of a document; a fault in finding them is told apart."""

from __future__ import annotations

import logging
import random
from dataclasses import replace
from itertools import groupby

import pytest

from backend.errors import InferenceFailed
from backend.files.einvoice.records import EInvoice
from backend.files.pages import Box, Document, Page, RawWord, make_page
from backend.files.text_files import document_of_text
from backend.invoices import structure
from backend.invoices.structure import fields_of, tables_of, tables_or_none
from backend.reasons import reasons_in
from tools.papers.paper import MadePage, make_paper

INVOICE = "FACTURA 2026/017   Fecha 12/03/2026\nBase imponible  1.061,57\nIVA 21 %  222,93\nTotal  1.284,50 EUR"


def _fault(*_: object) -> None:
    raise ZeroDivisionError("of a secret amount")


def _pages(*texts: str) -> Document:
    pages = [replace(document_of_text(text).pages[0], number=number) for number, text in enumerate(texts, 1)]
    return Document("pdf", tuple(pages), len(pages), "0" * 64)


def test_a_fault_is_an_error_of_the_service(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Logged once with its kind, and nothing of what it quotes."""
    monkeypatch.setattr(structure, "extract_fields", _fault)
    monkeypatch.setattr(structure, "find_tables", _fault)
    document = document_of_text(INVOICE)

    with caplog.at_level(logging.INFO), pytest.raises(InferenceFailed, match=r"^fields: .*ZeroDivisionError"):
        fields_of(document)
    with pytest.raises(InferenceFailed, match=r"^tables: "):
        tables_of(document)
    assert () == tables_or_none(document)
    assert "fields or tables could not be read" in caplog.text
    assert "secret" not in caplog.text


def test_the_electronic_invoice_outlives_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is data needs no reading of the page."""
    monkeypatch.setattr(structure, "extract_fields", _fault)
    document = replace(document_of_text(INVOICE), einvoice=EInvoice("UBL", {"InvoiceId": "17"}))

    assert [("InvoiceId", "17")] == [(field.name, field.value) for field in fields_of(document).fields]


@pytest.mark.parametrize(
    ("limits", "looked_at"),
    [
        pytest.param({}, None, id="all"),
        pytest.param({"MAX_PAGE_WORDS": 15}, 15, id="a-long-first-page"),
        pytest.param({"MAX_WORDS": 20}, 20, id="many-pages"),
        pytest.param({"MAX_PAGE_CHARS": 125}, 18, id="a-long-text"),
    ],
)
def test_only_so_many_words_are_looked_at(
    monkeypatch: pytest.MonkeyPatch, limits: dict[str, int], looked_at: int | None
) -> None:
    """The answer says so, and its places are those of the whole document."""
    for name, most in limits.items():
        monkeypatch.setattr(structure, name, most)
    document = _pages(INVOICE + "\nGracias por su compra" * 2, "Gracias por su visita " * 30)
    found = fields_of(document)

    assert (looked_at is not None) == ("were looked at" in found.why)
    assert looked_at is None or f"the first {looked_at} words" in found.why
    total = next(field for field in found.fields if field.name == "InvoiceTotal")
    assert "1.284,50" in document.text[total.start : total.end]


def test_every_reason_has_a_code():
    """What is said of fields can be put into other languages: on papers of many designs no sentence is unknown."""
    rng, said = random.Random(7), set[str]()
    for _ in range(25):
        pages = tuple(_printed(page, number) for number, page in enumerate(make_paper(rng), 1))
        found = fields_of(Document("pdf", pages, len(pages), "0" * 64))
        for one in (found, *found.others):
            cells = [cell for field in one.fields for row in field.rows for cell in row.fields]
            said |= {one.why, *(field.why for field in (*one.fields, *cells))}

    assert len(said) > 50
    assert [] == [why for why in said if any(reason["code"] == "other" for reason in reasons_in(why))]


def _printed(made: MadePage, number: int) -> Page:
    rows = groupby(made.words, lambda word: word.box[1])
    lines = [[RawWord(word.text, Box(*word.box), 1.0) for word in row] for _, row in rows]
    return make_page(
        [lines], number=number, width=made.width, height=made.height, source="text_layer", why="", engine="test"
    )
