"""Preprocesses a page image for OCR: each step only where the image statistics show that it helps.

Pure functions on arrays. Each step is reported in words, and boxes on the prepared image can be mapped back to the
original.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from backend.ocr.image_stats import ImageStats, paper_of, shrink
from backend.ocr.records import Gray, PixelBox

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
