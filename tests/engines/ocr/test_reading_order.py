"""Detected lines sorted into reading order."""

from __future__ import annotations

import random

from backend.engines.ocr.reading_order import TextLine, in_order
from backend.engines.ocr.records import OcrWord, PixelBox


def text_line(text: str, left: float, top: float, width: float = 100, height: float = 10) -> TextLine:
    box = PixelBox(left, top, left + width, top + height)
    return TextLine(tuple(OcrWord(word, box, 1.0) for word in text.split()), box)


def read(*strips: TextLine) -> list[list[str]]:
    """Texts of the sorted lines in their blocks, for lines that come in random order."""
    shuffled = random.Random(7).sample(strips, len(strips))
    return [[" ".join(word.text for word in line) for line in block] for block in in_order(shuffled)]


def test_no_lines():
    assert () == in_order([])


def test_rows_from_top_to_bottom_and_left_to_right():
    """On a receipt, an article and its price are one line, though detected apart and at slightly different heights."""
    strips = [
        text_line("2 coffee", 0, 0),
        text_line("3.00", 300, 3, 40),
        text_line("1 tea", 0, 14),
        text_line("1.50", 300, 11, 40),
    ]

    assert [["2 coffee 3.00", "1 tea 1.50"]] == read(*strips)


def test_white_gaps_separate_blocks():
    """Paragraphs are apart by more than the height of a line."""
    assert [["a", "b"], ["c"]] == read(text_line("a", 0, 0), text_line("b", 0, 15), text_line("c", 0, 60))


def test_columns_of_prose_are_read_one_after_the_other():
    """A headline above, two filled columns, a footer below."""
    head, foot = text_line("headline", 0, 0, 400), text_line("footer", 0, 300, 400)
    left = [text_line(f"left{row}", 0, 40 + 14 * row, 180) for row in range(8)]
    right = [text_line(f"right{row}", 220, 40 + 14 * row, 180) for row in range(8)]
    lines = [line for block in read(head, *left, *right, foot) for line in block]

    assert ["headline", *(f"left{row}" for row in range(8)), *(f"right{row}" for row in range(8)), "footer"] == lines


def test_names_beside_amounts_are_rows():
    """A form has a white gap down its middle too, but its cells are not filled like prose."""
    widths = [30, 60, 90, 40, 100, 50, 20, 70]
    names = [text_line(f"name{row}", 0, 14 * row, width) for row, width in enumerate(widths)]
    amounts = [text_line(f"amount{row}", 300, 14 * row, 200 - width) for row, width in enumerate(widths)]
    lines = [line for block in read(*names, *amounts) for line in block]

    assert [f"name{row} amount{row}" for row in range(8)] == lines
