"""Statistics of page images, without recognition."""

import numpy as np
import pytest
from PIL import Image

from backend.ocr.preprocessing import measure
from tests.ocr.drawn_pages import LINES, drawn_page, pixels_of, skewed


def test_a_clean_page():
    """Dark on light, evenly lit, upright, with the height of its letters."""
    stats = measure(pixels_of(drawn_page()))

    assert not stats.inverted
    assert not stats.sideways
    assert stats.contrast > 200
    assert stats.shade < 5
    assert stats.specks < 1
    assert abs(stats.skew) < 0.2
    assert stats.glyph_height == pytest.approx(17, abs=4)  # small letters of 30 px type
    assert stats.glyphs == pytest.approx(260, abs=40)


@pytest.mark.parametrize("degrees", [-9.0, -2.5, -0.7, 1.0, 4.3])
def test_skew(degrees: float):
    """The angle of the lines, to a quarter of a degree."""
    assert measure(pixels_of(skewed(drawn_page(), degrees))).skew == pytest.approx(degrees, abs=0.25)


@pytest.mark.parametrize("degrees", [90, 270])
def test_sideways(degrees: int):
    """Lines that run down the page, and their skew after rotation."""
    page = drawn_page()
    assert not measure(pixels_of(page)).sideways

    stats = measure(pixels_of(skewed(page, 2.0).rotate(-degrees, expand=True)))

    assert stats.sideways
    assert stats.glyph_height == pytest.approx(measure(pixels_of(page)).glyph_height, abs=2)
    assert stats.skew == pytest.approx(2.0, abs=0.25)


def test_upside_down_looks_upright():
    """Upside down needs recognition; the statistics only show that lines run across."""
    assert not measure(pixels_of(drawn_page().rotate(180))).sideways


@pytest.mark.parametrize(("ink", "paper", "expected"), [(255, 0, True), (180, 60, True), (60, 180, False)])
def test_inverted(ink: int, paper: int, expected: bool):
    assert expected == measure(pixels_of(drawn_page(ink=ink, paper=paper))).inverted


def test_a_page_on_a_black_lid_is_not_inverted():
    """Most of such a scan is black, but its letters are dark on light."""
    page = drawn_page()
    scan = Image.new("L", (page.width * 2, page.height * 2), 0)
    scan.paste(page, (40, 60))

    assert not measure(pixels_of(scan)).inverted


def test_shade():
    """A shadow over half of the page is measured on the paper, not on the print."""
    pixels = pixels_of(drawn_page()).astype(np.float64)
    shadow = np.linspace(1.0, 0.35, pixels.shape[1])

    assert measure((pixels * shadow).astype(np.uint8)).shade > 80


def test_specks():
    pixels = pixels_of(drawn_page()).copy()
    noise = np.random.default_rng(1).random(pixels.shape)
    pixels[noise < 0.01] = 0

    assert measure(pixels).specks > 3


@pytest.mark.parametrize("value", [0, 128, 255])
@pytest.mark.parametrize("shape", [(1, 1), (1, 700), (900, 1), (300, 200)])
def test_empty_images(shape: tuple[int, int], value: int):
    """They have no contrast and no letters, at any shape."""
    stats = measure(np.full(shape, value, np.uint8))

    assert (0.0, 0, None, 0.0) == (stats.contrast, stats.glyphs, stats.glyph_height, stats.skew)


def test_one_line_on_a_large_page():
    """A page with nothing but its number is not blank."""
    page = Image.new("L", (1700, 2200), 255)
    page.paste(drawn_page(("Page 5",)), (100, 1000))

    assert measure(pixels_of(page)).contrast > 100


def test_one_line_is_never_sideways():
    """Its right edges are as sharp as its lower edges; four trials of directions would be wasted."""
    for line in LINES:
        assert not measure(pixels_of(drawn_page((line,)))).sideways
