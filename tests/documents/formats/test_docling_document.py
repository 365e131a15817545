"""DoclingDocument: valid by docling-core's own schema, in reading order, each part with its place."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
import orjson

from backend.documents.formats.docling_document import Heading, chunk_contexts, docling_document, elements
from backend.files.pages import Box, Document, RawWord, make_page
from backend.tables.records import Table, TableCell

SCHEMA = json.loads((Path(__file__).parent / "data" / "docling_document.schema.json").read_text())


def line(text: str, top: float, height: float = 10.0) -> list[RawWord]:
    return [RawWord(word, Box(50 + 60 * at, top, 100 + 60 * at, top + height)) for at, word in enumerate(text.split())]


def written() -> dict[str, Any]:
    """Of a page with a heading, a paragraph, a list and a table, and of an empty one."""
    blocks = [
        [line("Informe anual", 20, height=24)],
        [line("Un párrafo de texto.", 60), line("Sigue aquí.", 75)],
        [line("Puntos:", 100), line("1. uno", 115), line("2. dos", 130)],
        [line("Total 10,50", 200)],
    ]
    page = make_page(blocks, number=1, width=595, height=842, source="ocr", why="", engine="")
    blank = make_page([], number=2, width=595, height=842, source="ocr", why="", engine="")
    cells = (
        TableCell(0, 0, "Total", header=True, page=1, boxes=(Box(50, 200, 100, 210),)),
        TableCell(0, 1, "10,50", page=1, boxes=(Box(110, 200, 160, 210),)),
        TableCell(0, 2, "", page=1),
    )
    table = Table((1,), (Box(45, 195, 300, 215),), 1, 3, cells, "ruled", 0.9)
    document = Document("pdf", (page, blank), 2, "ff" * 32)
    answer: dict[str, Any] = orjson.loads(orjson.dumps(docling_document(document, [table], "informe.pdf")))
    return answer


def test_it_is_valid() -> None:
    jsonschema.validate(written(), SCHEMA)


def test_reading_order() -> None:
    """The body refers to every part once, as it stands on the page; items stand in their list."""
    document = written()

    parts = {node["self_ref"]: node for kind in ("texts", "groups", "tables") for node in document[kind]}
    body = [parts[child["$ref"]] for child in document["body"]["children"]]
    assert ["section_header", "text", "text", "list", "table"] == [part["label"] for part in body]
    assert ["Informe anual", "Un párrafo de texto. Sigue aquí.", "Puntos:"] == [part["text"] for part in body[:3]]
    items = [parts[child["$ref"]] for child in body[3]["children"]]
    assert [("1.", "uno", True, "#/groups/0"), ("2.", "dos", True, "#/groups/0")] == [
        (item["marker"], item["text"], item["enumerated"], item["parent"]["$ref"]) for item in items
    ]
    assert ["Total", "10,50", ""] == [cell["text"] for cell in body[4]["data"]["table_cells"]]


def test_places() -> None:
    """From the lower left; the pages are there even where they are empty."""
    document = written()

    [heading, *rest] = document["texts"]
    assert {"l": 50, "t": 822, "r": 160, "b": 798, "coord_origin": "BOTTOMLEFT"} == heading["prov"][0]["bbox"]
    tops = [text["prov"][0]["bbox"]["t"] for text in rest]
    assert all(above > below for above, below in pairwise(tops))
    assert {"1", "2"} == set(document["pages"])
    assert ("informe", 2**64 - 1) == (document["name"], document["origin"]["binary_hash"])


def test_contexts() -> None:
    """Headings of every level over a part's first paragraph, wherever they stand, and what is in the part."""
    blocks = [
        [line("Contrato marco", 20, height=24)],
        [line("Las partes acuerdan.", 60), line("Lo siguiente vale.", 75)],
        [line("Objeto del suministro", 100, height=16)],
        [line("Se entrega acero.", 130)],
    ]
    pages = [
        make_page(blocks, number=1, width=595, height=842, source="ocr", why="", engine=""),
        make_page(
            [[line("Sigue el acero.", 20)], [line("Otro título", 40, height=24)]],
            number=2, width=595, height=842, source="ocr", why="", engine="",
        ),
    ]  # fmt: skip
    document = Document("pdf", tuple(pages), 2, "ff" * 32)
    words = ("Contrato", "Lo siguiente", "Sigue", "Otro")
    starts = [document.text.index(word) for word in words]
    spans = list(pairwise([*starts, len(document.text)]))
    title, part = Heading(0, "Contrato marco"), Heading(document.text.index("Objeto"), "Objeto del suministro")

    contexts = chunk_contexts(document, [], spans)

    assert [(title,), (title,), (title, part), (Heading(starts[3], "Otro título"),)] == [
        context.headings for context in contexts
    ]
    expected = [("#/texts/1",), ("#/texts/1", "#/texts/3"), ("#/texts/4",), ("#/texts/5",)]
    assert expected == [context.items for context in contexts]


def test_elements() -> None:
    """Paragraphs and whole lists below their headings; none of a heading alone."""
    blocks = [
        [line("Contrato marco", 20, height=24)],
        [line("Lo siguiente vale.", 60)],
        [line("- uno", 100), line("- dos", 114)],
        [line("Otra parte", 150, height=24)],
        [line("Fin del contrato.", 190)],
    ]
    page = make_page(blocks, number=1, width=595, height=842, source="ocr", why="", engine="")
    document = Document("pdf", (page,), 1, "ff" * 32)

    found = [
        (" ".join(document.text[one.start : one.end].split()), [heading.text for heading in one.context.headings])
        for one in elements(document, [])
    ]

    assert [
        ("Lo siguiente vale.", ["Contrato marco"]),
        ("- uno - dos", ["Contrato marco"]),
        ("Fin del contrato.", ["Otra parte"]),
    ] == found
    assert [("#/texts/1",), ("#/texts/2", "#/texts/3"), ("#/texts/5",)] == [
        one.context.items for one in elements(document, [])
    ]
    assert {(1,)} == {one.pages for one in elements(document, [])}


def test_a_table_has_a_place() -> None:
    """Where its cells are words of the text."""
    cell = TableCell(0, 0, "Total", page=1, boxes=(Box(50, 20, 100, 30),), start=0, end=5)
    table = Table((1,), (Box(45, 15, 300, 35),), 1, 1, (cell,), "ruled", 0.9)
    page = make_page([[line("Total 10,50", 20)]], number=1, width=595, height=842, source="ocr", why="", engine="")

    [context] = chunk_contexts(Document("pdf", (page,), 1, "ff" * 32), [table], [(0, 11)])

    assert "#/tables/0" in context.items
