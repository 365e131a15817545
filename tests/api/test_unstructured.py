"""Unstructured's dialect: files as lists of elements, as its client and Dify ask for them."""

from functools import partial
from typing import Any

import httpx
import pytest

from backend.documents.records import Understood
from backend.files.pages import Box, Document, RawWord, make_page
from backend.tables.records import Table, TableCell
from tests.api import document_fakes
from tests.api.checks import problem
from tests.api.fakes import FakeServices

URL = "/general/v0/general"
PDF = b"%PDF-1.7 of a test"
FILES = {"files": ("factura ñ.pdf", PDF, "application/pdf")}


async def test_elements(client: httpx.AsyncClient, services: FakeServices) -> None:
    """With page numbers that go on where a client split the file, places, and breaks between pages."""
    fields = {"strategy": "fast", "languages[]": ["eng", "spa"], "coordinates": "true", "include_page_breaks": "true"}

    answer = (await client.post(URL, files=FILES, data={**fields, "starting_page_number": "5"})).json()

    [(content, options, _)] = services.documents.calls
    assert (PDF, "text_layer", ("en", "es")) == (content, options.source, options.languages)
    assert [
        ("NarrativeText", 5, "IBAN ES91 2100 Total 1.284,50 €"), ("PageBreak", 6, ""), ("NarrativeText", 6, "<b> &"),
    ] == [(one["type"], one["metadata"]["page_number"], one["text"]) for one in answer]  # fmt: skip
    place = answer[0]["metadata"]["coordinates"]
    assert ([[0, 0], [0, 32], [145, 32], [145, 0]], "PointSpace", 595) == (
        place["points"], place["system"], place["layout_width"],
    )  # fmt: skip
    assert ("factura ñ.pdf", "application/pdf") == tuple(
        answer[0]["metadata"][name] for name in ("filename", "filetype")
    )
    assert 3 == len({one["element_id"] for one in answer})


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page with a title, two items of a list and a table."""
    rows = [["Tornillos", "12,50"], ["Tuercas", "3,00"]]
    title = [[RawWord("Título", Box(50, 20, 250, 50), 0.9)]]
    listed = [
        [RawWord("•", Box(50, top, 55, top + 12), 0.9), RawWord(word, Box(60, top, 100, top + 12), 0.9)]
        for word, top in (("ES91", 80), ("dos", 95))
    ]
    table = [
        [RawWord(word, Box(50 + 200 * column, 200 + 20 * row, 150 + 200 * column, 212 + 20 * row), 0.9)
         for column, word in enumerate(words)]
        for row, words in enumerate(rows)
    ]  # fmt: skip
    page = make_page(
        [title, listed, table], number=1, width=595.0, height=842.0, source="ocr", why="", engine="", confidence=0.9
    )
    cells = tuple(
        TableCell(
            row,
            column,
            word,
            page=1,
            boxes=(Box(50 + 200 * column, 200 + 20 * row, 150 + 200 * column, 212 + 20 * row),),
        )
        for row, words in enumerate(rows)
        for column, word in enumerate(words)
    )
    found = Table((1,), (Box(50, 200, 350, 232),), 2, 2, cells, "ruled", 1.0)
    monkeypatch.setattr(document_fakes, "document", lambda: Document("pdf", (page,), 1, "ab" * 32, {}))
    monkeypatch.setattr(document_fakes, "Understood", partial(Understood, tables=(found,)))


async def test_kinds_of_elements(client: httpx.AsyncClient, printed: None) -> None:
    """A title, which what follows refers to, items without their marks, and a table with its HTML."""
    del printed
    title, one, two, table = (await client.post(URL, files=FILES)).json()

    assert [
        ("Title", "Título"),
        ("ListItem", "ES91"),
        ("ListItem", "dos"),
        ("Table", "Tornillos 12,50 Tuercas 3,00"),
    ] == [(element["type"], element["text"]) for element in (title, one, two, table)]
    assert {title["element_id"]} == {element["metadata"]["parent_id"] for element in (one, two, table)}
    assert "<td>Tornillos</td><td>12,50</td>" in table["metadata"]["text_as_html"].replace(' class="number"', "")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"chunking_strategy": "None"}, ["Título", "ES91", "dos", "Tornillos 12,50 Tuercas 3,00"]),
        ({"chunking_strategy": "by_title"}, ["Título\n\nES91\n\ndos", "Tornillos 12,50 Tuercas 3,00"]),
        (
            {"chunking_strategy": "basic", "new_after_n_chars": "3"},
            ["Título", "ES91", "dos", "Tornillos 12,50 Tuercas 3,00"],
        ),
        (
            {"chunking_strategy": "basic", "max_characters": "17"},
            ["Título\n\nES91\n\ndos", "Tornillos 12,50", "Tuercas 3,00"],
        ),
    ],
)
async def test_chunks(client: httpx.AsyncClient, printed: None, fields: dict[str, Any], expected: list[str]) -> None:
    """Neighbours together up to a size; a table stays alone, and what is longer is cut at a blank."""
    del printed
    chunks = (await client.post(URL, files=FILES, data=fields)).json()

    assert expected == [chunk["text"] for chunk in chunks]
    assert "Table" in chunks[-1]["type"]


async def test_several_files(client: httpx.AsyncClient) -> None:
    """A list for each."""
    answer = (await client.post(URL, files=[("files", ("a.pdf", PDF)), ("files", ("b.pdf", PDF))])).json()

    assert [["a.pdf"] * 2, ["b.pdf"] * 2] == [[one["metadata"]["filename"] for one in file] for file in answer]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"chunking_strategy": "by_similarity"}, "chunking_strategy"),
        ({"output_format": "text/csv"}, "output_format"),
        ({"languages": "tlh"}, "languages: 'tlh' is no language"),
        ({"chunking_strategi": "basic"}, "did you mean 'chunking_strategy'?"),
    ],
)
async def test_what_is_refused(client: httpx.AsyncClient, fields: dict[str, Any], named: str) -> None:
    problem(await client.post(URL, files=FILES, data=fields), 422, "invalid_field", named)


async def test_what_its_client_asks_before_it_splits(client: httpx.AsyncClient) -> None:
    assert 200 == (await client.get("/general/docs")).status_code
