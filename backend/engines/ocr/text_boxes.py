"""From a map of how likely each pixel is text to boxes around lines, and from boxes to level crops. No network here.

The method is DB's (Liao et al., 2020) with the constants of PP-OCR; boxes are grown without polygon clipping, for a
rectangle grown by a distance is a rectangle.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from backend.engines.ocr.curved_lines import Bend, follow, straightened

TEXT_AT = 0.3  # a pixel is text above this
_SURE_AT = 0.5  # mean over a box below which it is noise
_GROW = 1.6  # area over circumference times this: the network learnt shrunken lines
_SHORTEST_PX = 3.0  # of the map; below it is a speck
_LINES_MAX = 1000
CROP_HEIGHT_PX = 48
_CROP_WIDTH_MAX_PX = 3200  # 66 times the height: a line of 150 letters
_TALL_RATIO = 2.0  # a box this much higher than wide holds a line that runs downwards, not one letter

Quad = NDArray[np.float32]  # (4, 2): corners clockwise from where the line's text begins at the top
Pixels = NDArray[np.uint8]


class Line(NamedTuple):
    """Where a line of text is."""

    quad: Quad
    bend: Bend | None = None  # of a line on paper that is not flat


class Crop(NamedTuple):
    """One line, cut out and made level."""

    line: Line  # in pixels of the page
    pixels: Pixels  # (48, width_px, 3)


def find_lines(likely: NDArray[np.float32], scale_x: float, scale_y: float) -> list[Line]:
    """Boxes around lines of text.

    Args:
        likely: (height, width_px), 0..1.
        scale_x, scale_y: pixels of the page for one of the map.
    """
    import cv2  # not before a page is read

    mask = cv2.dilate((likely > TEXT_AT).astype(np.uint8), np.ones((2, 2), np.uint8))
    contours, _ = cv2.findContours(mask, cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)
    scale = np.array([scale_x, scale_y], np.float32)
    found = []
    for contour in contours[:_LINES_MAX]:
        middle, sides, angle = cv2.minAreaRect(contour)
        if min(sides) < _SHORTEST_PX or _sureness(likely, contour) < _SURE_AT:
            continue
        corners = _from_top_left(np.asarray(cv2.boxPoints((middle, sides, angle)), np.float32))
        bent = straightened(contour, corners)
        if bent is None:
            found.append(Line(_grown(corners) * scale))
        else:
            found.append(Line(_grown(bent[0]) * scale, bent[1] * scale[1]))
    return found


def cut(page: Pixels, lines: list[Line]) -> list[Crop]:
    """Each line of the page as a level strip; one that runs downwards is laid on its side."""
    return [Crop(line, _level(page, line)) for line in map(_lying, lines)]


def turned(line: Line, turn: int, width_px: int, height_px: int) -> Line:
    """A line of a page of that size on the same page turned clockwise by ``turn``, 90 or 180 degrees."""
    x, y = line.quad[:, 0], line.quad[:, 1]
    if turn == 90:
        return Line(_from_top_left(np.stack([height_px - y, x], axis=1)))
    bend = None if line.bend is None else -line.bend[::-1]
    return Line(_from_top_left(np.stack([width_px - x, height_px - y], axis=1)), bend)


def is_tall(line: Line) -> bool:
    """Whether the line runs downwards."""
    width, height = _sides(line.quad)
    return bool(height >= _TALL_RATIO * width)


def _lying(line: Line) -> Line:
    """The line with its long side first: a tall one is read from its right side, as the backs of books are."""
    return Line(np.roll(line.quad, -1, axis=0)) if is_tall(line) else line


def _grown(corners: Quad) -> Quad:
    """The box with as much around it as the network, which learnt shrunken lines, left out."""
    across, down = _sides(corners)
    distance = _GROW * across * down / (2 * (across + down))
    right, below = (corners[1] - corners[0]) / across, (corners[3] - corners[0]) / down
    outwards = np.stack([-right - below, right - below, right + below, below - right])
    return np.asarray(corners + distance * outwards, np.float32)


def _sides(quad: Quad) -> tuple[float, float]:
    across = max(np.linalg.norm(quad[0] - quad[1]), np.linalg.norm(quad[2] - quad[3]))
    down = max(np.linalg.norm(quad[0] - quad[3]), np.linalg.norm(quad[1] - quad[2]))
    return max(float(across), 1.0), max(float(down), 1.0)


def _from_top_left(corners: Quad) -> Quad:
    left_to_right = corners[np.argsort(corners[:, 0], kind="stable")]
    left, right = left_to_right[:2], left_to_right[2:]
    top_left, bottom_left = left[np.argsort(left[:, 1], kind="stable")]
    top_right, bottom_right = right[np.argsort(right[:, 1], kind="stable")]
    return np.stack([top_left, top_right, bottom_right, bottom_left])


def _sureness(likely: NDArray[np.float32], contour: Any) -> float:
    """Mean within the contour: within the box around it, a line on crumpled paper would look like noise."""
    import cv2  # see ``find_quads``

    left, top, width, height = cv2.boundingRect(contour)
    mask = np.zeros((height, width), np.uint8)
    cv2.drawContours(mask, [contour], 0, 1, cv2.FILLED, offset=(-left, -top))
    return float(cv2.mean(likely[top : top + height, left : left + width], mask)[0])


def _level(page: Pixels, line: Line) -> Pixels:
    """(48, width_px, 3) uint8: first at the page's own resolution, then shrunk by area, so that strokes stay whole."""
    import cv2  # see ``find_lines``

    strip = _strip(page, line.quad) if line.bend is None else follow(page, line.quad, line.bend)
    down, across = strip.shape[:2]
    width = min(_CROP_WIDTH_MAX_PX, max(1, round(across * CROP_HEIGHT_PX / down)))
    way = cv2.INTER_AREA if down > CROP_HEIGHT_PX else cv2.INTER_CUBIC
    level = np.asarray(cv2.resize(strip, (width, CROP_HEIGHT_PX), interpolation=way), np.uint8)
    return level if level.ndim == 3 else np.repeat(level[..., None], 3, axis=2)


def _strip(page: Pixels, quad: Quad) -> Pixels:
    import cv2  # see ``find_lines``

    across, down = (max(1, round(side)) for side in _sides(quad))
    corners = np.array([[0, 0], [across, 0], [across, down], [0, down]], np.float32)
    transform = cv2.getPerspectiveTransform(np.ascontiguousarray(quad, np.float32), corners)
    strip = cv2.warpPerspective(page, transform, (across, down), flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE)
    return np.asarray(strip, np.uint8)
