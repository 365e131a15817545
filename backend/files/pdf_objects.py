"""The objects of a PDF page with PDFium: their types, matrices and bounds. Runs in the workers only."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator

from pypdfium2 import raw

MOST_OBJECTS = 50_000  # that are looked at; a map may have more paths, which decide nothing
_MOST_NESTING = 5

Matrix = tuple[float, float, float, float, float, float]
_IDENTITY: Matrix = (1.0, 0.0, 0.0, 1.0, 0.0, 0.0)


def objects_of(page: object) -> Iterator[tuple[int, object, Matrix]]:
    """Type, handle and matrix to user space of the page's objects, including those inside form XObjects."""
    count = raw.FPDFPage_CountObjects(page)
    stack = [
        (raw.FPDFPage_GetObject(page, index), _IDENTITY, 0) for index in range(min(count, MOST_OBJECTS) - 1, -1, -1)
    ]
    seen = 0
    while stack and seen < MOST_OBJECTS:
        handle, matrix, depth = stack.pop()
        seen += 1
        kind = raw.FPDFPageObj_GetType(handle)
        yield kind, handle, matrix
        if kind == raw.FPDF_PAGEOBJ_FORM and depth < _MOST_NESTING:
            inner = product(matrix_of(handle), matrix)
            children = min(raw.FPDFFormObj_CountObjects(handle), MOST_OBJECTS - seen)
            stack += [(raw.FPDFFormObj_GetObject(handle, index), inner, depth + 1) for index in range(children)]


def matrix_of(handle: object) -> Matrix:
    matrix = raw.FS_MATRIX()
    if not raw.FPDFPageObj_GetMatrix(handle, matrix):
        return _IDENTITY
    return (matrix.a, matrix.b, matrix.c, matrix.d, matrix.e, matrix.f)


def product(first: Matrix, then: Matrix) -> Matrix:
    a, b, c, d, e, f = first
    p, q, r, s, t, u = then
    return (a * p + b * r, a * q + b * s, c * p + d * r, c * q + d * s, e * p + f * r + t, e * q + f * s + u)


def bounds_of(handle: object, matrix: Matrix) -> tuple[float, float, float, float] | None:
    """Left, bottom, right, top in user space."""
    sides = [ctypes.c_float() for _ in range(4)]
    if not raw.FPDFPageObj_GetBounds(handle, *sides):
        return None
    left, bottom, right, top = (side.value for side in sides)
    a, b, c, d, e, f = matrix
    xs = [a * x + c * y + e for x in (left, right) for y in (bottom, top)]
    ys = [b * x + d * y + f for x in (left, right) for y in (bottom, top)]
    box = (min(xs), min(ys), max(xs), max(ys))
    return box if all(map(math.isfinite, box)) else None
