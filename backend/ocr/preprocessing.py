"""Preprocesses a page image for OCR: each step only where the image statistics show that it helps.

Pure functions on arrays. Each step is reported in words, and boxes on the prepared image can be mapped back to the
original. Then the page is cut into strips that can be recognised apart: only between lines of one column, where no ink
is. A cut through two columns would change their order, so the lines above and below it must fill the page's width
without a gap that goes through several of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from backend.ocr.records import Gray, PixelBox

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


Affine = NDArray[np.float64]  # (2, 3): x and y of a point from its x, y and 1

MAX_SIDE_PX = 32_000  # Tesseract refuses 32768 and more
_MIN_SIDE_PX = 64  # Tesseract's layout analysis fails on smaller images, such as a crop of one word
_SMALL_GLYPHS_PX = 15.0  # print of 8 points at 200 dpi; below, enlarging finds more words
_GOOD_GLYPHS_PX = 24.0  # what small letters are enlarged to
_MAX_SCALE = 1.5  # at 2 and more, words are found in the grain of receipts
_MAX_PIXELS = 12_000_000  # of an enlarged page: a large page full of small specks is noise, and would take minutes
_MIN_SKEW = 0.35  # degrees; deskewing less changes no result, leaving more loses lines and their order
_MAX_SHADE = 30.0  # gray levels; receipts and books are below, photographed pages above
_MAX_SPECKS = 3.0  # per letter; more are noise and not dots

_CODES = {90: cv2.ROTATE_90_CLOCKWISE, 180: cv2.ROTATE_180, 270: cv2.ROTATE_90_COUNTERCLOCKWISE}


@dataclass(frozen=True, slots=True)
class Prepared:
    gray: Gray  # dark ink on light paper
    back: Affine  # from its pixels to those of the original
    scale: float  # its pixels per pixel of the original
    steps: tuple[str, ...]


def to_gray(pixels: NDArray[np.uint8]) -> Gray:
    """The image in one channel; shares its memory where it has one already."""
    if pixels.ndim == 2:
        return np.ascontiguousarray(pixels)
    return np.asarray(cv2.cvtColor(np.ascontiguousarray(pixels), cv2.COLOR_RGB2GRAY), np.uint8)


def rotated(pixels: NDArray[np.uint8], degrees: int) -> NDArray[np.uint8]:
    """The image rotated clockwise by 0, 90, 180 or 270 degrees."""
    return pixels if not degrees else np.asarray(cv2.rotate(pixels, _CODES[degrees]), np.uint8)


def prepare(gray: Gray, stats: ImageStats) -> Prepared:
    """Apply the steps that help on this page.

    Args:
        stats: of ``gray``; ``sideways`` is ignored: rotate the image before.
    """
    steps: list[str] = []
    if stats.inverted:
        gray = np.asarray(cv2.bitwise_not(gray), np.uint8)
        steps.append("invert")
    if stats.shade > _MAX_SHADE:
        gray = even_lighting(gray)
        steps.append("even the light")
    if stats.specks > _MAX_SPECKS:
        gray = np.asarray(cv2.medianBlur(gray, 3), np.uint8)
        steps.append("remove specks")
    scale = _scale_for(gray, stats)
    if scale != 1.0:
        steps.append(f"{'enlarge' if scale > 1 else 'reduce'} {scale:.2g} times")
    skew = stats.skew if abs(stats.skew) >= _MIN_SKEW else 0.0
    if skew:
        steps.append(f"deskew {-skew:.1f}°")
    prepared, forward = _warped(gray, scale, skew)
    return Prepared(prepared, cv2.invertAffineTransform(forward).astype(np.float64), scale, tuple(steps))


def even_lighting(gray: Gray) -> Gray:
    """The page as if evenly lit: each pixel relative to the brightness of the paper around it."""
    step = max(1, round(math.sqrt(gray.size / 1_000_000)))
    paper = paper_of(shrink(gray, step))
    level = cv2.resize(cv2.GaussianBlur(paper, (0, 0), 3), (gray.shape[1], gray.shape[0]))
    return np.asarray(cv2.divide(gray, np.maximum(level, 1), scale=255), np.uint8)


def to_original_box(box: PixelBox, back: Affine, width_px: int, height: int) -> PixelBox:
    """The smallest upright rectangle around ``box`` on the original image, clipped to it."""
    corners = [(x, y, 1.0) for x in (box.left, box.right) for y in (box.top, box.bottom)]
    xs, ys = back @ np.asarray(corners).T
    return PixelBox(
        float(np.clip(xs.min(), 0, width_px)),
        float(np.clip(ys.min(), 0, height)),
        float(np.clip(xs.max(), 0, width_px)),
        float(np.clip(ys.max(), 0, height)),
    )


def _scale_for(gray: Gray, stats: ImageStats) -> float:
    longest = int(max(gray.shape))
    if longest > MAX_SIDE_PX:
        return MAX_SIDE_PX / longest
    if stats.glyph_height is None or stats.glyph_height >= _SMALL_GLYPHS_PX:
        return 1.0
    wanted = min(_MAX_SCALE, _GOOD_GLYPHS_PX / max(1.0, stats.glyph_height))
    most = min(MAX_SIDE_PX / longest, math.sqrt(_MAX_PIXELS / gray.size))
    return max(1.0, min(wanted, most))


def _warped(gray: Gray, scale: float, skew: float) -> tuple[Gray, Affine]:
    """The image scaled and deskewed, and the map from its old pixels to the new.

    No margin is added where none is needed: paper is not evenly gray, and Tesseract takes the seam for a frame.
    """
    height, width_px = gray.shape
    paper = int(np.median(gray[:: max(1, height // 64), :: max(1, width_px // 64)]))
    if not skew:
        return _padded(gray, scale, paper)
    angle = math.radians(skew)
    cos, sin = math.cos(angle) * scale, math.sin(angle) * scale
    forward = np.array([[cos, sin, 0.0], [-sin, cos, 0.0]])
    corners = forward[:, :2] @ np.array([[0, width_px, 0, width_px], [0, 0, height, height]], np.float64)
    forward[:, 2] = -corners.min(axis=1)
    size = np.maximum(np.ceil(np.ptp(corners, axis=1)).astype(int), _MIN_SIDE_PX)
    flags = cv2.INTER_CUBIC if scale > 1 else cv2.INTER_LINEAR
    warped = cv2.warpAffine(
        gray,
        _for_pixel_centres(forward),
        (int(size[0]), int(size[1])),
        flags=flags,
        borderMode=cv2.BORDER_CONSTANT,
        borderValue=paper,
    )
    return np.asarray(warped, np.uint8), forward


def _for_pixel_centres(forward: Affine) -> Affine:
    """The same map for OpenCV, where pixel 0 is centred at 0 instead of 0.5."""
    moved = forward.copy()
    moved[:, 2] += forward[:, :2] @ (0.5, 0.5) - 0.5
    return moved


def _padded(gray: Gray, scale: float, paper: int) -> tuple[Gray, Affine]:
    if scale != 1.0:
        height, width_px = gray.shape
        size = (max(1, round(width_px * scale)), max(1, round(height * scale)))
        flags = cv2.INTER_CUBIC if scale > 1 else cv2.INTER_AREA
        gray = np.asarray(cv2.resize(gray, size, interpolation=flags), np.uint8)
    above, beside = (max(0, -(-(_MIN_SIDE_PX - side) // 2)) for side in gray.shape)
    if above or beside:
        padded = cv2.copyMakeBorder(gray, above, above, beside, beside, cv2.BORDER_CONSTANT, value=(paper,))
        gray = np.asarray(padded, np.uint8)
    return gray, np.array([[scale, 0.0, beside], [0.0, scale, above]])


_STEP = 2  # pixels of the page for one of the ink's map
# Measured on 25 cut pages: as much time in all as the whole page takes; CER of prose within 0.005, mostly equal.
_STRIP_LINES = 5  # of a strip
_MAX_STRIPS = 8
_NEAR = 0.35  # strips: how far from its place a cut may be for wider white
_LINES_BESIDE = 9.0  # glyph heights above and below a cut that show its columns
_MIN_LINES_BESIDE = 3  # lines within them, of which most have no wide gap: a form's or a table's have
_GUTTER = 1.6  # glyph heights of white through all of these lines; gaps between words are narrower
_MARGIN_INK = 0.02  # of the ink on either side that may be stains, borders, or notes
_FULL_WIDTH = 0.75  # of the page's text width that prose beside a cut has
_SAME_PARAGRAPH = 1.3  # times the usual white between lines


class Strip(NamedTuple):
    """Rows of a page."""

    top: int
    bottom: int  # the first row below
    continues: bool  # the paragraph of the strip above
    ink_share: float  # of the page's ink


class _Gap(NamedTuple):
    """Rows of the ink's map without ink, between two lines."""

    top: int
    bottom: int

    @property
    def middle(self) -> int:
        return (self.top + self.bottom) // 2

    @property
    def height(self) -> int:
        return self.bottom - self.top


