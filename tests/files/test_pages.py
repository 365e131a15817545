"""Pages: their text and the spans of words in it."""

import pickle
from itertools import pairwise

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.files.pages import PAGE_GAP, Box, RawWord, blocks_of, bounding_box, make_page, printable_line
from backend.text.patterns import find_patterns
from backend.text.sentences import sentence_spans
from tests.files.drawn import BLOCKS, document_of, documents, page_of

ANYTHING = st.text(st.characters(exclude_categories=[]), max_size=20)  # lone surrogates and control characters too


def page_from(blocks: list[list[list[str]]]):
    box = Box(0, 0, 1, 1)
    words = [[[RawWord(text, box) for text in line] for line in block] for block in blocks]
    return make_page(words, number=1, width=1, height=1, source="ocr", why="", engine="")


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        pytest.param([[["Total", "10"], ["Fin"]], [["Pie"]]], "Total 10\nFin\n\nPie", id="blank-line-block"),
        pytest.param([[["a"], [], ["b"]], [], [[]], [["c"]]], "a\nb\n\nc", id="empty-lines-and-blocks-are-none"),
        pytest.param([[["\x00", " ", ""], ["a"]]], "a", id="empty-words-are-none"),
        pytest.param([[["a\nb\t c"]]], "a b c", id="white-space-inside"),
        pytest.param([[["\ud800x\x07y\ufffez\ufffd"]]], "xyz\ufffd", id="what-no-format-holds-goes"),
        pytest.param(
            [[["e\u0301", "👩\u200d👧", "שלום"]]], "e\u0301 👩\u200d👧 שלום", id="marks-joiners-and-hebrew-stay"
        ),
        pytest.param([], "", id="nothing"),
    ],
)
def test_text_of_a_page(blocks, expected):
    """Words are joined by a blank, lines by a break, blocks by an empty line."""
    assert expected == page_from(blocks).text


@given(st.lists(st.lists(st.lists(ANYTHING, max_size=4), max_size=3), max_size=3))
def test_words_match_their_spans(blocks):
    """A word is its span of the text, and between words are only gaps."""
    page = page_from(blocks)

    assert [word.text for word in page.words] == [page.text[word.start : word.end] for word in page.words]
    gaps = {page.text[before.end : after.start] for before, after in pairwise(page.words)}
    assert gaps <= {" ", "\n", "\n\n"}
    assert page.text == page.text.strip()
    assert all(word.text for word in page.words)


@given(st.lists(st.lists(st.lists(ANYTHING, max_size=4), max_size=3), max_size=3))
def test_lines_and_blocks_are_counted_without_holes(blocks):
    """Lines and blocks are numbered from 0 without holes, in agreement with the gaps in the text."""
    page = page_from(blocks)
    grouped = blocks_of(page)

    assert list(range(len(grouped))) == [block[0][0].block for block in grouped]
    lines = [line for block in grouped for line in block]
    assert list(range(len(lines))) == [line[0].line for line in lines]
    assert page.text == "\n\n".join(
        "\n".join(" ".join(word.text for word in line) for line in block) for block in grouped
    )


@given(ANYTHING)
def test_a_printable_line_can_be_written_anywhere(text):
    """The result is valid UTF-8 and JSON, on one line, and a second call changes nothing."""
    plain = printable_line(text)

    assert plain == orjson.loads(orjson.dumps(plain))
    assert plain == printable_line(plain)
    assert len(plain.splitlines()) <= 1


@pytest.mark.slow
@given(documents())
def test_pages_start_where_the_text_says(document):
    """Each page's text begins at its start, and nothing but the gap is between two."""
    text = document.text
    starts = document.page_starts

    assert [page.text for page in document.pages] == [
        text[start : start + len(page.text)] for start, page in zip(starts, document.pages, strict=True)
    ]
    assert len(text) == sum(len(page.text) for page in document.pages) + max(0, len(starts) - 1) * len(PAGE_GAP)


def test_nothing_is_read_across_a_page_break():
    """Neither an account nor a sentence continues from the end of a page to the start of the next."""
    halves = page_of([[["ES79", "2100", "0813"]]]), page_of([[["6101", "2345", "6789"]]], 2)
    document = document_of(*halves)
    text = document.text

    assert [] == [entity for entity in find_patterns(text, ["IBAN"]) if entity.valid]
    assert any(entity.valid for entity in find_patterns("ES79 2100 0813\n6101 2345 6789", ["IBAN"]))
    assert ["ES79 2100 0813", "6101 2345 6789"] == [text[start:end] for start, end in sentence_spans(text).tolist()]


@given(BLOCKS)
def test_a_document_can_be_pickled(blocks):
    """Documents are equal after a round trip."""
    document = document_of(page_of(blocks))

    assert document == pickle.loads(pickle.dumps(document))


def test_bounding_box():
    """The smallest box around others; an error for none."""
    assert Box(1, 2, 9, 8) == bounding_box([Box(1, 5, 3, 8), Box(2, 2, 9, 4)])
    with pytest.raises(ValueError, match="not enough values"):
        bounding_box([])


def test_boxes_scale():
    box = Box(1, 2, 3, 6)

    assert Box(2.5, 5, 7.5, 15) == box.scaled(2.5)
    assert (2, 4) == (box.width, box.height)
