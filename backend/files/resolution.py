"""Chooses the resolution at which a page is rendered for OCR, with the reason. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from backend.files.limits import FileLimits
from backend.files.pages import POINTS_PER_INCH
from backend.files.records import LayerStats
from backend.reasons import because

DEFAULT_DPI = 200.0  # beyond it Tesseract's error on clean print does not fall: 0.014 CER on 200-dpi pages
FINEST_DPI = 300.0  # usual for scans made for OCR; finer ones only take longer
_ENOUGH_PIXELS = 3_000_000  # A4 at 186 dpi: the text of an image with so many is large enough
_SCAN_RATIO = 0.5  # of the page covered by images: from here it is a scan
_COARSEST_DPI = 60.0  # of a scan; below, the image is a background or a gradient
# Sides are rounded up to whole pixels: without this margin a millionth of a pixel adds one more, PDFium resamples the
# whole scan, and Tesseract was no longer sure of one word in fifty. With it the pixels are the scan's, bit for bit.
_ROUNDING = 1e-4
_MODEL_PIXELS = 4  # along a side, for each pixel that an image model takes
_MAX_MAGNIFIED = 2.0  # OCR of a coarse scan improves up to this factor, and no further


@dataclass(frozen=True, slots=True)
class Resolution:
    """Dots per inch to render with, and why."""

    dpi: float
    why: str


DEFAULT = Resolution(DEFAULT_DPI, because("default_dpi", dpi=DEFAULT_DPI))


def choose_resolution(width: float, height: float, stats: LayerStats, limits: FileLimits) -> Resolution:
    """Dots per inch for a page of ``width`` x ``height`` points.

    200 dpi, except that
    1. a scan is rendered with its own pixels, up to 300 dpi (finer adds no information, coarser loses small print),
       and a coarse scan is enlarged up to twice;
    2. no page takes more than LIMIT_RENDER_PIXELS: a poster gets fewer dpi instead of an error.
    """
    chosen = DEFAULT
    if stats.image_dpi and stats.image_ratio >= _SCAN_RATIO:
        chosen = _for_scan(stats.image_dpi, width * height)
    most = most_dpi(width, height, limits.render_pixels)
    if chosen.dpi > most:
        page = {"width": width, "height": height, "limit": limits.render_pixels}
        return Resolution(most, because("fewer_dpi", dpi=most, wished_dpi=chosen.dpi, **page))
    return chosen


def for_model(width: float, height: float, side_px: int) -> Resolution:
    """Dots per inch for a page of ``width`` x ``height`` points that an image model sees ``side_px`` of.

    Some times as many pixels as it takes, so that it is shrunk from a picture as scans are.
    """
    inches = min(width, height) / POINTS_PER_INCH
    dpi = FINEST_DPI if inches <= 0 else min(FINEST_DPI, _MODEL_PIXELS * side_px / inches)
    return Resolution(dpi, because("model_dpi", dpi=dpi, times=_MODEL_PIXELS))


def most_dpi(width: float, height: float, most_pixels: int) -> float:
    """The highest resolution at which a page has at most this many pixels, its sides rounded up."""
    if width <= 0 or height <= 0:
        return DEFAULT_DPI
    dpi = math.sqrt(most_pixels / (width * height)) * POINTS_PER_INCH
    # Sides are rounded up to whole pixels; a strip of 1 x 14400 points must not double by that. Counted as its caller
    # will: dpi / 72 may be one bit more than what it was made from, and a side then one pixel longer.
    while dpi > 1e-4 and _pixels(width, dpi) * _pixels(height, dpi) > most_pixels:
        dpi *= 0.98
    return dpi


def _pixels(side: float, dpi: float) -> int:
    return math.ceil(side * (dpi / POINTS_PER_INCH))


def _for_scan(image_dpi: float, area: float) -> Resolution:
    pixels = area * (image_dpi / POINTS_PER_INCH) ** 2
    if image_dpi > FINEST_DPI and pixels * (FINEST_DPI / image_dpi) ** 2 >= _ENOUGH_PIXELS:
        return Resolution(FINEST_DPI, because("finer_scan", dpi=FINEST_DPI, scan_dpi=image_dpi))
    if pixels >= _ENOUGH_PIXELS or image_dpi >= DEFAULT_DPI:
        return Resolution(image_dpi * (1 - _ROUNDING), because("scan_pixels", dpi=image_dpi))
    if image_dpi < _COARSEST_DPI:
        return DEFAULT
    dpi = min(DEFAULT_DPI, image_dpi * _MAX_MAGNIFIED)
    return Resolution(dpi, because("coarse_scan", dpi=dpi, scan_dpi=image_dpi))
