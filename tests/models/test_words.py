"""Where words stand, and which word a piece is of."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.models.words import word_of_pieces, word_places


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("Madrid, España.", "Madrid|,|España|.", id="punctuation-stands-alone"),
        pytest.param("(«¿Qué?»)", "(|«|¿|Qué|?|»|)", id="brackets-and-quotes"),
        pytest.param("O'Brien-Díaz d\u2019Or AT&T", "O'Brien-Díaz|d\u2019Or|AT&T", id="joiners"),
        pytest.param("-alto- 'x'", "-|alto|-|'|x|'", id="joiners-at-an-edge-join-nothing"),
        pytest.param("1.200,50 12/03/2024 9:30", "1.200,50|12/03/2024|9:30", id="numbers-and-dates"),
        pytest.param("Cliente:Juan y/o Ana,Eva", "Cliente|:|Juan|y|/|o|Ana|,|Eva", id="no-joiner-between-letters"),
        pytest.param("S.A. U.S. fin.", "S.A.|U.S.|fin|.", id="abbreviations-keep-their-stop"),
        pytest.param("e\u0301l n\u0303u", "e\u0301l|n\u0303u", id="combining-characters"),
        pytest.param("👩‍👧 👍🏽", "👩‍👧|👍🏽", id="joined-emoji"),
        pytest.param("東京 カナ", "東|京|カ|ナ", id="scripts-without-spaces"),
        pytest.param("a\u00a0b\u2003c\nd", "a|b|c|d", id="every-blank"),
        pytest.param(" \t\n", "", id="blank"),
        pytest.param("", "", id="empty"),
    ],
)
def test_words_are_those_of_annotated_data(text, expected):
    """As CoNLL files cut them, for a tagger has learnt the label of each such word's first piece."""
    assert expected == "|".join(text[start:stop] for start, stop in word_places(text))


@given(st.text(st.characters(), max_size=80))
def test_words_lie_end_to_end_between_blanks(text):
    """Every character that is no blank is in exactly one word, and none other is."""
    words = word_places(text)

    inside = [place for start, stop in words.tolist() for place in range(start, stop)]
    blanks = {place for place, character in enumerate(text) if character.isspace()}
    assert sorted(set(range(len(text))) - blanks) == inside


def test_a_piece_is_of_its_first_characters_word():
    """A leading blank is passed over; a piece of blanks, or of nothing, is of no word; a long one of its first."""
    text = "la de  x."
    pieces = np.array([[0, 1], [1, 2], [2, 5], [5, 7], [7, 9], [4, 4], [9, 9]])

    found = word_of_pieces(pieces, word_places(text), len(text))

    assert [0, 0, 1, -1, 2, -1, -1] == found.tolist()


def test_a_text_without_words_has_pieces_of_none():
    """Byte-level tokenizers see blanks."""
    assert [-1] == word_of_pieces(np.array([[0, 3]]), word_places("   "), 3).tolist()
