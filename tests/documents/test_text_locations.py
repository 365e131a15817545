"""From a stretch of text to boxes on pages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.documents.pages import Box, around
from backend.documents.text_locations import Place, places
from tests.documents.drawn import document_of, documents, page_of


@pytest.fixture
def document():
    """Two pages; on the first an IBAN over two lines."""
    first = page_of([[["Cuenta:", "ES79", "2100"], ["0813", "6101"]], [["Fin"]]])
    return document_of(first, page_of([[["Total", "10,00", "€"]]], 4))


def boxes(document, page_index, *words):
    page = document.pages[page_index]
    return [around(page.words[index].box for index in group) for group in words]


def test_one_box_a_line(document):
    """What goes over a line's end has a box on each line, from its first word to its last."""
    start = document.text.index("ES79")
    end = document.text.index("6101") + 4

    first, second = boxes(document, 0, (1, 2), (3, 4))
    assert [Place(1, first), Place(1, second)] == places(document, start, end)


def test_pages_keep_their_numbers(document):
    """A place is on the page of the file, also where pages between were not read; one may go over two."""
    start = document.text.index("Fin")
    end = document.text.index("10,00") + 1

    [last], [first] = boxes(document, 0, (5,)), boxes(document, 1, (0, 1))
    assert [Place(1, last), Place(4, first)] == places(document, start, end)


@pytest.mark.parametrize(
    ("start", "end"),
    [pytest.param(7, 8, id="a-gap"), pytest.param(10**6, 10**6 + 5, id="beyond"), pytest.param(3, 3, id="nothing")],
)
def test_where_no_word_is_there_is_no_place(document, start, end):
    """Gaps, what is beyond the text, and an empty stretch are nowhere."""
    assert [] == places(document, start, end)


def test_a_part_of_a_word_counts_in_full(document):
    """What is to be blacked out must not stick out."""
    start = document.text.index("uenta")

    assert [Place(1, document.pages[0].words[0].box)] == places(document, start, start + 2)


def test_nothing_is_nowhere():
    assert [] == places(document_of(), 0, 10)
    assert [] == places(document_of(page_of([])), 0, 10)


@given(documents(), st.data())
def test_places_are_those_of_the_words_touched(document, data):
    """Every word that the stretch touches is in a box of its page, and each box is around such words alone."""
    size = len(document.text)
    start = data.draw(st.integers(0, size))
    end = data.draw(st.integers(start, size + 3))
    found = places(document, start, end)

    expected: dict[tuple[int, int], list[Box]] = {}
    for page, offset in zip(document.pages, document.page_starts, strict=True):
        for word in page.words:
            if word.start + offset < end and word.end + offset > start and start < end:
                expected.setdefault((page.number, word.line), []).append(word.box)
    assert [Place(page, around(group)) for (page, _), group in expected.items()] == found
