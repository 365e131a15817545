"""Cheap statistics of a page image (contrast, skew, letter height, noise) on which preprocessing is decided.

Measured on a copy of about a million pixels: 20 ms for a page of 200 dpi. Recognises no letter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from backend.ocr.records import Gray

Points = tuple[NDArray[np.float32], NDArray[np.float32]]  # x and y of as many pixels

cv2.setNumThreads(1)  # a lane a core: more threads would take the other lanes' cores

_MEASURED_PIXELS = 1_500_000
_MAX_SKEW = 12.0  # degrees; beyond, it is a photograph at an angle, which needs more than rotation
_POINTS = 8_000  # edge points sampled for the profiles; more change no angle by a tenth of a degree
_GLYPH_SIZES = (0.35, 3.0)  # times the median size: counts as a letter; the rest is specks, rules and pictures
_PAPER_STEP = 8  # pixels of the image for one of the paper's brightness
_SPECK_PX = 4  # smaller components are specks, dots and commas
_LINES_OF_GLYPHS = 60  # letters that make more than one line
_MIN_GLYPHS = 20  # below, medians and profiles mean nothing


@dataclass(frozen=True, slots=True)
class ImageStats:
    contrast: float  # gray levels between paper and ink; 0 for a blank page
    inverted: bool  # light ink on dark paper
    shade: float  # gray levels by which the paper's own brightness differs over the page
    glyphs: int  # connected components of the size of letters
    glyph_height: float | None  # their median height in pixels of the image, upright; None for too few
    specks: float  # components far smaller than letters, per letter
    skew: float  # degrees clockwise by which lines fall to the right; 0 where unsure
    sideways: bool  # lines run down the page


class _Components(NamedTuple):
    letters: Gray  # the ink of letter-sized components only
    sizes: NDArray[np.int32]  # of those: (components, 2), width and height
    specks: float  # smaller components, per letter


def measure(gray: Gray) -> ImageStats:
    """The statistics of a page.

    Shapes: gray (height, width_px), at least 3 x 3 pixels.
    """
    step = math.ceil(math.sqrt(gray.size / _MEASURED_PIXELS))
    small = shrink(gray, step)
    inverted = _is_inverted(small)
    if inverted:
        small = np.asarray(cv2.bitwise_not(small), np.uint8)
    paper = paper_of(small)
    darker = _darker(small, paper)
    contrast = float(darker.max())
    shade = float(np.ptp(np.percentile(paper, (10, 90))))
    components = _components(_ink_of(darker))
    glyphs = len(components.sizes)
    if glyphs < _MIN_GLYPHS:
        return ImageStats(contrast, inverted, shade, glyphs, None, 0.0, 0.0, sideways=False)
    skew, sideways = _direction(components.letters, may_be_sideways=glyphs >= _LINES_OF_GLYPHS)
    width_px, height = np.median(components.sizes, axis=0) * step
    return ImageStats(
        contrast, inverted, shade, glyphs, float(width_px if sideways else height), components.specks, skew, sideways
    )


def shrink(gray: Gray, step: int) -> Gray:
    """The image with each ``step`` x ``step`` pixels averaged; an integer step takes a tenth of the time of others."""
    height, width_px = (max(1, side // step) for side in gray.shape)
    if step == 1:
        return gray
    cropped = gray[: height * step, : width_px * step]
    return np.asarray(cv2.resize(cropped, (width_px, height), interpolation=cv2.INTER_AREA), np.uint8)


def paper_of(gray: Gray) -> Gray:
    """The brightness of the paper without its print, smoothed, at an eighth of the size."""
    coarse = shrink(gray, _PAPER_STEP)
    closed = cv2.morphologyEx(coarse, cv2.MORPH_CLOSE, np.ones((9, 9), np.uint8))
    return np.asarray(cv2.medianBlur(closed, 5), np.uint8)


def ink_of(gray: Gray) -> Gray:
    """The print: 255 where the image is much darker than the paper around, 0 elsewhere."""
    return _ink_of(_darker(gray, paper_of(gray)))


def _darker(gray: Gray, paper: Gray) -> Gray:
    """How much darker each pixel is than the paper around it."""
    level = cv2.resize(paper, (gray.shape[1], gray.shape[0]), interpolation=cv2.INTER_LINEAR)
    return np.asarray(cv2.subtract(level, gray), np.uint8)


def _ink_of(darker: Gray) -> Gray:
    """The print: 255 where the image is much darker than the paper, 0 elsewhere."""
    _, ink = cv2.threshold(darker, 0, 255, cv2.THRESH_BINARY | cv2.THRESH_OTSU)
    return np.asarray(ink, np.uint8)


def _is_inverted(gray: Gray) -> bool:
    """Whether most of the page is dark, and its negative has more letters.

    A white page on a scanner's black lid is mostly dark too, so the number of letters decides.
    """
    sample = gray[::4, ::4]
    low, high = np.percentile(sample, (0.5, 99.5))
    if float(np.median(sample)) >= float(low + high) / 2:
        return False
    negative = np.asarray(cv2.bitwise_not(gray), np.uint8)
    counts = [len(_components(_ink_of(_darker(image, paper_of(image)))).sizes) for image in (gray, negative)]
    return counts[1] > counts[0]


def _components(ink: Gray) -> _Components:
    """Separate letters from specks, rules and pictures by their size."""
    count, labels, stats, _ = cv2.connectedComponentsWithStats(ink, connectivity=8, ltype=cv2.CV_32S)
    sides = np.maximum(stats[:, cv2.CC_STAT_HEIGHT], stats[:, cv2.CC_STAT_WIDTH])
    sides[0] = 0  # the paper
    visible = sides >= _SPECK_PX
    if count <= 1 or not visible.any():
        return _Components(ink, np.empty((0, 2), np.int32), 0.0)
    median = float(np.median(sides[visible]))
    letters = visible & (sides >= _GLYPH_SIZES[0] * median) & (sides <= _GLYPH_SIZES[1] * median)
    specks = float(np.count_nonzero(~visible) - 1) / max(1, int(np.count_nonzero(letters)))
    ink_of_letters = np.where(letters, np.uint8(255), np.uint8(0))[labels]
    sizes = np.asarray(stats[letters][:, [cv2.CC_STAT_WIDTH, cv2.CC_STAT_HEIGHT]], np.int32)
    return _Components(np.asarray(ink_of_letters, np.uint8), sizes, specks)


def _direction(ink: Gray, *, may_be_sideways: bool) -> tuple[float, bool]:
    """Skew of the lines in degrees clockwise, and whether they run down the page.

    At the angle of the text lines, the lower edges of letters fall on few rows: the angle with the sharpest histogram
    is the skew. Right edges show the same for a page on its side, and the sharper of the two wins. A single line has
    edges as sharp either way, so ``may_be_sideways`` is False for little print.
    """
    across = _sharpest(_sample(ink[:-1] & ~ink[1:]))
    x, y = _sample(ink[:, :-1] & ~ink[:, 1:])
    down = _sharpest((-y, x))
    best = max(across, down) if may_be_sideways else across
    if best[0] < 1.0:
        return 0.0, False
    return best[1], best is down


def _sample(edges: Gray) -> Points:
    if not edges.any():  # OpenCV gives None for it
        return np.empty(0, np.float32), np.empty(0, np.float32)
    points = cv2.findNonZero(edges)
    sampled = points.reshape(-1, 2)[:: max(1, len(points) // _POINTS)].astype(np.float32)
    return np.ascontiguousarray(sampled[:, 0]), np.ascontiguousarray(sampled[:, 1])


def _sharpest(points: Points) -> tuple[float, float]:
    """Sharpness of the histogram at its best angle, and that angle in degrees."""
    coarse = max((_sharpness(points, angle), angle) for angle in np.arange(-_MAX_SKEW, _MAX_SKEW + 0.1, 1.0))
    fine = max((_sharpness(points, angle), angle) for angle in coarse[1] + np.arange(-0.9, 0.91, 0.15))
    return float(fine[0]), float(fine[1])


def _sharpness(points: Points, degrees: float) -> float:
    """Sum of squares of the row counts, relative to that of an even distribution (1)."""
    x, y = points
    if not len(x):
        return 0.0
    angle = math.radians(degrees)
    rows = (y * math.cos(angle) - x * math.sin(angle)).astype(np.int32)
    counts = np.bincount(rows - rows.min()).astype(np.float64)
    return float((counts**2).sum() * len(counts) / counts.sum() ** 2)
