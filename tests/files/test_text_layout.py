"""Reading order of blocks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.files.pages import Box
from backend.files.text_layout import reading_order

HEADER, LEFT, RIGHT, FOOTER = Box(0, 0, 100, 10), Box(0, 20, 48, 80), Box(52, 20, 100, 80), Box(0, 90, 100, 95)
boxes = st.builds(
    lambda left, top, width, height: Box(left, top, left + width, top + height),
    *(st.integers(0, 100), st.integers(0, 100), st.integers(1, 50), st.integers(1, 50)),
)


@pytest.mark.parametrize(
    ("given_boxes", "expected"),
    [
        pytest.param([HEADER, LEFT, RIGHT, FOOTER], [0, 1, 2, 3], id="as-the-author-wrote"),
        pytest.param([RIGHT, LEFT], [0, 1], id="columns-keep-the-authors-order"),
        pytest.param([FOOTER, LEFT, RIGHT, HEADER], [3, 1, 2, 0], id="a-header-that-was-drawn-last"),
        pytest.param([LEFT, Box(52, 20, 100, 50), HEADER, Box(52, 55, 100, 80)], [2, 0, 1, 3], id="a-column-in-parts"),
        pytest.param([Box(0, 0, 10, 10), Box(0, 9, 10, 19)], [0, 1], id="lines-that-touch"),
        pytest.param([Box(0, 9, 10, 19), Box(0, 0, 10, 10)], [1, 0], id="lines-that-touch-the-wrong-way-round"),
        pytest.param([], [], id="nothing"),
    ],
)
def test_reading_order(given_boxes: list[Box], expected: list[int]):
    """No block comes before one above it in its column; otherwise in content order."""
    assert expected == reading_order(given_boxes)


@given(st.lists(boxes, max_size=40))
def test_every_block_once(random_boxes: list[Box]):
    """For any positions, no block is lost or repeated."""
    assert list(range(len(random_boxes))) == sorted(reading_order(random_boxes))
