"""Where a page may be cut: between lines of one column, and nowhere else."""

import numpy as np
import pytest
from numpy.typing import NDArray

from backend.ocr.preprocessing import cut_into_strips
from tests.ocr.drawn_pages import LINES, drawn_page, pixels_of

LETTER = 20.0  # height of letters of the drawn pages
COLUMN = tuple(line[:16] for line in LINES) * 4


def page_of(lines: tuple[str, ...] = LINES * 5) -> NDArray[np.uint8]:
    return pixels_of(drawn_page(lines))


def beside(left: NDArray[np.uint8], right: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.hstack([left[:, :400], right[:, :400]])


def test_strips_cover_the_page_and_cut_no_ink():
    page = page_of()

    strips = cut_into_strips(page, LETTER)

    assert len(strips) >= 4
    assert [0, *(strip.bottom for strip in strips)] == [*(strip.top for strip in strips), len(page)]
    for strip in strips[1:]:
        assert (page[strip.top - 2 : strip.top + 2] == 255).all()


def test_each_strip_has_a_part_of_the_lines():
    """None has more than half of the print, none is empty."""
    page = page_of()

    shares = [
        (page[strip.top : strip.bottom] < 128).sum() / (page < 128).sum() for strip in cut_into_strips(page, LETTER)
    ]

    assert shares == pytest.approx([strip.ink_share for strip in cut_into_strips(page, LETTER)], abs=0.05)
    assert 0.03 < min(shares)
    assert max(shares) < 0.5


def test_a_cut_within_a_paragraph_continues_it():
    """Even white between all lines is one paragraph; cuts are made at wider white where there is some."""
    paragraphs = np.vstack([page_of(LINES)] * 5)  # with margins between them

    assert all(strip.continues for strip in cut_into_strips(page_of(), LETTER)[1:])
    assert not all(strip.continues for strip in cut_into_strips(paragraphs, LETTER)[1:])


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page_of(LINES[:3]), id="a-few-lines"),
        pytest.param(beside(page_of(COLUMN), page_of(COLUMN)), id="columns-with-level-lines"),
        pytest.param(
            beside(page_of(COLUMN), np.pad(page_of(COLUMN[:4]), ((0, 1680), (0, 0)), constant_values=255)),
            id="a-column-that-ends-early",
        ),
        pytest.param(beside(page_of(COLUMN), np.roll(page_of(COLUMN), 30, axis=0)), id="columns-with-other-lines"),
        pytest.param(np.where(np.arange(900) < 9, 0, page_of()).astype(np.uint8), id="a-black-border"),
        pytest.param(np.full((900, 600), 255, np.uint8), id="blank"),
        pytest.param(np.random.default_rng(0).integers(0, 255, (900, 600), np.uint8), id="noise"),
    ],
)
def test_pages_that_are_not_cut(page: NDArray[np.uint8]):
    strips = cut_into_strips(page, LETTER)

    assert [(0, len(page), False, 1.0)] == [tuple(strip) for strip in strips]


def test_columns_below_a_heading_are_not_cut():
    """The lines above such a cut fill the page, those below it show the columns."""
    columns = beside(page_of(COLUMN), page_of(COLUMN))
    heading = page_of(LINES[:4])[:, :800]

    strips = cut_into_strips(np.vstack([heading, columns]), LETTER)

    assert all(strip.top <= len(heading) for strip in strips)


def test_too_few_letters_to_tell():
    assert 1 == len(cut_into_strips(page_of(), None))
