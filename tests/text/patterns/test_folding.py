"""Folding of text and the map back to the original."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.text.patterns.folding import fold, visible


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        pytest.param("Año", "Ano", id="accent"),
        pytest.param("An\u0303o", "Ano", id="combining-accent"),
        pytest.param("1\u00a0284\u202f50", "1 284 50", id="blanks"),
        pytest.param("a\u2013b\u2212c\u2011d", "a-b-c-d", id="hyphens"),
        pytest.param("١٢۳", "123", id="digits"),
        pytest.param("m²", "m²", id="a-power-is-no-digit"),
        pytest.param("n.° 1.º", "n.º 1.º", id="degree-sign"),
        pytest.param("\uff25\uff0b\uff11", "E+1", id="full-width"),
        pytest.param("a\u200db\u00adc\u202ed", "abcd", id="no-width"),
        pytest.param("a\tb\rc\fd", "a b c\nd", id="control"),
        pytest.param("한글 漢字 ß", "한글 漢字 ß", id="others-stay"),
    ],
)
def test_fold(text, plain):
    """One spelling of each digit, blank, hyphen and letter."""
    assert plain == fold(text).text


@given(st.text())
def test_spans_map_to_the_original(text):
    """The folded text is never longer, and each character comes from a span that folds to it."""
    folded = fold(text)

    assert len(folded.text) <= len(text)
    for index in range(len(folded.text)):
        start, end = folded.span(index, index + 1)
        assert folded.text[index] == fold(text[start:end]).text


@given(st.text(alphabet="ae\u0301\u0308 \u200d1"))
def test_marks_belong_to_the_letter_before(text):
    """A span includes the marks of its last letter, so that no accent is left over."""
    folded = fold(text)

    for end in range(1, len(folded.text) + 1):
        stop = folded.span(0, end)[1]
        assert stop == len(text) or unicodedata.category(text[stop]) not in ("Mn", "Me")


def test_visible():
    """Composed, without characters of no width."""
    assert "peña" == visible("pen\u0303\u00ada\u200b")
