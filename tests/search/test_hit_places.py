"""Boxes of a hit's lines and of the query's words in it."""

from backend.files.pages import Box
from backend.search.keywords import query_terms
from backend.search.records import PlacedWord, StoredChunk
from backend.search.retrieval import PageBox, highlights_of, line_places, pages_of

_TEXT = "Total de la fac-\ntura 1.284,50 €"
_WORDS = (
    PlacedWord(0, 5, 1, 7, Box(10, 10, 30, 20)),
    PlacedWord(6, 8, 1, 7, Box(32, 11, 40, 20)),
    PlacedWord(9, 11, 1, 7, Box(42, 10, 48, 21)),
    PlacedWord(12, 16, 1, 7, Box(50, 10, 70, 20)),
    PlacedWord(17, 21, 2, 0, Box(10, 5, 30, 15)),
    PlacedWord(22, 30, 2, 0, Box(32, 5, 60, 15)),
    PlacedWord(31, 32, 2, 0, Box(62, 5, 66, 15)),
)
_CHUNK = StoredChunk(1, "file-1", 0, 100, 132, _TEXT, 9, _WORDS)


def test_a_box_a_line():
    """Words of a line are one box; a line with the same number on the next page is another."""
    assert (PageBox(1, Box(10, 10, 70, 21)), PageBox(2, Box(10, 5, 66, 15))) == line_places(_WORDS)
    assert (1, 2) == pages_of(_WORDS)


def test_highlights_have_the_boxes_of_their_words():
    """A word that is hyphenated across pages has a box on either; other words have none."""
    word, amount = highlights_of(_CHUNK, query_terms("facturas 1284.5"), "es")

    assert "fac-\ntura" == _TEXT[word.start : word.end]
    assert (PageBox(1, Box(50, 10, 70, 20)), PageBox(2, Box(10, 5, 30, 15))) == word.places
    assert "1.284,50" == _TEXT[amount.start : amount.end]
    assert (PageBox(2, Box(32, 5, 60, 15)),) == amount.places


def test_plain_text_has_no_boxes():
    """Highlights of a text without pages have a span only."""
    (highlight,) = highlights_of(StoredChunk(1, "file-1", 0, 0, 5, "Total", 1), query_terms("total"), "es")

    assert (0, 5, ()) == (highlight.start, highlight.end, highlight.places)
    assert () == line_places(())
    assert () == pages_of(())
