"""What an image of a page looks like, told cheaply: numbers on which preprocessing is decided. Reads no letter.

Everything is measured on a copy of about a million pixels, 20 ms for a page of 200 dpi.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from backend.engines.ocr.records import Gray

Points = tuple[NDArray[np.float32], NDArray[np.float32]]  # x and y of as many pixels

cv2.setNumThreads(1)  # a lane a core: more threads would take the other lanes' cores

_LOOK_PIXELS = 1_500_000
_MOST_SKEW = 12.0  # degrees; beyond, a page is a photograph at an angle that wants more than turning
_POINTS = 8_000  # edges kept for the profiles: more change no angle by a tenth of a degree
_GLYPH_PARTS = (0.35, 3.0)  # of the median height: what counts as a letter; the rest is specks, rules and pictures
_COARSE = 8  # pixels of the look for one of the paper
_SPECK = 4  # pixels; smaller pieces are specks, dots and commas
_LINES_OF_GLYPHS = 60  # letters that make more than one line
_FEWEST_GLYPHS = 20  # below, medians and profiles say nothing


@dataclass(frozen=True, slots=True)
class Look:
    """The cheap signals of one image."""

    contrast: float  # gray levels between paper and ink; 0 for a blank page
    inverted: bool  # light ink on dark paper
    shade: float  # gray levels by which the paper's own brightness differs over the page
    glyphs: int  # connected pieces of ink of the size of letters
    glyph_height: float | None  # their median height, pixels of the image, as they stand upright; None for few
    specks: float  # pieces of ink far smaller than letters, a letter
    skew: float  # degrees clockwise that the lines fall to the right; 0 where nothing is sure
    sideways: bool  # lines run down the page


class _Pieces(NamedTuple):
    """Connected ink."""

    letters: Gray  # the ink of pieces of the size of letters alone
    sizes: NDArray[np.int32]  # of those: (pieces, 2), width and height
    specks: float  # pieces far smaller, a letter


def look(gray: Gray) -> Look:
    """Measure a page.

    Shapes: gray (height, width_px), at least 3 x 3 pixels.
    """
    step = math.ceil(math.sqrt(gray.size / _LOOK_PIXELS))
    small = shrink(gray, step)
    inverted = _is_inverted(small)
    if inverted:
        small = np.asarray(cv2.bitwise_not(small), np.uint8)
    paper = paper_of(small)
    darker = _darker(small, paper)
    contrast = float(darker.max())
    shade = float(np.ptp(np.percentile(paper, (10, 90))))
    pieces = _pieces(_ink_of(darker))
    glyphs = len(pieces.sizes)
    if glyphs < _FEWEST_GLYPHS:
        return Look(contrast, inverted, shade, glyphs, None, 0.0, 0.0, sideways=False)
    skew, sideways = _direction(pieces.letters, may_lie=glyphs >= _LINES_OF_GLYPHS)
    width_px, height = np.median(pieces.sizes, axis=0) * step
    return Look(
        contrast, inverted, shade, glyphs, float(width_px if sideways else height), pieces.specks, skew, sideways
    )


def shrink(gray: Gray, step: int) -> Gray:
    """The image with each ``step`` x ``step`` pixels averaged; a whole number, which takes a tenth of the time."""
    height, width_px = (max(1, side // step) for side in gray.shape)
    if step == 1:
        return gray
    whole = gray[: height * step, : width_px * step]
    return np.asarray(cv2.resize(whole, (width_px, height), interpolation=cv2.INTER_AREA), np.uint8)


def paper_of(gray: Gray) -> Gray:
    """The paper's brightness, without what is written on it: an eighth of the sides, smooth."""
    coarse = shrink(gray, _COARSE)
    closed = cv2.morphologyEx(coarse, cv2.MORPH_CLOSE, np.ones((9, 9), np.uint8))
    return np.asarray(cv2.medianBlur(closed, 5), np.uint8)


def _darker(gray: Gray, paper: Gray) -> Gray:
    """How much darker than the paper there each pixel is."""
    level = cv2.resize(paper, (gray.shape[1], gray.shape[0]), interpolation=cv2.INTER_LINEAR)
    return np.asarray(cv2.subtract(level, gray), np.uint8)


