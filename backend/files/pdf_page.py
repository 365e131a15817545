"""One page of a PDF with PDFium: its characters, statistics and image. Runs in the workers only."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pypdfium2 as pdfium
from numpy.typing import NDArray
from pypdfium2 import raw

from backend.files.records import LayerStats
from backend.files.text_layout import Characters, rotate_boxes

MAX_OBJECTS = 50_000  # that are looked at; a map may have more paths, which decide nothing
_MAX_NESTING = 5

Matrix = tuple[float, float, float, float, float, float]
_IDENTITY: Matrix = (1.0, 0.0, 0.0, 1.0, 0.0, 0.0)


def objects_of(page: object) -> Iterator[tuple[int, object, Matrix]]:
    """Type, handle and matrix to user space of the page's objects, including those inside form XObjects."""
    count = raw.FPDFPage_CountObjects(page)
    stack = [
        (raw.FPDFPage_GetObject(page, index), _IDENTITY, 0) for index in range(min(count, MAX_OBJECTS) - 1, -1, -1)
    ]
    seen = 0
    while stack and seen < MAX_OBJECTS:
        handle, matrix, depth = stack.pop()
        seen += 1
        kind = raw.FPDFPageObj_GetType(handle)
        yield kind, handle, matrix
        if kind == raw.FPDF_PAGEOBJ_FORM and depth < _MAX_NESTING:
            inner = product(matrix_of(handle), matrix)
            children = min(raw.FPDFFormObj_CountObjects(handle), MAX_OBJECTS - seen)
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


MAX_CHARACTERS = 2_000_000  # of a page; with more it is no page of text
_SAMPLE = 400  # glyphs that are tested for a Unicode mapping and visibility, at a microsecond each
_GRID = 64  # cells a side in which the area covered by images is counted
_INVISIBLE = 3  # text render mode of OCR text layers, ISO 32000-1 table 106
_VISIBLE_TYPES = (raw.FPDF_PAGEOBJ_TEXT, raw.FPDF_PAGEOBJ_PATH, raw.FPDF_PAGEOBJ_IMAGE, raw.FPDF_PAGEOBJ_SHADING)

# With raw addresses and without releasing the GIL: a quarter of the time of a call made some 3,000 times a page.
_GET_LOOSE_BOX = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)(
    ctypes.cast(raw.FPDFText_GetLooseCharBox, ctypes.c_void_p).value or 0
)


class _ObjectStats(NamedTuple):
    objects: int  # visible ones
    drawings: int  # of these, all but text
    image_ratio: float  # share of the page covered by images
    image_dpi: float | None  # of the largest image


def read_characters(page: pdfium.PdfPage) -> tuple[Characters, LayerStats]:
    """The characters of a page as a viewer shows it, and statistics of its text layer."""
    text_page = page.get_textpage()
    try:
        count = text_page.count_chars()
        if count > MAX_CHARACTERS:
            raise ValueError(f"its text layer claims {count} characters")
        codes = _codes(text_page.raw, count)
        boxes = _loose_boxes(text_page.raw, count)
        quarters = _quarters(text_page.raw, codes, page.get_rotation())
        unmapped_ratio, invisible_ratio = _sample_glyphs(text_page.raw, np.flatnonzero(codes > 0x20))
    finally:
        text_page.close()
    characters = _join_surrogates(Characters(codes, to_viewer(boxes, page), quarters, *page.get_size()))
    inked = int(np.count_nonzero(characters.codes > 0x20))
    objects = _object_stats(page)
    stats = LayerStats(
        characters=inked,
        invisible=round(invisible_ratio * inked),
        unmapped_ratio=unmapped_ratio,
        replaced=int(np.count_nonzero(_is_meaningless(codes))),
        objects=objects.objects,
        drawings=objects.drawings,
        image_ratio=objects.image_ratio,
        image_dpi=objects.image_dpi,
    )
    return characters, stats


def render(page: pdfium.PdfPage, dpi: float, turn: int, *, color: bool, most_pixels: int) -> NDArray[np.uint8]:
    """The page as (height, width_px) gray or (height, width_px, 3) RGB.

    Raises:
        ValueError: more pixels than ``most_pixels``, which the caller should have respected.
    """
    scale = dpi / 72
    width, height = (math.ceil(side * scale) for side in page.get_size())
    if width * height > most_pixels:
        raise ValueError(f"{width} x {height} pixels are over {most_pixels}")
    bitmap = page.render(scale=scale, rotation=turn, grayscale=not color, rev_byteorder=True, limit_image_cache=True)
    pixels: NDArray[np.uint8] = bitmap.to_numpy()
    pixels = pixels[:, :, 0] if pixels.ndim == 3 and not color else pixels
    copy = np.ascontiguousarray(pixels)  # rows of the bitmap are padded
    copy = copy.copy() if copy is pixels else copy
    bitmap.close()
    return copy


def _codes(text_page: object, count: int) -> NDArray[np.uint32]:
    """UTF-16 code units, one for each of PDFium's characters."""
    units = np.zeros(count + 1, np.uint16)
    count_written = raw.FPDFText_GetText(text_page, 0, count, units.ctypes.data_as(ctypes.POINTER(ctypes.c_ushort)))
    if count_written == count + 1:  # else PDFium skipped some, and indexes no longer match
        return units[:count].astype(np.uint32)
    get = raw.FPDFText_GetUnicode
    return np.array([get(text_page, index) for index in range(count)], np.uint32)