def cut_into_strips(gray: Gray, glyph_height: float | None) -> tuple[Strip, ...]:
    """The page in strips of about as much ink each, from the top; a single one where no cut is safe.

    Args:
        gray: (height, width_px), dark ink on light paper, lines level.
        glyph_height: of its letters, in pixels; None where there are too few to tell.
    """
    height = gray.shape[0]
    whole = (Strip(0, height, continues=False, ink_share=1.0),)
    if glyph_height is None:
        return whole
    ink = ink_of(shrink(gray, _STEP)) > 0
    letter = max(1.0, glyph_height / _STEP)
    gaps = _gaps(ink)
    wanted = min(_MAX_STRIPS, (len(gaps) + 1) // _STRIP_LINES)
    if wanted < 2:
        return whole
    usual = float(np.median([gap.height for gap in gaps]))
    cuts = _choose(gaps, ink, letter, wanted)
    rows = [0, *(gap.middle * _STEP for gap in cuts), height]
    continues = [False, *(gap.height <= _SAME_PARAGRAPH * usual for gap in cuts)]
    total = float(ink.sum())
    return tuple(
        Strip(top, bottom, joins, float(ink[top // _STEP : bottom // _STEP].sum()) / total)
        for (top, bottom), joins in zip(pairwise(rows), continues, strict=True)
    )


def _gaps(ink: NDArray[np.bool_]) -> list[_Gap]:
    """The white rows between lines; those above the first and below the last line are none."""
    inked = np.flatnonzero(ink.any(axis=1))
    above, below = inked[:-1], inked[1:]
    apart = below - above > 1
    return [_Gap(int(top) + 1, int(bottom)) for top, bottom in zip(above[apart], below[apart], strict=True)]


def _choose(gaps: list[_Gap], ink: NDArray[np.bool_], letter: float, wanted: int) -> list[_Gap]:
    """The widest safe gap around each place where a strip should end."""
    total = np.cumsum(ink.sum(axis=1))
    width = _text_width(ink)
    chosen: list[_Gap] = []
    for part in range(1, wanted):
        around = [gap for gap in gaps if abs(total[gap.middle] * wanted / total[-1] - part) < _NEAR]
        around.sort(key=lambda gap: -gap.height)
        safe = next((gap for gap in around if _is_one_column(ink, gap, letter, width)), None)
        if safe is not None:
            chosen.append(safe)
    return chosen


def _is_one_column(ink: NDArray[np.bool_], gap: _Gap, letter: float, width: int) -> bool:
    """Whether prose as wide as the page's is above and below: beside narrower prose, another column may have ended."""
    rows = round(_LINES_BESIDE * letter)
    beside = (ink[max(0, gap.top - rows) : gap.top], ink[gap.bottom : gap.bottom + rows])
    return all(_text_width(lines) >= _FULL_WIDTH * width and _is_prose(lines, _GUTTER * letter) for lines in beside)


def _text_width(rows: NDArray[np.bool_]) -> int:
    """Columns of the ink's map from the left to the right edge of the text, without what little is beside it."""
    total = np.cumsum(rows.sum(axis=0))
    left, right = np.searchsorted(total, np.array([_MARGIN_INK, 1 - _MARGIN_INK]) * total[-1])
    return int(right - left)


def _is_prose(rows: NDArray[np.bool_], gutter: float) -> bool:
    ends = [0, *(gap.middle for gap in _gaps(rows)), len(rows)]
    widest = [_widest_gutter(rows[top:bottom]) for top, bottom in pairwise(ends)]
    return len(widest) >= _MIN_LINES_BESIDE and float(np.median(widest)) < gutter and _widest_gutter(rows) < gutter


def _widest_gutter(lines: NDArray[np.bool_]) -> int:
    """Columns of the widest white gap that goes through all lines; 0 for lines without ink."""
    inked = np.flatnonzero(lines.any(axis=0))
    return int(np.diff(inked).max(initial=1)) - 1
