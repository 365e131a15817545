"""Which rulings of a level page are of tables, and which run through words."""

import time

import numpy as np
import pytest

from backend.files.pages import Box, Word
from backend.files.visual_rows import page_rows
from backend.tables.level_page import PlacedWord, Segment, TextLine, _beside_words, level_page
from tests.tables.printed_tables import page_of

UNIT = 10.0


def _line(boxes: list[Box]) -> TextLine:
    return tuple(PlacedWord(Word("a", box, 1.0, 0, 1, 0, 0), box) for box in boxes)


def _struck(segment: Segment, box: Box) -> bool:
    inside = box.top + 0.15 * UNIT < segment.at < box.bottom - 0.15 * UNIT
    return inside and min(box.right, segment.end) - max(box.left, segment.start) > 0.5 * segment.length


@pytest.mark.parametrize(
    ("ruling", "is_kept"),
    [
        pytest.param((50, 106, 80, 106), False, id="through-a-word"),
        pytest.param((50, 112, 80, 112), True, id="below-it"),
        pytest.param((20, 106, 85, 106), True, id="less-than-half-in-it"),
        pytest.param((0, 106, 200, 106), True, id="across-the-page"),
    ],
)
def test_rulings_at_a_word(ruling: tuple[float, float, float, float], *, is_kept: bool):
    """Short ones through words are letters of an image, or strike them out; underlines and long ones are rulings."""
    page = level_page(page_rows(page_of([("Aceros", 50, 100)], [ruling])))

    assert is_kept == bool(page.levels)


@pytest.mark.parametrize("spread", [40.0, 400.0, 4000.0])
def test_each_ruling_as_if_alone(spread: float):
    """However many words and rulings: each is kept as comparing it with each word would keep it."""
    numbers = np.random.default_rng(int(spread))
    corners = numbers.uniform(0, spread, (400, 2))
    sides = numbers.exponential((20, 12), (400, 2))
    boxes = [Box(*corner, *(corner + side)) for corner, side in zip(corners, sides, strict=True)]
    at, start = numbers.uniform(0, spread, (2, 3_000))
    rulings = [Segment(*row) for row in zip(at, start, start + numbers.exponential(30, 3_000), strict=True)]

    expected = [one for one in rulings if one.length >= 8 * UNIT or not any(_struck(one, box) for box in boxes)]
    assert expected == _beside_words(rulings, [_line(boxes)], UNIT)


@pytest.mark.parametrize("side", ["wide", "tall", "square"])
def test_many_words_and_many_rulings(side: str):
    """A drawing of 200,000 words and 40,000 lines takes two seconds; comparing each with each took forty."""
    numbers = np.random.default_rng(1)
    corners = numbers.uniform(0, 2_000, (200_000, 2))
    sides = {"wide": (2_000.0, 6.0), "tall": (6.0, 2_000.0), "square": (80.0, 80.0)}[side]
    boxes = [Box(*corner, *(corner + sides)) for corner in corners]
    at, start = numbers.uniform(0, 2_000, (2, 40_000))
    rulings = [Segment(*row) for row in zip(at, start, start + 70, strict=True)]
    lines = [_line(boxes)]
    started_s = time.process_time()
    _beside_words(rulings, lines, UNIT)

    assert time.process_time() - started_s < 10