def _join_surrogates(characters: Characters) -> Characters:
    """Combine surrogate pairs, which PDFium gives as two characters with the same box, into code points."""
    codes = characters.codes
    is_high, is_low = (codes >= 0xD800) & (codes < 0xDC00), (codes >= 0xDC00) & (codes < 0xE000)
    first = np.flatnonzero(is_high[:-1] & is_low[1:])
    if not len(first):
        return characters
    joined = codes.copy()
    joined[first] = 0x10000 + ((codes[first] - 0xD800) << 10) + (codes[first + 1] - 0xDC00)
    is_kept = np.ones(len(codes), bool)
    is_kept[first + 1] = False
    return replace(
        characters, codes=joined[is_kept], boxes=characters.boxes[is_kept], quarters=characters.quarters[is_kept]
    )


def _loose_boxes(text_page: Any, count: int) -> NDArray[np.float32]:
    """(characters, 4) left, top, right, bottom in user space: advance wide, ascent and descent included."""
    boxes = np.zeros((count, 4), np.float32)
    page, start = ctypes.cast(text_page, ctypes.c_void_p), boxes.ctypes.data
    for index, address in enumerate(range(start, start + boxes.nbytes, boxes.itemsize * 4)):
        _GET_LOOSE_BOX(page, index, address)
    return np.nan_to_num(boxes, posinf=0.0, neginf=0.0)


def _quarters(text_page: object, codes: NDArray[np.uint32], rotation: int) -> NDArray[np.int8]:
    """Quarter turns clockwise that set each character upright; measured once for each run between blanks."""
    inked = codes > 0x20
    starts = np.flatnonzero(inked & ~np.concatenate([np.zeros(1, bool), inked])[:-1])
    angles = np.array([raw.FPDFText_GetCharAngle(text_page, int(index)) for index in starts])
    quarters = np.zeros(len(codes), np.int8)
    if len(starts):
        clockwise = np.rint(np.nan_to_num(angles) / (math.pi / 2)).astype(int) + rotation // 90  # as a viewer shows it
        upright = -clockwise % 4
        quarters[:] = upright[np.maximum(np.searchsorted(starts, np.arange(len(codes)), side="right") - 1, 0)]
    return quarters


def _sample_glyphs(text_page: object, inked: NDArray[np.intp]) -> tuple[float, float]:
    """The shares of unmapped and of invisible glyphs in a sample."""
    sample = inked[:: max(1, len(inked) // _SAMPLE)].tolist()
    if not sample:
        return 0.0, 0.0
    unmapped = sum(raw.FPDFText_HasUnicodeMapError(text_page, index) == 1 for index in sample)
    invisible = 0
    for index in sample:
        text_object = raw.FPDFText_GetTextObject(text_page, index)
        invisible += bool(text_object) and raw.FPDFTextObj_GetTextRenderMode(text_object) == _INVISIBLE
    return unmapped / len(sample), invisible / len(sample)


def _is_meaningless(codes: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Replacement, private-use and control characters, except those by which PDFium marks a hyphen."""
    private = ((codes >= 0xE000) & (codes < 0xF900)) | (codes >= 0xF0000)
    control = ((codes < 0x20) & ~np.isin(codes, (0x02, 0x09, 0x0A, 0x0D))) | ((codes >= 0x7F) & (codes < 0xA0))
    meaningless: NDArray[np.bool_] = private | control | (codes == 0xFFFD)
    return meaningless


def to_viewer(boxes: NDArray[np.float32], page: pdfium.PdfPage) -> NDArray[np.float32]:
    """From user space (origin bottom left, before /Rotate) to the page as a viewer shows it (origin top left)."""
    left, bottom, right, top = page.get_bbox()
    upright = np.stack([boxes[:, 0] - left, top - boxes[:, 1], boxes[:, 2] - left, top - boxes[:, 3]], axis=-1)
    return rotate_boxes(upright.astype(np.float32), page.get_rotation() // 90, right - left, top - bottom)


def _object_stats(page: pdfium.PdfPage) -> _ObjectStats:
    left, bottom, right, top = page.get_bbox()
    width, height = max(right - left, 1e-6), max(top - bottom, 1e-6)
    cells = np.zeros((_GRID, _GRID), bool)
    largest, dpi, objects, drawings = 0.0, None, 0, 0
    for kind, handle, matrix in objects_of(page.raw):
        objects += kind in _VISIBLE_TYPES
        drawings += kind in _VISIBLE_TYPES and kind != raw.FPDF_PAGEOBJ_TEXT
        if kind != raw.FPDF_PAGEOBJ_IMAGE or (box := bounds_of(handle, matrix)) is None:
            continue
        x0, x1 = ((x - left) / width * _GRID for x in (box[0], box[2]))
        y0, y1 = ((y - bottom) / height * _GRID for y in (box[1], box[3]))
        cells[_cells(y0, y1), _cells(x0, x1)] = True
        area = (min(x1, _GRID) - max(x0, 0)) * (min(y1, _GRID) - max(y0, 0))
        if area > largest:
            largest, dpi = area, _image_dpi(handle, box)
    return _ObjectStats(objects, drawings, float(cells.mean()), dpi)


def _cells(low: float, high: float) -> slice:
    return slice(min(max(round(low), 0), _GRID), min(max(round(high), 0), _GRID))


def _image_dpi(handle: object, box: tuple[float, float, float, float]) -> float | None:
    """Pixels per inch of an image object on its coarser axis; it may be drawn with a quarter turn."""
    width, height = ctypes.c_uint(), ctypes.c_uint()
    if not raw.FPDFImageObj_GetImagePixelSize(handle, width, height):
        return None
    sides = (max(box[2] - box[0], 1e-3) / 72, max(box[3] - box[1], 1e-3) / 72)
    upright = (width.value / sides[0], height.value / sides[1])
    turned = (width.value / sides[1], height.value / sides[0])
    squarest = min(upright, turned, key=lambda dpi: max(dpi) / max(min(dpi), 1e-6))
    return min(squarest) or None
