"""From a map of text probabilities to boxes around lines, and from boxes to level crops. Runs no network.

The method is DB's (Liao et al., 2020) with the constants of PP-OCR. Boxes are grown without polygon clipping, as a
rectangle grown by a distance is a rectangle.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

# Pixels that the line's middle lies below its box's middle, at evenly spaced points along the box.
Bend = NDArray[np.float32]
Quad = NDArray[np.float32]  # (4, 2): corners clockwise from the top left of the text
Pixels = NDArray[np.uint8]

_STRAIGHT_FILL = 0.7  # share of its box that a straight line's contour fills; on crumpled paper it is about half
_MIN_ASPECT = 4.0  # width to height of a box; below, a bend cannot be told from the shape of letters
_DEGREE = 5  # of the curve through the middle: two waves
_POINTS = 33


def fit_bend(contour: Any, corners: Quad) -> tuple[Quad, Bend] | None:
    """The box of a curved line, as high as the line itself, and its bend; None for a line that is straight enough.

    Args:
        contour: around the line's text, as OpenCV gives it.
        corners: of the smallest box around it.
    """
    import cv2  # lazily: only pages need it

    across, down = _sides(corners)
    if across < _MIN_ASPECT * down or cv2.contourArea(contour) > _STRAIGHT_FILL * across * down:
        return None
    upright = np.array([[0, 0], [across, 0], [across, down], [0, down]], np.float32)
    transform = cv2.getPerspectiveTransform(np.ascontiguousarray(corners, np.float32), upright)
    points = cv2.perspectiveTransform(contour.astype(np.float32), transform)
    mask = np.zeros((int(down) + 1, int(across) + 1), np.uint8)
    cv2.fillPoly(mask, [np.round(points).astype(np.int32)], 1)
    thickness = mask.sum(axis=0)
    columns = np.flatnonzero(thickness)
    if len(columns) <= _DEGREE:
        return None
    middles = (np.arange(mask.shape[0])[:, None] * mask).sum(axis=0)[columns] / thickness[columns]
    curve = np.polynomial.Polynomial.fit(columns, middles, _DEGREE)
    bend = curve(np.linspace(0, across, _POINTS)).astype(np.float32) - down / 2
    return _with_height(corners, float(np.median(thickness[columns])) / down), bend


def crop_along_bend(page: Pixels, corners: Quad, bend: Bend) -> Pixels:
    """The crop along a curved line, at the page's resolution."""
    import cv2  # see ``fit_bend``

    across, down = _sides(corners)
    columns, rows = np.meshgrid(np.arange(round(across)) + 0.5, np.arange(max(1, round(down))) + 0.5)
    rows = rows + np.interp(columns[0] / across, np.linspace(0, 1, len(bend)), bend)
    right, below = (corners[1] - corners[0]) / across, (corners[3] - corners[0]) / down
    x = corners[0][0] + columns * right[0] + rows * below[0] - 0.5
    y = corners[0][1] + columns * right[1] + rows * below[1] - 0.5
    strip = cv2.remap(
        page, x.astype(np.float32), y.astype(np.float32), cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE
    )
    return np.asarray(strip, np.uint8)


def bend_offset(corners: Quad, bend: Bend, along: float) -> NDArray[np.float32]:
    """(2,): x and y by which the line lies off its box at ``along`` of its length, 0 to 1."""
    _, down = _sides(corners)
    below = (corners[3] - corners[0]) / down
    return np.asarray(below * np.interp(along, np.linspace(0, 1, len(bend)), bend), np.float32)


def _with_height(corners: Quad, ratio: float) -> Quad:
    """The box with ``ratio`` of its height, around the same middle."""
    top_left, top_right, bottom_right, bottom_left = corners
    left, right = (top_left + bottom_left) / 2, (top_right + bottom_right) / 2
    half_left, half_right = (bottom_left - top_left) / 2 * ratio, (bottom_right - top_right) / 2 * ratio
    return np.stack([left - half_left, right - half_right, right + half_right, left + half_left])


TEXT_PROBABILITY = 0.3  # a pixel is text above this
_MIN_BOX_PROBABILITY = 0.5  # mean within a contour; below, it is noise
_GROW = 1.6  # times area over circumference: the network was trained on shrunken lines
_MIN_SIDE_PX = 3.0  # of the map; smaller boxes are specks
_MAX_LINES = 1000
CROP_HEIGHT_PX = 48
_MAX_CROP_WIDTH_PX = 3200  # 66 times the height: a line of 150 letters
_TALL_RATIO = 2.0  # height to width of a box with a line that runs downwards, not one letter


class LineShape(NamedTuple):
    """The place of a text line."""

    quad: Quad
    bend: Bend | None = None  # None for a straight line


class Crop(NamedTuple):
    """One line, cropped and levelled."""

    line: LineShape  # in pixels of the page
    pixels: Pixels  # (48, width_px, 3)


