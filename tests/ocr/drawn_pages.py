"""Drawn pages for tests, with known words and places."""

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

LINES = (
    "The agreement between both companies",
    "was signed in Madrid on the third of May",
    "and shall remain in force for two years.",
    "El contrato se firma por duplicado y cada",
    "parte conserva una copia del documento,",
    "which the notary keeps with the register.",
    "Any invoice is due within thirty days of",
    "its date, and bears interest afterwards.",
)
TEXT = " ".join(LINES)


def drawn_page(lines: tuple[str, ...] = LINES, *, size_px: int = 30, ink: int = 0, paper: int = 255) -> Image.Image:
    """A gray page with these lines, like 11 point print at 200 dpi."""
    font = ImageFont.load_default(size_px)
    page = Image.new("L", (30 * size_px, round((2 * len(lines) + 2) * size_px)), paper)
    draw = ImageDraw.Draw(page)
    for index, line in enumerate(lines):
        draw.text((2 * size_px, (1 + 2 * index) * size_px), line, ink, font)
    return page


def skewed(page: Image.Image, degrees: float, paper: int = 255) -> Image.Image:
    """The page rotated clockwise by ``degrees`` and enlarged to keep its corners."""
    return page.rotate(-degrees, Image.Resampling.BICUBIC, expand=True, fillcolor=paper)


def pixels_of(page: Image.Image) -> NDArray[np.uint8]:
    return np.asarray(page, np.uint8)
