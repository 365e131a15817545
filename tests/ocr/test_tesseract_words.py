"""Which words of Tesseract's output are kept, in their lines and paragraphs."""

import pytest

from backend.ocr.engine_choice import legible_letters
from backend.ocr.records import OcrWord, PixelBox
from backend.ocr.tesseract_words import TesseractWord, result_of

BOX = (10, 10, 50, 30)


def texts_of(words: list[TesseractWord]) -> list[list[str]]:
    """Texts of the lines in their blocks."""
    blocks = result_of(words, 1000, 1000).blocks
    return [[" ".join(word.text for word in line) for line in block] for block in blocks]


def test_a_table_that_tesseract_reads_by_columns_is_read_by_rows():
    names = [TesseractWord(f"name{row}", (10, 40 * row, 90, 40 * row + 20), 0.9, 0, row) for row in range(8)]
    amounts = [TesseractWord(f"{row}.00", (600, 40 * row, 660, 40 * row + 20), 0.9, 1, 8 + row) for row in range(8)]

    assert [f"name{row} {row}.00" for row in range(8)] == [
        line for block in texts_of(names + amounts) for line in block
    ]


def test_low_and_overlapping_words_stay_in_their_line():
    """A comma's box is small and low, and boxes of neighbours may overlap by much."""
    words = [
        TesseractWord("les", (10, 10, 60, 40), 0.9, 0, 0),
        TesseractWord("seins", (50, 10, 160, 40), 0.9, 0, 0),
        TesseractWord(",", (260, 34, 264, 44), 0.9, 0, 0),
        TesseractWord("les", (300, 10, 350, 40), 0.9, 0, 0),
        TesseractWord("yeux", (280, 10, 420, 40), 0.9, 0, 0),
    ]

    assert [["les seins , les yeux"]] == texts_of(words)


def test_paragraphs_stay_where_the_order_does():
    """Paragraphs without white between them are Tesseract's knowledge."""
    words = [TesseractWord(f"w{row}", (10, 30 * row, 300, 30 * row + 25), 0.9, row // 2, row) for row in range(4)]

    assert [["w0", "w1"], ["w2", "w3"]] == texts_of(words)


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
