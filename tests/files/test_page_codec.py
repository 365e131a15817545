"""Encoding of pages and documents."""

import zlib

import orjson
import pytest

from backend.files import page_codec
from backend.files.page_codec import pack_document, pack_page, unpack_document, unpack_page
from backend.files.pages import Box, Document, Page, RawWord, Ruling, make_page
from backend.files.text_files import document_of_text


def page_of(number: int = 1, **changes: object) -> Page:
    blocks = [
        [[RawWord("Ñandú", Box(0.1, 1 / 3, 2.0, 3.0), 0.987654321), RawWord("€", Box(3, 0, 4, 1))]],
        [[RawWord("😀", Box(0, 9, 1, 10), 0.0)], [RawWord("fin", Box(1, 11, 2, 12))]],
    ]
    options = {"width": 595.276, "height": 841.89, "source": "ocr", "why": "because", "engine": "e 1"} | changes
    return make_page(blocks, number=number, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "page",
    [
        page_of(),
        page_of(confidence=0.5, language="es", rotation=90),
        page_of(7, incomplete=True),
        page_of(rulings=[Ruling(0.1, 1 / 3, 99.5, 1 / 3)]),
    ],
)
def test_a_page_comes_back_to_the_last_bit(page: Page) -> None:
    """Encoding is lossless."""
    assert page == unpack_page(pack_page(page))


def test_a_page_of_very_many_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is written and parsed in parts, each of which holds Python's lock; further pages stay apart."""
    many = make_page(
        [[[RawWord(str(number), Box(0, 0, 1, 1)) for number in range(10)]]],
        number=1,
        width=9.0,
        height=9.0,
        source="ocr",
        why="because",
        engine="e 1",
    )
    document = Document("pdf", (many, page_of(2), many), 3, "ff")
    monkeypatch.setattr(page_codec, "_WORDS_A_LINE", 4)

    assert 3 == len(zlib.decompress(pack_page(many)).split(b"\n"))
    assert many == unpack_page(pack_page(many))
    assert document == unpack_document(pack_document(document))


def test_equal_values_are_one_object() -> None:
    """A text of 737,000 words took 383 MiB when it came from the cache, 168 when it was read from its file."""
    [page] = document_of_text("alfa beta gamma\n" * 100).pages
    restored, again = unpack_page(pack_page(page)), unpack_page(pack_page(page))
    assert restored is not None
    assert again is not None

    first, second, later = restored.words[0], restored.words[3], again.words[-1]
    assert first.text is second.text
    assert first.box.left is second.box.left
    assert first.confidence is second.confidence
    assert restored.words[-1].start is later.start
    assert restored.words[-1].line is later.line


def test_a_page_of_an_earlier_release() -> None:
    """It knew no unfinished pages."""
    fields = orjson.loads(zlib.decompress(pack_page(page_of())))
    del fields["incomplete"]

    assert page_of() == unpack_page(zlib.compress(orjson.dumps(fields)))


@pytest.mark.parametrize("blob", [b"", b"nonsense", pack_page(page_of())[:-9], b"x\x9c\x03\x00\x00\x00\x00\x01"])
def test_foreign_bytes_are_no_page(blob: bytes) -> None:
    """Truncated, foreign and empty bytes give None."""
    assert unpack_page(blob) is None


def test_a_document_comes_back_page_by_page() -> None:
    """With its metadata and an empty page; each page is a line: a parser holds Python's lock to its end."""
    empty = make_page([], number=3, width=1, height=1, source="text_layer", why="blank", engine="pdfium")
    document = Document("pdf", (page_of(), page_of(2), empty), 9, "ab" * 32, {"title": "line\nbreak Ñ"})

    assert document == unpack_document(pack_document(document))
    assert [b"{"] * 4 == [line[:1] for line in pack_document(document).split(b"\n")]


def test_a_document_of_an_earlier_version_comes_back() -> None:
    """Jobs in Redis outlive the replica that wrote them: its documents were one object."""
    document = Document("pdf", (page_of(), page_of(2)), 9, "ab" * 32, {"title": "Ñ"})
    first, *pages = map(orjson.loads, pack_document(document).split(b"\n"))

    assert document == unpack_document(orjson.dumps(first | {"pages": pages}))
