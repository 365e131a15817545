"""An image made easier to read, each step only where the look of the page says that it helps, and the way back.

Pure functions on arrays. What was done is told in words, and every point of the prepared image has its place in the
image as it was: words are found on the page, not on its improved copy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from backend.engines.ocr.image_stats import Look, paper_of, shrink
from backend.engines.ocr.records import Gray, PixelBox

Affine = NDArray[np.float64]  # (2, 3): x and y of a point from its x, y and 1

MOST_PIXELS_A_SIDE = 32_000  # Tesseract refuses 32768 and more
_LEAST_PIXELS_A_SIDE = 64  # a crop of one word has no room for Tesseract's layout analysis
_SMALL_GLYPHS = 15.0  # pixels, print of 8 points at 200 dpi; below, enlarging finds more words
_GOOD_GLYPHS = 24.0  # pixels; what small letters are enlarged to
_MOST_ENLARGED = 1.5  # twice and more finds words in the grain of receipts
_MOST_PIXELS = 12_000_000  # of an enlarged page: a large one full of small specks is noise, and would take minutes
_LEAST_SKEW = 0.35  # degrees; less changes no reading, more loses lines and their order
_UNEVEN = 30.0  # gray levels of shade; receipts and books stay below, pages photographed in a room do not
_SPECKLED = 3.0  # specks a letter, beyond which they are noise and not dots

_CODES = {90: cv2.ROTATE_90_CLOCKWISE, 180: cv2.ROTATE_180, 270: cv2.ROTATE_90_COUNTERCLOCKWISE}


@dataclass(frozen=True, slots=True)
class Prepared:
    """An image for an engine."""

    gray: Gray  # dark ink on light paper
    back: Affine  # from its pixels to those of the image it was made of
    scale: float  # its pixels for one of that image
    steps: tuple[str, ...]


def to_gray(pixels: NDArray[np.uint8]) -> Gray:
    """One channel, of the same memory where it is one already."""
    if pixels.ndim == 2:
        return np.ascontiguousarray(pixels)
    return np.asarray(cv2.cvtColor(np.ascontiguousarray(pixels), cv2.COLOR_RGB2GRAY), np.uint8)


def turned(pixels: NDArray[np.uint8], degrees: int) -> NDArray[np.uint8]:
    """The image turned clockwise by 0, 90, 180 or 270 degrees."""
    return pixels if not degrees else np.asarray(cv2.rotate(pixels, _CODES[degrees]), np.uint8)


def prepare(gray: Gray, look: Look) -> Prepared:
    """Do what helps on this page.

    Args:
        look: of ``gray`` as it stands; its ``sideways`` is not obeyed, turn the image before.
    """
    steps: list[str] = []
    if look.inverted:
        gray = np.asarray(cv2.bitwise_not(gray), np.uint8)
        steps.append("invert")
    if look.shade > _UNEVEN:
        gray = flattened(gray)
        steps.append("even the light")
    if look.specks > _SPECKLED:
        gray = np.asarray(cv2.medianBlur(gray, 3), np.uint8)
        steps.append("remove specks")
    scale = _scale_for(gray, look)
    if scale != 1.0:
        steps.append(f"{'enlarge' if scale > 1 else 'reduce'} {scale:.2g} times")
    skew = look.skew if abs(look.skew) >= _LEAST_SKEW else 0.0
    if skew:
        steps.append(f"deskew {-skew:.1f}°")
    prepared, there = _placed(gray, scale, skew)
    return Prepared(prepared, cv2.invertAffineTransform(there).astype(np.float64), scale, tuple(steps))


def flattened(gray: Gray) -> Gray:
    """The page as if evenly lit: each pixel as a part of the paper's brightness there."""
    step = max(1, round(math.sqrt(gray.size / 1_000_000)))
    paper = paper_of(shrink(gray, step))
    level = cv2.resize(cv2.GaussianBlur(paper, (0, 0), 3), (gray.shape[1], gray.shape[0]))
    return np.asarray(cv2.divide(gray, np.maximum(level, 1), scale=255), np.uint8)


def placed_back(box: PixelBox, back: Affine, width_px: int, height: int) -> PixelBox:
    """The smallest upright rectangle around ``box`` on the image that was prepared, within its sides."""
    corners = [(x, y, 1.0) for x in (box.left, box.right) for y in (box.top, box.bottom)]
    xs, ys = back @ np.asarray(corners).T
    return PixelBox(
        float(np.clip(xs.min(), 0, width_px)),
        float(np.clip(ys.min(), 0, height)),
        float(np.clip(xs.max(), 0, width_px)),
        float(np.clip(ys.max(), 0, height)),
    )


def _scale_for(gray: Gray, look: Look) -> float:
    longest = int(max(gray.shape))
    if longest > MOST_PIXELS_A_SIDE:
        return MOST_PIXELS_A_SIDE / longest
    if look.glyph_height is None or look.glyph_height >= _SMALL_GLYPHS:
        return 1.0
    wished = min(_MOST_ENLARGED, _GOOD_GLYPHS / max(1.0, look.glyph_height))
    most = min(MOST_PIXELS_A_SIDE / longest, math.sqrt(_MOST_PIXELS / gray.size))
    return max(1.0, min(wished, most))


def _placed(gray: Gray, scale: float, skew: float) -> tuple[Gray, Affine]:
    """The image scaled and turned back by its skew, and the map from its old pixels to the new.

    No margin is added where nothing asks for room: paper is no even gray, and Tesseract takes the seam for a frame.
    """
    height, width_px = gray.shape
    paper = int(np.median(gray[:: max(1, height // 64), :: max(1, width_px // 64)]))
    if not skew:
        return _padded(gray, scale, paper)
    angle = math.radians(skew)
    cos, sin = math.cos(angle) * scale, math.sin(angle) * scale
    there = np.array([[cos, sin, 0.0], [-sin, cos, 0.0]])
    corners = there[:, :2] @ np.array([[0, width_px, 0, width_px], [0, 0, height, height]], np.float64)
    there[:, 2] = -corners.min(axis=1)
    size = np.maximum(np.ceil(np.ptp(corners, axis=1)).astype(int), _LEAST_PIXELS_A_SIDE)
    flags = cv2.INTER_CUBIC if scale > 1 else cv2.INTER_LINEAR
    warped = cv2.warpAffine(
        gray,
        _of_centres(there),
        (int(size[0]), int(size[1])),
        flags=flags,
        borderMode=cv2.BORDER_CONSTANT,
        borderValue=paper,
    )
    return np.asarray(warped, np.uint8), there


def _of_centres(there: Affine) -> Affine:
    """The same map for OpenCV, whose pixel 0 lies at 0 and not from 0 to 1."""
    moved = there.copy()
    moved[:, 2] += there[:, :2] @ (0.5, 0.5) - 0.5
    return moved


def _padded(gray: Gray, scale: float, paper: int) -> tuple[Gray, Affine]:
    if scale != 1.0:
        height, width_px = gray.shape
        size = (max(1, round(width_px * scale)), max(1, round(height * scale)))
        flags = cv2.INTER_CUBIC if scale > 1 else cv2.INTER_AREA
        gray = np.asarray(cv2.resize(gray, size, interpolation=flags), np.uint8)
    above, beside = (max(0, -(-(_LEAST_PIXELS_A_SIDE - side) // 2)) for side in gray.shape)
    if above or beside:
        padded = cv2.copyMakeBorder(gray, above, above, beside, beside, cv2.BORDER_CONSTANT, value=(paper,))
        gray = np.asarray(padded, np.uint8)
    return gray, np.array([[scale, 0.0, beside], [0.0, scale, above]])