def find_lines(probabilities: NDArray[np.float32], scale_x: float, scale_y: float) -> list[LineShape]:
    """Boxes around text lines.

    Args:
        probabilities: (height, width_px), 0..1.
        scale_x, scale_y: pixels of the page for one of the map.
    """
    import cv2  # lazily: only pages need it

    mask = cv2.dilate((probabilities > TEXT_PROBABILITY).astype(np.uint8), np.ones((2, 2), np.uint8))
    contours, _ = cv2.findContours(mask, cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)
    scale = np.array([scale_x, scale_y], np.float32)
    lines = []
    for contour in contours[:_MAX_LINES]:
        middle, sides, angle = cv2.minAreaRect(contour)
        if min(sides) < _MIN_SIDE_PX or _box_probability(probabilities, contour) < _MIN_BOX_PROBABILITY:
            continue
        corners = _from_top_left(np.asarray(cv2.boxPoints((middle, sides, angle)), np.float32))
        curved = fit_bend(contour, corners)
        if curved is None:
            lines.append(LineShape(_grown(corners) * scale))
        else:
            lines.append(LineShape(_grown(curved[0]) * scale, curved[1] * scale[1]))
    return lines


def crop_lines(page: Pixels, lines: list[LineShape]) -> list[Crop]:
    """A level crop of each line; a line that runs downwards is rotated."""
    return [Crop(line, _level_crop(page, line)) for line in map(_horizontal, lines)]


def rotate_line(line: LineShape, degrees: int, width_px: int, height_px: int) -> LineShape:
    """The line on the page rotated clockwise by 90 or 180 degrees. Width and height are the page's before that."""
    x, y = line.quad[:, 0], line.quad[:, 1]
    if degrees == 90:
        return LineShape(_from_top_left(np.stack([height_px - y, x], axis=1)))
    bend = None if line.bend is None else -line.bend[::-1]
    return LineShape(_from_top_left(np.stack([width_px - x, height_px - y], axis=1)), bend)


def middle_of(line: LineShape) -> NDArray[np.float32]:
    """(points, 2): along the middle of the line from its start to its end; two points where it is straight."""
    quad, bend = line
    start, end = (quad[0] + quad[3]) / 2, (quad[1] + quad[2]) / 2
    if bend is None:
        return np.stack([start, end])
    points = [start + (end - start) * along + bend_offset(quad, bend, along) for along in np.linspace(0, 1, len(bend))]
    return np.stack(points)


def is_tall(line: LineShape) -> bool:
    """Whether the line runs downwards."""
    width, height = _sides(line.quad)
    return bool(height >= _TALL_RATIO * width)


def _horizontal(line: LineShape) -> LineShape:
    """The line with its long side first: a tall one is read from its right side, like the spine of a book."""
    return LineShape(np.roll(line.quad, -1, axis=0)) if is_tall(line) else line


def _grown(corners: Quad) -> Quad:
    """The box grown by what the network, trained on shrunken lines, leaves out."""
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


def _box_probability(probabilities: NDArray[np.float32], contour: Any) -> float:
    """Mean within the contour; within its box, a line on crumpled paper would look like noise."""
    import cv2  # see ``find_lines``

    left, top, width, height = cv2.boundingRect(contour)
    mask = np.zeros((height, width), np.uint8)
    cv2.drawContours(mask, [contour], 0, 1, cv2.FILLED, offset=(-left, -top))
    return float(cv2.mean(probabilities[top : top + height, left : left + width], mask)[0])


def _level_crop(page: Pixels, line: LineShape) -> Pixels:
    """(48, width_px, 3) uint8: cropped at the page's resolution, then shrunk by area, which keeps thin strokes."""
    import cv2  # see ``find_lines``

    crop = _rectified(page, line.quad) if line.bend is None else crop_along_bend(page, line.quad, line.bend)
    down, across = crop.shape[:2]
    width = min(_MAX_CROP_WIDTH_PX, max(1, round(across * CROP_HEIGHT_PX / down)))
    way = cv2.INTER_AREA if down > CROP_HEIGHT_PX else cv2.INTER_CUBIC
    level = np.asarray(cv2.resize(crop, (width, CROP_HEIGHT_PX), interpolation=way), np.uint8)
    return level if level.ndim == 3 else np.repeat(level[..., None], 3, axis=2)


def _rectified(page: Pixels, quad: Quad) -> Pixels:
    import cv2  # see ``find_lines``

    across, down = (max(1, round(side)) for side in _sides(quad))
    corners = np.array([[0, 0], [across, 0], [across, down], [0, down]], np.float32)
    transform = cv2.getPerspectiveTransform(np.ascontiguousarray(quad, np.float32), corners)
    strip = cv2.warpPerspective(page, transform, (across, down), flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE)
    return np.asarray(strip, np.uint8)
