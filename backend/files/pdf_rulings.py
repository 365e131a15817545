"""The level and upright lines that a PDF page draws: the borders of tables, boxes and forms. Runs in the workers only.

Programs draw a border as a stroke, as a thin filled rectangle, or not at all where cells are filled with a colour: the
edges of filled rectangles count too.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import pypdfium2 as pdfium
from numpy.typing import NDArray
from pypdfium2 import raw

from backend.files.pdf_objects import Matrix, matrix_of, objects_of, product
from backend.files.pdf_page import to_viewer

MOST_RULINGS = 5_000  # of a page; a drawing has more, a table of 500 rows of ten cells has 5,000 edges
_MOST_SEGMENTS = 40_000  # of paths that are looked at; a map or a plot has more
_LEAST_LENGTH = 4.0  # points
_THICK = 3.0  # points: a filled rectangle that is thicker is an area
_STRAIGHT = 0.02  # slope of a line that still counts as level or upright
_WHITE = 250  # of 255: a filling that nobody sees

_Point = tuple[float, float]
_Side = tuple[float, float, float, float]  # left, bottom, right, top


def read_rulings(page: pdfium.PdfPage) -> NDArray[np.float32]:
    """(rulings, 4): left, top, right, bottom of each line as a viewer shows the page; none of a page with too many."""
    left, bottom, right, top = page.get_bbox()
    area = (right - left) * (top - bottom)
    found: list[_Side] = []
    segments = 0
    for kind, handle, matrix in objects_of(page.raw):
        if kind != raw.FPDF_PAGEOBJ_PATH:
            continue
        segments += max(0, raw.FPDFPath_CountSegments(handle))
        if segments > _MOST_SEGMENTS or len(found) > MOST_RULINGS:
            return np.zeros((0, 4), np.float32)
        found += _lines_of(handle, matrix, area)
    inside = [side for side in found if side[2] >= left and side[0] <= right and side[3] >= bottom and side[1] <= top]
    sides = np.array(inside, np.float32).reshape(-1, 4)
    sides[:, 0::2] = np.clip(sides[:, 0::2], left, right)
    sides[:, 1::2] = np.clip(sides[:, 1::2], bottom, top)
    return to_viewer(sides[:, [0, 3, 2, 1]], page)  # as boxes of characters are: the top before the bottom


def _lines_of(handle: object, matrix: Matrix, page_area: float) -> Iterator[_Side]:
    """The lines of a path, in user space."""
    fill, stroke = ctypes.c_int(), ctypes.c_int()
    if not raw.FPDFPath_GetDrawMode(handle, fill, stroke):
        return
    is_stroked = bool(stroke.value) and _is_seen(handle, raw.FPDFPageObj_GetStrokeColor)
    is_filled = bool(fill.value) and _is_seen(handle, raw.FPDFPageObj_GetFillColor)
    if not is_stroked and not is_filled:
        return
    for points in _subpaths(handle, product(matrix_of(handle), matrix)):
        if is_stroked:
            yield from _straight(points)
        elif (outline := _outline(points)) is not None:
            yield from _edges(outline, page_area)


def _subpaths(handle: object, matrix: Matrix) -> Iterator[list[_Point]]:
    """The corners of each subpath in user space; one with curves ends at its first curve."""
    a, b, c, d, e, f = matrix
    x, y = ctypes.c_float(), ctypes.c_float()
    points: list[_Point] = []
    is_curved = False
    for index in range(raw.FPDFPath_CountSegments(handle)):
        segment = raw.FPDFPath_GetPathSegment(handle, index)
        kind = raw.FPDFPathSegment_GetType(segment)
        if not raw.FPDFPathSegment_GetPoint(segment, x, y):
            continue
        if kind == raw.FPDF_SEGMENT_MOVETO:
            if len(points) > 1:
                yield points
            points, is_curved = [], False
        is_curved |= kind == raw.FPDF_SEGMENT_BEZIERTO
        if not is_curved:
            points.append((a * x.value + c * y.value + e, b * x.value + d * y.value + f))
            if raw.FPDFPathSegment_GetClose(segment) and points[0] != points[-1]:
                points.append(points[0])
    if len(points) > 1:
        yield points


def _straight(points: Sequence[_Point]) -> Iterator[_Side]:
    for (x0, y0), (x1, y1) in pairwise(points):
        across, down = abs(x1 - x0), abs(y1 - y0)
        if max(across, down) >= _LEAST_LENGTH and min(across, down) <= _STRAIGHT * max(across, down):
            yield (min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1))


def _outline(points: Sequence[_Point]) -> _Side | None:
    """The rectangle that a filled shape covers; None for other shapes, unless it is thin."""
    xs, ys = zip(*points, strict=True)
    side = (min(xs), min(ys), max(xs), max(ys))
    if not all(map(math.isfinite, side)) or len(points) > 6:
        return None
    thickness = min(side[2] - side[0], side[3] - side[1])
    on_edge = all(
        min(abs(x - side[0]), abs(x - side[2])) < 0.5 and min(abs(y - side[1]), abs(y - side[3])) < 0.5
        for x, y in points
    )
    return side if on_edge or thickness <= _THICK else None


def _edges(outline: _Side, page_area: float) -> Iterator[_Side]:
    """A thin rectangle as its middle line, any other as its edges; the page's background has none."""
    left, bottom, right, top = outline
    width, height = right - left, top - bottom
    if max(width, height) < _LEAST_LENGTH or width * height > 0.8 * page_area:
        return
    if min(width, height) <= _THICK:
        x, y = (left + right) / 2, (bottom + top) / 2
        yield (left, y, right, y) if width > height else (x, bottom, x, top)
        return
    yield (left, top, right, top)
    yield (left, bottom, right, bottom)
    yield (left, bottom, left, top)
    yield (right, bottom, right, top)


def _is_seen(handle: object, color_of: object) -> bool:
    """Whether a colour is neither white nor transparent."""
    red, green, blue, alpha = (ctypes.c_uint() for _ in range(4))
    if not color_of(handle, red, green, blue, alpha):  # type: ignore[operator]
        return True
    return alpha.value > 0 and min(red.value, green.value, blue.value) < _WHITE
