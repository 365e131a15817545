"""How finely to draw a page for OCR. Pure: sizes and limits in, dots per inch and the reason out."""

from __future__ import annotations

import math
from dataclasses import dataclass

from backend.documents.pages import POINTS_PER_INCH
from backend.documents.parsing.limits import FileLimits
from backend.documents.parsing.records import LayerStats

WISHED_DPI = 200.0  # Tesseract's error on clean print does not fall further: 0.014 CER on 200-dpi pages, DESIGN 5
FINEST_DPI = 300.0  # what scans for OCR are made with; finer ones only take longer
_ENOUGH_PIXELS = 3_000_000  # A4 at 186 dpi: an image with so many holds its text large enough as it is
_SCAN_RATIO = 0.5  # of the page under images: then it is the image that must be read, not glyphs
_COARSEST_DPI = 60.0  # of a scan; below, the image is a background or a gradient
# Sides are rounded up to whole pixels: without it a millionth of a pixel makes one more, for which PDFium resamples the
# whole scan, and a word in fifty was no longer sure to Tesseract. With it the pixels are the scan's, bit for bit.
_ROUNDING = 1e-4
_MOST_MAGNIFIED = 2.0  # a coarse scan gains from being enlarged so far, and nothing beyond


@dataclass(frozen=True, slots=True)
class Resolution:
    """Dots per inch to draw with, and why."""

    dpi: float
    why: str


USUAL = Resolution(WISHED_DPI, f"{WISHED_DPI:g} dpi, what OCR needs for print")


def choose_resolution(width: float, height: float, stats: LayerStats, limits: FileLimits) -> Resolution:
    """Dots per inch for a page of ``width`` x ``height`` points.

    200 dpi, except that
    1. a page that is a scan is drawn with the scan's own pixels, up to 300 dpi (drawn finer, its pixels say no more;
       drawn coarser, small print is lost), and a coarse scan is enlarged up to twice;
    2. whatever was chosen, no page takes more than LIMIT_RENDER_PIXELS: a poster gets fewer dpi instead of a refusal.
    """
    chosen = USUAL
    if stats.image_dpi and stats.image_ratio >= _SCAN_RATIO:
        chosen = _of_scan(stats.image_dpi, width * height)
    most = most_dpi(width, height, limits.render_pixels)
    if chosen.dpi > most:
        why = f"{most:.0f} dpi: at {chosen.dpi:.0f} the page of {width:.0f} x {height:.0f} points would be over "
        return Resolution(most, f"{why}{limits.render_pixels} pixels (LIMIT_RENDER_PIXELS)")
    return chosen


def most_dpi(width: float, height: float, most_pixels: int) -> float:
    """The resolution at which a page has this many pixels, rounding up of its sides included."""
    if width <= 0 or height <= 0:
        return WISHED_DPI
    scale = math.sqrt(most_pixels / (width * height))
    # sides are rounded up to whole pixels; a strip of 1 x 14400 points must not double by that
    while scale > 1e-6 and math.ceil(width * scale) * math.ceil(height * scale) > most_pixels:
        scale *= 0.98
    return scale * POINTS_PER_INCH


def _of_scan(image_dpi: float, area: float) -> Resolution:
    pixels = area * (image_dpi / POINTS_PER_INCH) ** 2
    if image_dpi > FINEST_DPI and pixels * (FINEST_DPI / image_dpi) ** 2 >= _ENOUGH_PIXELS:
        return Resolution(FINEST_DPI, f"{FINEST_DPI:g} dpi: the scan of {image_dpi:.0f} dpi is finer than OCR needs")
    if pixels >= _ENOUGH_PIXELS or image_dpi >= WISHED_DPI:
        return Resolution(image_dpi * (1 - _ROUNDING), f"{image_dpi:.0f} dpi: the scan's own pixels")
    if image_dpi < _COARSEST_DPI:
        return USUAL
    dpi = min(WISHED_DPI, image_dpi * _MOST_MAGNIFIED)
    return Resolution(dpi, f"{dpi:.0f} dpi: a coarse scan of {image_dpi:.0f} dpi, enlarged")
