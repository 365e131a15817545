"""Spans of text as boxes on pages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.files.pages import Box, TextLocation, bounding_box, locate
from tests.files.drawn import document_of, documents, page_of


@pytest.fixture
def document():
    """Two pages; on the first an IBAN over two lines."""
    first = page_of([[["Cuenta:", "ES79", "2100"], ["0813", "6101"]], [["Fin"]]])
    return document_of(first, page_of([[["Total", "10,00", "€"]]], 4))


def boxes(document, page_index, *words):
    page = document.pages[page_index]
    return [bounding_box(page.words[index].box for index in group) for group in words]


def test_one_box_a_line(document):
    """A span over a line end has a box on each line, from its first word to its last."""
    start = document.text.index("ES79")
    end = document.text.index("6101") + 4

    first, second = boxes(document, 0, (1, 2), (3, 4))
    assert [TextLocation(1, first), TextLocation(1, second)] == locate(document, start, end)


def test_pages_keep_their_numbers(document):
    """Page numbers are those of the file, also if pages between were not read; a span may cover two pages."""
    start = document.text.index("Fin")
    end = document.text.index("10,00") + 1

    [last], [first] = boxes(document, 0, (5,)), boxes(document, 1, (0, 1))
    assert [TextLocation(1, last), TextLocation(4, first)] == locate(document, start, end)


@pytest.mark.parametrize(
    ("start", "end"),
    [pytest.param(7, 8, id="a-gap"), pytest.param(10**6, 10**6 + 5, id="beyond"), pytest.param(3, 3, id="nothing")],
)
def test_where_no_word_is_there_is_no_place(document, start, end):
    """Gaps, spans beyond the text and empty spans have no boxes."""
    assert [] == locate(document, start, end)


def test_a_part_of_a_word_counts_in_full(document):
    """Whatever is blacked out must be covered completely."""
    start = document.text.index("uenta")

    assert [TextLocation(1, document.pages[0].words[0].box)] == locate(document, start, start + 2)


def test_empty_documents_have_no_places():
    assert [] == locate(document_of(), 0, 10)
    assert [] == locate(document_of(page_of([])), 0, 10)


@pytest.mark.slow
@given(documents(), st.data())
def test_places_are_those_of_the_words_touched(document, data):
    """Every word that the span touches is in a box of its line, and boxes contain no other words."""
    size = len(document.text)
    start = data.draw(st.integers(0, size))
    end = data.draw(st.integers(start, size + 3))
    found = locate(document, start, end)

    expected: dict[tuple[int, int], list[Box]] = {}
    for page, offset in zip(document.pages, document.page_starts, strict=True):
        for word in page.words:
            if word.start + offset < end and word.end + offset > start and start < end:
                expected.setdefault((page.number, word.line), []).append(word.box)
    assert [TextLocation(page, bounding_box(group)) for (page, _), group in expected.items()] == found
