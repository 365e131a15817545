"""Printed lines of page images."""

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from backend.ocr.image_rulings import find_rulings, rotate_lines
from backend.ocr.records import PixelLine

LEVEL, UPRIGHT = PixelLine(200, 500, 1400, 500), PixelLine(700, 300, 700, 900)


def page(*, angle: float = 0.0, noise: float = 0.0) -> NDArray[np.uint8]:
    """A page at 200 dpi with two crossing lines of two pixels and a line of text."""
    pixels = np.full((2339, 1654), 245, np.uint8)
    for x0, y0, x1, y1 in (LEVEL, UPRIGHT):
        cv2.line(pixels, (int(x0), int(y0)), (int(x1), int(y1)), 60, 2)
    written = Image.fromarray(pixels)  # OpenCV would draw all later texts of this process as bold as this one
    ImageDraw.Draw(written).text((200, 1165), "Importe total de la factura", 20, ImageFont.load_default(46))
    pixels = np.array(written)
    turn = cv2.getRotationMatrix2D((827, 1170), angle, 1)
    turned = cv2.warpAffine(pixels, turn, (1654, 2339), borderValue=245).astype(np.float64)
    chance = np.random.default_rng(1)
    return np.clip(turned + chance.normal(0, noise, turned.shape), 0, 255).astype(np.uint8)


def assert_near(expected: PixelLine, found: PixelLine, px: float = 8.0) -> None:
    assert max(abs(a - b) for a, b in zip(expected, found, strict=True)) <= px


@pytest.mark.parametrize("noise", [0.0, 8.0])
def test_a_level_and_an_upright_line(noise: float) -> None:
    """A level and an upright line are found with their ends; strokes of letters that meet are far shorter."""
    level, upright = (line for line in find_rulings(page(noise=noise)) if line.x1 - line.x0 + line.y1 - line.y0 > 100)

    assert_near(LEVEL, level)
    assert_near(UPRIGHT, upright)


def test_a_skewed_page() -> None:
    """Lines that slope with their page keep their slope."""
    level, _ = find_rulings(page(angle=2.0))

    assert -0.04 < (level.y1 - level.y0) / (level.x1 - level.x0) < -0.03
    assert level.x1 - level.x0 > 1100


def test_a_filled_heading() -> None:
    """A dark bar counts by its edges."""
    pixels = np.full((1200, 900), 250, np.uint8)
    pixels[300:340, 100:800] = 40

    found = find_rulings(pixels)

    assert [(300, 300), (340, 340)] == [(round(y0, -1), round(y1, -1)) for _, y0, _, y1 in found][:2]


@pytest.mark.parametrize(
    ("degrees", "expected"),
    [(0, (10, 20, 90, 20)), (90, (180, 10, 180, 90)), (180, (10, 180, 90, 180)), (270, (20, 10, 20, 90))],
)
def test_turned_lines(degrees: int, expected: tuple[int, ...]) -> None:
    """They turn clockwise with a page of 100 x 200 pixels, from their left or upper end."""
    assert (PixelLine(*expected),) == rotate_lines((PixelLine(10, 20, 90, 20),), degrees, 100, 200)


def test_a_small_image() -> None:
    """One smaller than any line has none."""
    assert () == find_rulings(np.full((20, 20), 255, np.uint8))
