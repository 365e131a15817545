"""Lines found anywhere, in the order in which a person reads them."""

from __future__ import annotations

import random

from backend.engines.ocr.reading_order import Strip, in_order
from backend.engines.ocr.records import OcrWord, PixelBox


def strip(text: str, left: float, top: float, width: float = 100, height: float = 10) -> Strip:
    box = PixelBox(left, top, left + width, top + height)
    return Strip(tuple(OcrWord(word, box, 1.0) for word in text.split()), box)


def read(*strips: Strip) -> list[list[str]]:
    """Texts of lines of blocks, whatever order the strips came in."""
    shuffled = random.Random(7).sample(strips, len(strips))
    return [[" ".join(word.text for word in line) for line in block] for block in in_order(shuffled)]


def test_nothing():
    """A page without lines has no blocks."""
    assert () == in_order([])


def test_rows_from_top_to_bottom_and_left_to_right():
    """A receipt: an article and its price are one line, though they were found apart and a little askew."""
    strips = [strip("2 coffee", 0, 0), strip("3.00", 300, 3, 40), strip("1 tea", 0, 14), strip("1.50", 300, 11, 40)]

    assert [["2 coffee 3.00", "1 tea 1.50"]] == read(*strips)


def test_white_between_lines_makes_blocks():
    """Paragraphs stand apart by more than the height of a line."""
    assert [["a", "b"], ["c"]] == read(strip("a", 0, 0), strip("b", 0, 15), strip("c", 0, 60))


def test_columns_of_prose_are_read_one_after_the_other():
    """A headline above, two filled columns, a footer below."""
    head, foot = strip("headline", 0, 0, 400), strip("footer", 0, 300, 400)
    left = [strip(f"left{row}", 0, 40 + 14 * row, 180) for row in range(8)]
    right = [strip(f"right{row}", 220, 40 + 14 * row, 180) for row in range(8)]
    lines = [line for block in read(head, *left, *right, foot) for line in block]

    assert ["headline", *(f"left{row}" for row in range(8)), *(f"right{row}" for row in range(8)), "footer"] == lines


def test_names_beside_amounts_are_rows():
    """A form has white down its middle too, but its cells are not filled as prose is."""
    widths = [30, 60, 90, 40, 100, 50, 20, 70]
    names = [strip(f"name{row}", 0, 14 * row, width) for row, width in enumerate(widths)]
    amounts = [strip(f"amount{row}", 300, 14 * row, 200 - width) for row, width in enumerate(widths)]
    lines = [line for block in read(*names, *amounts) for line in block]

    assert [f"name{row} amount{row}" for row in range(8)] == lines