def _ink_of(darker: Gray) -> Gray:
    """What is written: 255 where the image is much darker than the paper, 0 elsewhere."""
    _, ink = cv2.threshold(darker, 0, 255, cv2.THRESH_BINARY | cv2.THRESH_OTSU)
    return np.asarray(ink, np.uint8)


def _is_inverted(gray: Gray) -> bool:
    """Whether most of the page is dark, and more letters are seen in its negative.

    A white page on a scanner's black lid is dark in the main too: the letters decide.
    """
    few = gray[::4, ::4]
    low, high = np.percentile(few, (0.5, 99.5))
    if float(np.median(few)) >= float(low + high) / 2:
        return False
    negative = np.asarray(cv2.bitwise_not(gray), np.uint8)
    counts = [len(_pieces(_ink_of(_darker(one, paper_of(one)))).sizes) for one in (gray, negative)]
    return counts[1] > counts[0]


def _pieces(ink: Gray) -> _Pieces:
    """Tell letters from specks, rules and pictures by their size."""
    count, labels, stats, _ = cv2.connectedComponentsWithStats(ink, connectivity=8, ltype=cv2.CV_32S)
    sides = np.maximum(stats[:, cv2.CC_STAT_HEIGHT], stats[:, cv2.CC_STAT_WIDTH])
    sides[0] = 0  # the paper
    real = sides >= _SPECK
    if count <= 1 or not real.any():
        return _Pieces(ink, np.empty((0, 2), np.int32), 0.0)
    usual = float(np.median(sides[real]))
    letters = real & (sides >= _GLYPH_PARTS[0] * usual) & (sides <= _GLYPH_PARTS[1] * usual)
    specks = float(np.count_nonzero(~real) - 1) / max(1, int(np.count_nonzero(letters)))
    kept = np.where(letters, np.uint8(255), np.uint8(0))[labels]
    sizes = np.asarray(stats[letters][:, [cv2.CC_STAT_WIDTH, cv2.CC_STAT_HEIGHT]], np.int32)
    return _Pieces(np.asarray(kept, np.uint8), sizes, specks)


def _direction(ink: Gray, *, may_lie: bool) -> tuple[float, bool]:
    """Skew of the lines in degrees clockwise, and whether they run down the page.

    The lower edges of letters, seen along their lines, fall on few rows: the angle at which their histogram is the
    sharpest is the skew. The same is asked of right edges, for a page on its side, and the sharper answer wins;
    a single line has edges as sharp either way, so too little print does not lie.
    """
    across = _sharpest(_sample(ink[:-1] & ~ink[1:]))
    x, y = _sample(ink[:, :-1] & ~ink[:, 1:])
    down = _sharpest((-y, x))
    best = max(across, down) if may_lie else across
    if best[0] < 1.0:
        return 0.0, False
    return best[1], best is down


def _sample(edges: Gray) -> Points:
    if not edges.any():  # OpenCV has None for it
        return np.empty(0, np.float32), np.empty(0, np.float32)
    points = cv2.findNonZero(edges)
    few = points.reshape(-1, 2)[:: max(1, len(points) // _POINTS)].astype(np.float32)
    return np.ascontiguousarray(few[:, 0]), np.ascontiguousarray(few[:, 1])


def _sharpest(points: Points) -> tuple[float, float]:
    """How sharp the histogram is at its best angle, and the angle in degrees."""
    coarse = max((_sharpness(points, angle), angle) for angle in np.arange(-_MOST_SKEW, _MOST_SKEW + 0.1, 1.0))
    fine = max((_sharpness(points, angle), angle) for angle in coarse[1] + np.arange(-0.9, 0.91, 0.15))
    return float(fine[0]), float(fine[1])


def _sharpness(points: Points, degrees: float) -> float:
    """Sum of squares of the rows' counts against that of an even spread; 1 for an even one."""
    x, y = points
    if not len(x):
        return 0.0
    angle = math.radians(degrees)
    rows = (y * math.cos(angle) - x * math.sin(angle)).astype(np.int32)
    counts = np.bincount(rows - rows.min()).astype(np.float64)
    return float((counts**2).sum() * len(counts) / counts.sum() ** 2)
