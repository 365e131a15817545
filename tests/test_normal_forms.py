"""Normal forms as Python's, without marks that no text has."""

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.normal_forms import normalized

FORMS = ("NFC", "NFD", "NFKC", "NFKD")
MARKS = "\u0301\u0316\u0345\u093c\u0f73\uff9e"


@pytest.mark.parametrize("form", FORMS)
@given(text=st.text(st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from(f"aé가ﬁ{MARKS}")), max_size=30))
def test_a_text_with_few_marks_in_a_row(form, text):
    assert unicodedata.normalize(form, text) == normalized(form, text)


@pytest.mark.parametrize("form", FORMS)
def test_marks_after_thirty_others_are_left_out(form):
    """Half a million would take Python ten minutes; those of another row count anew."""
    for marks in ("\u0301\u0316", "\u0f73\u0345", "\uff9e\u0301"):
        row = marks * 15

        assert unicodedata.normalize(form, f"e{row}!\u0130{row}") == normalized(
            form, f"e{row * 20_000}!\u0130{row * 2}"
        )


def test_every_mark_is_found():
    """Any character whose decomposition begins with a combining mark."""
    marks = [
        one
        for one in map(chr, range(sys.maxunicode + 1))
        if unicodedata.combining(unicodedata.normalize("NFKD", one)[0])
    ]

    assert [] == [one for one in marks if len(normalized("NFKC", one * 100)) > 90]
