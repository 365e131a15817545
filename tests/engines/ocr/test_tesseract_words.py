"""Which words of Tesseract's output are kept, in their lines and paragraphs."""

from __future__ import annotations

import pytest

from backend.engines.ocr.records import OcrWord, PixelBox
from backend.engines.ocr.tesseract_words import TesseractWord, legible_letters, result_of

BOX = (10, 10, 50, 30)


def test_lines_and_paragraphs():
    words = [
        TesseractWord("La", BOX, 0.9, 0, 0),
        TesseractWord("casa", BOX, 0.9, 0, 0),
        TesseractWord("verde", BOX, 0.9, 0, 1),
        TesseractWord("Fin", BOX, 0.9, 1, 2),
    ]

    blocks = result_of(words, 100, 100).blocks

    assert [[["La", "casa"], ["verde"]], [["Fin"]]] == [
        [[word.text for word in line] for line in block] for block in blocks
    ]


def test_confidence_is_the_mean_over_letters():
    """A long word counts more than a comma."""
    result = result_of([TesseractWord("nueve", BOX, 1.0, 0, 0), TesseractWord(".", BOX, 0.4, 0, 0)], 100, 100)

    assert result.confidence == pytest.approx(0.9)


@pytest.mark.parametrize(
    "left_out",
    [
        pytest.param(TesseractWord("  ", BOX, 0.9, 0, 0), id="blank"),
        pytest.param(TesseractWord("", BOX, 0.9, 0, 0), id="empty"),
        pytest.param(TesseractWord("a", (20, 20, 20, 40), 0.9, 0, 0), id="without-width"),
        pytest.param(TesseractWord("a", (100, 20, 140, 40), 0.9, 0, 0), id="outside"),
        pytest.param(TesseractWord("|", (0, 0, 100, 90), 0.2, 0, 0), id="a-frame"),
    ],
)
def test_entries_that_are_no_words(left_out: TesseractWord):
    """They do not split the line around them either."""
    words = [TesseractWord("a", BOX, 0.8, 0, 0), left_out, TesseractWord("b", BOX, 0.8, 0, 0)]

    result = result_of(words, 100, 100)

    assert ["a", "b"] == [word.text for word in result.blocks[0][0]]
    assert result.confidence == pytest.approx(0.8)


def test_a_large_digit_is_kept():
    """In an image of one character its box is as large as the image, with high confidence."""
    assert 1 == len(result_of([TesseractWord("7", (5, 5, 95, 95), 0.9, 0, 0)], 100, 100).blocks)


def test_boxes_and_confidences_are_within_bounds():
    result = result_of([TesseractWord(" a ", (-3, -1, 120, 40), 1.02, 0, 0)], 100, 100)

    assert OcrWord("a", PixelBox(0, 0, 100, 40), 1.0) == result.blocks[0][0][0]


def test_no_words():
    assert ((), None, True) == result_of([], 10, 10)


def test_letters_of_legible_words():
    blocks = result_of([TesseractWord("nueve", BOX, 0.8, 0, 0), TesseractWord("cuatro", BOX, 0.7, 0, 0)], 99, 99).blocks

    assert 5 == legible_letters(blocks)
