"""Escaping for XML and HTML."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree, html

from backend.files.markup import escaped, is_right_to_left, language_tag, number

ANYTHING = st.text(st.characters(exclude_categories=[]), max_size=30)


@given(ANYTHING)
def test_escaped_text_is_read_back(text):
    """An XML parser restores the text in attributes and elements, without characters that XML forbids."""
    kept = "".join(
        one
        for one in text
        if one in "\t\n\r" or " " <= one <= "\ud7ff" or "\ue000" <= one <= "\ufffd" or one > "\uffff"
    )
    root = etree.fromstring(f'<a b="{escaped(text)}">{escaped(text)}</a>'.encode())

    assert kept == root.get("b")
    assert kept == (root.text or "")


@given(st.text(st.characters(exclude_categories=["Cs", "Cc", "Cn"]), min_size=1, max_size=30))
def test_html_reads_the_same(text):
    root = html.fragment_fromstring(f'<p title="{escaped(text)}">x{escaped(text)}x</p>')

    assert f"x{text}x" == root.text
    assert len(root) == 0


@pytest.mark.parametrize(
    ("value", "expected"),
    [(12.0, "12"), (12.5, "12.5"), (1e-9, "0"), (-0.0001, "0"), (1e7, "10000000"), (-3.14159, "-3.14"), (100.0, "100")],
)
def test_numbers_are_short(value, expected):
    assert expected == number(value)


@pytest.mark.parametrize(
    ("text", "expected"), [("12 שלום a", True), ("مرحبا", True), ("a שלום", False), ("12 %", False), ("", False)]
)
def test_direction_is_that_of_the_first_letter(text, expected):
    assert expected is is_right_to_left(text)


@pytest.mark.parametrize(
    ("tag", "expected"), [("es", "es"), ("pt-BR", "pt-BR"), ('e"s', None), (None, None), ("", None)]
)
def test_only_language_tags_are_written(tag, expected):
    assert expected == language_tag(tag)
