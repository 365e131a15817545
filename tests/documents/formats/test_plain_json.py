"""The JSON format."""

import orjson
import pytest
from hypothesis import given

from backend.documents.formats.plain_json import stream_json, written_pages
from backend.files.pages import Box, Document, RawWord, make_page
from tests.files.drawn import documents


@pytest.mark.slow
@given(documents())
def test_json_holds_every_word_at_its_place(document):
    """Words match their page's text, and pages their start in the document's text."""
    answer = orjson.loads(b"".join(stream_json(document)))

    assert len(document.pages) == len(answer["pages"])
    for page, written in zip(document.pages, answer["pages"], strict=True):
        assert page.text == written["text"]
        assert written["text"] == document.text[written["start"] :][: len(page.text)]
        assert [
            (word.text, [*word.box], word.confidence, word.start, word.end, word.line, word.block)
            for word in page.words
        ] == [tuple(word.values()) for word in written["words"]]


def test_a_page_of_very_many_words_is_written_in_parts():
    """None of them is long: a writer holds Python's lock to its end, and two copies of an answer are one too many."""
    words = [[[RawWord(str(number), Box(0.0, 0.0, 1.0, 1.0)) for number in range(10_000)]]]
    page = make_page(words, number=1, width=9.0, height=9.0, source="text_layer", why="asked for", engine="e")
    document = Document("pdf", (page, page), 2, "ff")

    pieces = list(written_pages(document))

    assert max(map(len, pieces)) < 200_000
    first, second = orjson.loads(b"".join(pieces))
    assert [str(number) for number in range(10_000)] == [word["text"] for word in first["words"]]
    assert first["words"] == second["words"]
    assert {"words", "text"} == first.keys() - orjson.loads(b"".join(written_pages(document, ("words", "text"))))[
        0
    ].keys()


def test_fields_stand_in_a_fixed_order_and_numbers_are_short():
    """Boxes are rounded to hundredths, confidences to four digits."""
    words = [[[RawWord("Sí", Box(1 / 3, 2.0, 10 / 3, 4.005), 0.987654)]]]
    page = make_page(
        words, number=2, width=595.276, height=841.89, source="ocr", why="asked for", engine="e", confidence=2 / 3
    )
    document = Document("pdf", (page,), 7, "ff", {"title": "A\x00B \ud800"})

    assert (
        b"".join(stream_json(document))
        == (
            '{"kind":"pdf","page_count":7,"sha256":"ff","metadata":{"title":"AB"},"pages":[{"number":2,"width":595.28,'
            '"height":841.89,"units_per_inch":72.0,"rotation":0,"source":"ocr","why":"asked for",'
            '"reasons":[{"code":"asked_for","params":{}}],"engine":"e",'
            '"confidence":0.6667,"language":null,"incomplete":false,"start":0,"text":"Sí","words":[{"text":"Sí","box":[0.33,2.0,3.33,4.0],'
            '"confidence":0.9877,"start":0,"end":2,"line":0,"block":0}]}]}'
        ).encode()
    )
