"""Text lines on paper that is not flat: how their middle bends, and crops that follow the bend."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

# Pixels that the line's middle lies below its box's middle, at evenly spaced points along the box.
Bend = NDArray[np.float32]
Corners = NDArray[np.float32]  # (4, 2): clockwise from the top left

_STRAIGHT_FILL = 0.7  # share of its box that a straight line's contour fills; on crumpled paper it is about half
_MIN_ASPECT = 4.0  # width to height of a box; below, a bend cannot be told from the shape of letters
_DEGREE = 5  # of the curve through the middle: two waves
_POINTS = 33


def fit_bend(contour: Any, corners: Corners) -> tuple[Corners, Bend] | None:
    """The box of a curved line, as high as the line itself, and its bend; None for a line that is straight enough.

    Args:
        contour: around the line's text, as OpenCV gives it.
        corners: of the smallest box around it.
    """
    import cv2  # lazily: only pages need it

    across, down = _lengths(corners)
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


def crop_along_bend(page: NDArray[np.uint8], corners: Corners, bend: Bend) -> NDArray[np.uint8]:
    """The crop along a curved line, at the page's resolution."""
    import cv2  # see ``fit_bend``

    across, down = _lengths(corners)
    columns, rows = np.meshgrid(np.arange(round(across)) + 0.5, np.arange(max(1, round(down))) + 0.5)
    rows = rows + np.interp(columns[0] / across, np.linspace(0, 1, len(bend)), bend)
    right, below = (corners[1] - corners[0]) / across, (corners[3] - corners[0]) / down
    x = corners[0][0] + columns * right[0] + rows * below[0] - 0.5
    y = corners[0][1] + columns * right[1] + rows * below[1] - 0.5
    strip = cv2.remap(
        page, x.astype(np.float32), y.astype(np.float32), cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE
    )
    return np.asarray(strip, np.uint8)


def bend_offset(corners: Corners, bend: Bend, along: float) -> NDArray[np.float32]:
    """(2,): x and y by which the line lies off its box at ``along`` of its length, 0 to 1."""
    _, down = _lengths(corners)
    below = (corners[3] - corners[0]) / down
    return np.asarray(below * np.interp(along, np.linspace(0, 1, len(bend)), bend), np.float32)


def _lengths(corners: Corners) -> tuple[float, float]:
    across, down = np.linalg.norm(corners[1] - corners[0]), np.linalg.norm(corners[3] - corners[0])
    return max(1.0, float(across)), max(1.0, float(down))


def _with_height(corners: Corners, ratio: float) -> Corners:
    """The box with ``ratio`` of its height, around the same middle."""
    top_left, top_right, bottom_right, bottom_left = corners
    left, right = (top_left + bottom_left) / 2, (top_right + bottom_right) / 2
    half_left, half_right = (bottom_left - top_left) / 2 * ratio, (bottom_right - top_right) / 2 * ratio
    return np.stack([left - half_left, right - half_right, right + half_right, left + half_left])
