"""Finds the printed lines of a page image, level and upright: the borders of tables, boxes and forms.

Dark runs that are far longer than any stroke of a letter are kept, at half the resolution of 200 dpi, where the paper
around them is lighter. A filled heading counts by its edges. A page of 1691 x 2377 pixels takes 22 ms on one core.
"""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from backend.ocr.preprocessing import to_gray
from backend.ocr.records import Gray, PixelLine

_LONG_SIDE_PX = 1170  # of the page that is searched: a hundred pixels an inch of A4
_RUN_PX = 28  # of an unbroken line: a quarter of an inch; skewed by 3 degrees, a line of two pixels has runs of 38
_MIN_LENGTH_PX = 34
_BLOCK_PX = 31  # around a pixel, which is dark where it is darker than their mean
_CONTRAST = 14  # gray levels darker
_FILLED_SHADE = 0.45  # of the paper's brightness: the inside of a dark area, where nothing lighter is near
_THICK_PX = 5  # of a line; what is thicker is an area
_MAX_SLOPE = 0.07  # 4 degrees
_FILLED = 0.6  # of an area's box: a filled cell, with light letters on it
_MAX_RULINGS = 2_000  # of a page; a halftone or a map has more and is left out


def find_rulings(pixels: NDArray[np.uint8]) -> tuple[PixelLine, ...]:
    """The lines of a page (height, width_px[, 3]); none where there are too many to be borders."""
    gray = to_gray(pixels)
    step = max(1, round(max(gray.shape) / _LONG_SIDE_PX))
    dark = _dark(gray, step)
    level = _lines_along(dark)
    upright = [PixelLine(line.y0, line.x0, line.y1, line.x1) for line in _lines_along(np.ascontiguousarray(dark.T))]
    lines = [*level, *upright]
    if len(lines) > _MAX_RULINGS:
        return ()
    return tuple(PixelLine(*(step * (side + 0.5) for side in line)) for line in lines)


def rotate_lines(lines: tuple[PixelLine, ...], degrees: int, width_px: int, height: int) -> tuple[PixelLine, ...]:
    """The lines after a turn of their page clockwise by 0, 90, 180 or 270 degrees.

    Args:
        width_px: of the page before the turn.
        height: of the page before the turn.
    """
    turned = []
    for x0, y0, x1, y1 in lines:
        ends = {
            0: ((x0, y0), (x1, y1)),
            90: ((height - y0, x0), (height - y1, x1)),
            180: ((width_px - x0, height - y0), (width_px - x1, height - y1)),
            270: ((y0, width_px - x0), (y1, width_px - x1)),
        }[degrees % 360]
        (xa, ya), (xb, yb) = (
            sorted(ends)
            if abs(ends[0][0] - ends[1][0]) > abs(ends[0][1] - ends[1][1])
            else sorted(ends, key=lambda end: end[1])
        )
        turned.append(PixelLine(xa, ya, xb, yb))
    return tuple(turned)


def _dark(gray: Gray, step: int) -> Gray:
    """The page reduced ``step`` times, 255 where it is darker than around; the darkest pixel of each square counts."""
    if step > 1:
        gray = np.ascontiguousarray(cv2.erode(gray, np.ones((step + 1, step + 1), np.uint8))[::step, ::step])
    inverse, mean = cv2.THRESH_BINARY_INV, cv2.ADAPTIVE_THRESH_MEAN_C
    dark = cv2.adaptiveThreshold(gray, 255, mean, inverse, _BLOCK_PX, _CONTRAST)
    filled = cv2.threshold(gray, _FILLED_SHADE * float(np.median(gray[::8, ::8])), 255, inverse)[1]
    return np.asarray(cv2.bitwise_or(dark, filled), np.uint8)


def _lines_along(dark: Gray) -> list[PixelLine]:
    """The almost level lines of a page of dark pixels, and the edges of its dark areas."""
    runs = cv2.morphologyEx(dark, cv2.MORPH_OPEN, np.ones((1, _RUN_PX), np.uint8))
    count, labels, stats, _ = cv2.connectedComponentsWithStats(runs, connectivity=8)
    lines: list[PixelLine] = []
    for label, (left, top, width, height, area) in enumerate(stats.tolist()):
        if label == 0 or width < _MIN_LENGTH_PX:
            continue
        if len(lines) > _MAX_RULINGS or count > 20 * _MAX_RULINGS:
            break
        thickness = area / width
        if thickness <= _THICK_PX and height <= _THICK_PX + _MAX_SLOPE * width:
            part = labels[top : top + height, left : left + width] == label
            near = max(1, width // 8)
            first, last = (top + float(np.nonzero(side)[0].mean()) for side in (part[:, :near], part[:, -near:]))
            lines.append(PixelLine(left, first, left + width, last))
        elif area >= _FILLED * width * height and height > 2 * _THICK_PX:
            lines += [PixelLine(left, y, left + width, y) for y in (top, top + height)]
    return lines
