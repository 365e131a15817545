"""Of what Tesseract gives, words are kept, in their lines and paragraphs, and what is none is left out."""

from __future__ import annotations

import pytest

from backend.engines.ocr.records import OcrWord, PixelBox
from backend.engines.ocr.tesseract_words import Found, reading_of

BOX = (10, 10, 50, 30)


def test_words_stand_in_lines_of_paragraphs():
    """A new line of the same paragraph is a line; a new paragraph is a block."""
    found = [
        Found("La", BOX, 0.9, 0, 0),
        Found("casa", BOX, 0.9, 0, 0),
        Found("verde", BOX, 0.9, 0, 1),
        Found("Fin", BOX, 0.9, 1, 2),
    ]

    blocks = reading_of(found, 100, 100).blocks

    assert [[["La", "casa"], ["verde"]], [["Fin"]]] == [
        [[word.text for word in line] for line in block] for block in blocks
    ]


def test_confidence_is_the_mean_over_letters():
    """A long word says more about a page than a comma."""
    reading = reading_of([Found("nueve", BOX, 1.0, 0, 0), Found(".", BOX, 0.4, 0, 0)], 100, 100)

    assert reading.confidence == pytest.approx(0.9)


@pytest.mark.parametrize(
    "left_out",
    [
        pytest.param(Found("  ", BOX, 0.9, 0, 0), id="blank"),
        pytest.param(Found("", BOX, 0.9, 0, 0), id="empty"),
        pytest.param(Found("a", (20, 20, 20, 40), 0.9, 0, 0), id="without-width"),
        pytest.param(Found("a", (100, 20, 140, 40), 0.9, 0, 0), id="outside"),
        pytest.param(Found("|", (0, 0, 100, 90), 0.2, 0, 0), id="a-frame"),
    ],
)
def test_what_is_no_word(left_out: Found):
    """It makes no line either: the words around it stay together."""
    found = [Found("a", BOX, 0.8, 0, 0), left_out, Found("b", BOX, 0.8, 0, 0)]

    reading = reading_of(found, 100, 100)

    assert ["a", "b"] == [word.text for word in reading.blocks[0][0]]
    assert reading.confidence == pytest.approx(0.8)


def test_a_large_digit_is_kept():
    """An image of one character has a box of its size, and is read with confidence."""
    assert 1 == len(reading_of([Found("7", (5, 5, 95, 95), 0.9, 0, 0)], 100, 100).blocks)


def test_boxes_and_confidences_are_within_bounds():
    reading = reading_of([Found(" a ", (-3, -1, 120, 40), 1.02, 0, 0)], 100, 100)

    assert OcrWord("a", PixelBox(0, 0, 100, 40), 1.0) == reading.blocks[0][0][0]


def test_nothing_found():
    assert ((), None) == reading_of([], 10, 10)
