"""What a page needs is seen without reading it."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from backend.engines.ocr.image_stats import look
from tests.engines.ocr.drawn_pages import LINES, drawn_page, pixels_of, skewed


def test_a_clean_page():
    """Nothing is wrong with it: dark on light, even, upright, with letters of the size that they have."""
    seen = look(pixels_of(drawn_page()))

    assert not seen.inverted
    assert not seen.sideways
    assert seen.contrast > 200
    assert seen.shade < 5
    assert seen.specks < 1
    assert abs(seen.skew) < 0.2
    assert seen.glyph_height == pytest.approx(17, abs=4)  # small letters of 30 px type
    assert seen.glyphs == pytest.approx(260, abs=40)


@pytest.mark.parametrize("degrees", [-9.0, -2.5, -0.7, 1.0, 4.3])
def test_skew(degrees: float):
    """The angle of the lines, to a quarter of a degree."""
    assert look(pixels_of(skewed(drawn_page(), degrees))).skew == pytest.approx(degrees, abs=0.25)


@pytest.mark.parametrize("degrees", [90, 270])
def test_sideways(degrees: int):
    """Lines that run down the page, and by how much they miss the plumb line once it is turned."""
    page = drawn_page()
    assert not look(pixels_of(page)).sideways

    seen = look(pixels_of(skewed(page, 2.0).rotate(-degrees, expand=True)))

    assert seen.sideways
    assert seen.glyph_height == pytest.approx(look(pixels_of(page)).glyph_height, abs=2)
    assert seen.skew == pytest.approx(2.0, abs=0.25)


def test_upside_down_looks_upright():
    """Which end is up cannot be seen without reading: the promise is only that the lines run across."""
    assert not look(pixels_of(drawn_page().rotate(180))).sideways


@pytest.mark.parametrize(("ink", "paper", "expected"), [(255, 0, True), (180, 60, True), (60, 180, False)])
def test_inverted(ink: int, paper: int, expected: bool):
    """Light on dark, whatever the contrast."""
    assert expected == look(pixels_of(drawn_page(ink=ink, paper=paper))).inverted


def test_a_page_on_a_black_lid_is_not_inverted():
    """Most of such a scan is black, yet its letters are dark on light."""
    page = drawn_page()
    scan = Image.new("L", (page.width * 2, page.height * 2), 0)
    scan.paste(page, (40, 60))

    assert not look(pixels_of(scan)).inverted


def test_shade():
    """A shadow over half of the page is told by the paper, not by what is written."""
    pixels = pixels_of(drawn_page()).astype(np.float64)
    shadow = np.linspace(1.0, 0.35, pixels.shape[1])

    assert look((pixels * shadow).astype(np.uint8)).shade > 80


def test_specks():
    """Grains of a bad copy outnumber letters."""
    pixels = pixels_of(drawn_page()).copy()
    noise = np.random.default_rng(1).random(pixels.shape)
    pixels[noise < 0.01] = 0

    assert look(pixels).specks > 3


@pytest.mark.parametrize("value", [0, 128, 255])
@pytest.mark.parametrize("shape", [(1, 1), (1, 700), (900, 1), (300, 200)])
def test_nothing_on_it(shape: tuple[int, int], value: int):
    """An empty image of any shape has no contrast and no letters."""
    seen = look(np.full(shape, value, np.uint8))

    assert (0.0, 0, None, 0.0) == (seen.contrast, seen.glyphs, seen.glyph_height, seen.skew)


def test_one_line_on_a_large_page_is_seen():
    """A page with nothing but its number is not blank."""
    page = Image.new("L", (1700, 2200), 255)
    page.paste(drawn_page(("Page 5",)), (100, 1000))

    assert look(pixels_of(page)).contrast > 100


def test_one_line_does_not_lie():
    """Its letters' right edges are as sharp as their feet; trying every direction would cost five readings."""
    for line in LINES:
        assert not look(pixels_of(drawn_page((line,)))).sideways
