"""How words are written: each case, any script, and words together as words alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.models.words import KINDS, Spelling, word_places, word_spellings


def spelling_of(word):
    """The row of a word that stands alone."""
    return word_spellings(word, np.array([[0, len(word)]], np.int64))[0]


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        pytest.param("banco", Spelling.PLAIN, id="small"),
        pytest.param("Banco", Spelling.CAPITALISED, id="a-name"),
        pytest.param("Ñandú", Spelling.CAPITALISED, id="beyond-ascii"),
        pytest.param("E\u0301l", Spelling.CAPITALISED, id="an-accent-of-its-own"),
        pytest.param("O'Brien", Spelling.CAPITALISED, id="each-part-of-a-name"),
        pytest.param("Ruiz-Mateos", Spelling.CAPITALISED, id="two-names"),
        pytest.param("Ibex-35", Spelling.CAPITALISED, id="a-name-and-a-number"),
        pytest.param("\u01c5ungla", Spelling.CAPITALISED, id="a-titlecase-letter"),
        pytest.param("IVA", Spelling.CAPITALS, id="an-acronym"),
        pytest.param("S.A.", Spelling.CAPITALS, id="an-abbreviation"),
        pytest.param("COVID-19", Spelling.CAPITALS, id="capitals-and-a-number"),
        pytest.param("J.", Spelling.INITIAL, id="an-initial"),
        pytest.param("A4", Spelling.INITIAL, id="one-letter-and-a-digit"),
        pytest.param("McDonald", Spelling.MIXED, id="a-capital-inside"),
        pytest.param("iPhone", Spelling.MIXED, id="a-capital-later"),
        pytest.param("d\u2019Or", Spelling.MIXED, id="a-small-part-first"),
        pytest.param("2024", Spelling.PLAIN, id="digits"),
        pytest.param("...", Spelling.PLAIN, id="marks"),
        pytest.param("東", Spelling.PLAIN, id="a-script-without-case"),
        pytest.param("مرحبا", Spelling.PLAIN, id="right-to-left"),
        pytest.param("👩‍👧", Spelling.PLAIN, id="emoji"),
        pytest.param("\U0001d400\U0001d41b", Spelling.CAPITALISED, id="beyond-the-first-plane"),
    ],
)
def test_spelling_of(word, expected):
    """One row of the table a way to write."""
    assert expected == spelling_of(word)


def test_words_of_a_text():
    """Offsets are code points of the text; punctuation between words is a word."""
    text = "👍 El BBVA y J. Ruiz: e\u0301xito"
    words = word_places(text)

    assert [0, 1, 2, 0, 3, 0, 1, 0, 0] == word_spellings(text, words).tolist()


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_a_word_in_a_text_is_the_word_alone(text):
    """Its neighbours change nothing, and every row is one of the table's."""
    words = word_places(text)
    found = word_spellings(text, words)

    assert [spelling_of(text[start:stop]) for start, stop in words.tolist()] == found.tolist()
    assert set(found.tolist()) <= set(range(KINDS))


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_small_letters_are_plain(text):
    """Lowering a text leaves nothing to tell, but for the capitals that have no small form."""
    lowered = "".join(letter.lower() if len(letter.lower()) == 1 else "x" for letter in text)
    found = word_spellings(lowered, words := word_places(lowered))

    expected = [any(char.isupper() or char.istitle() for char in lowered[start:stop]) for start, stop in words.tolist()]
    assert expected == (found != Spelling.PLAIN).tolist()
