"""Reads a PDF with PDFium: metadata, and the characters, statistics and image of each page. In the workers only."""

from __future__ import annotations

import ctypes
import math
import mmap
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pypdfium2 as pdfium
from numpy.typing import NDArray
from pypdfium2 import PdfMatrix, raw

from backend.errors import PasswordRequired, TooLarge, UnreadableFile, WrongPassword
from backend.files.einvoice.read import read_einvoice
from backend.files.einvoice.records import EInvoice
from backend.files.records import MAX_SIZES, LayerStats, PageSize
from backend.files.text_layout import Characters, LayoutWords, lay_out, rotate_boxes

MAX_OBJECTS = 50_000  # that are looked at; a map may have more paths, which decide nothing
_MAX_NESTING = 5


def objects_of(page: object) -> Iterator[tuple[int, object, PdfMatrix]]:
    """Type, handle and matrix to user space of the page's objects, including those inside form XObjects."""
    count = raw.FPDFPage_CountObjects(page)
    stack = [
        (raw.FPDFPage_GetObject(page, index), PdfMatrix(), 0) for index in range(min(count, MAX_OBJECTS) - 1, -1, -1)
    ]
    seen = 0
    while stack and seen < MAX_OBJECTS:
        handle, matrix, depth = stack.pop()
        seen += 1
        kind = raw.FPDFPageObj_GetType(handle)
        yield kind, handle, matrix
        if kind == raw.FPDF_PAGEOBJ_FORM and depth < _MAX_NESTING:
            inner = matrix_of(handle).multiply(matrix)
            children = min(raw.FPDFFormObj_CountObjects(handle), MAX_OBJECTS - seen)
            stack += [(raw.FPDFFormObj_GetObject(handle, index), inner, depth + 1) for index in range(children)]


def matrix_of(handle: object) -> PdfMatrix:
    matrix = raw.FS_MATRIX()
    return PdfMatrix.from_raw(matrix) if raw.FPDFPageObj_GetMatrix(handle, matrix) else PdfMatrix()


def bounds_of(handle: object, matrix: PdfMatrix) -> tuple[float, float, float, float] | None:
    """Left, bottom, right, top in user space."""
    sides = [ctypes.c_float() for _ in range(4)]
    if not raw.FPDFPageObj_GetBounds(handle, *sides):
        return None
    box: tuple[float, float, float, float] = matrix.on_rect(*(side.value for side in sides))
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


_MAX_ANNOTATIONS = 10_000  # of a page: PDFium takes the square of them, two seconds for so many fields of a form
MAX_RULINGS = 5_000  # of a page; a drawing has more, a table of 500 rows of ten cells has 5,000 edges
_MAX_SEGMENTS = 40_000  # of paths that are looked at; a map or a plot has more
_MIN_LENGTH = 4.0  # points
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
        if segments > _MAX_SEGMENTS or len(found) > MAX_RULINGS:
            return np.zeros((0, 4), np.float32)
        found += _lines_of(handle, matrix, area)
    inside = [side for side in found if side[2] >= left and side[0] <= right and side[3] >= bottom and side[1] <= top]
    sides = np.array(inside, np.float32).reshape(-1, 4)
    sides[:, 0::2] = np.clip(sides[:, 0::2], left, right)
    sides[:, 1::2] = np.clip(sides[:, 1::2], bottom, top)
    return to_viewer(sides[:, [0, 3, 2, 1]], page)  # as boxes of characters are: the top before the bottom


def _lines_of(handle: object, matrix: PdfMatrix, page_area: float) -> Iterator[_Side]:
    """The lines of a path, in user space."""
    fill, stroke = ctypes.c_int(), ctypes.c_int()
    if not raw.FPDFPath_GetDrawMode(handle, fill, stroke):
        return
    is_stroked = bool(stroke.value) and _is_seen(handle, raw.FPDFPageObj_GetStrokeColor)
    is_filled = bool(fill.value) and _is_seen(handle, raw.FPDFPageObj_GetFillColor)
    if not is_stroked and not is_filled:
        return
    for points in _subpaths(handle, matrix_of(handle).multiply(matrix)):
        if is_stroked:
            yield from _straight(points)
        elif (outline := _outline(points)) is not None:
            yield from _edges(outline, page_area)


def _subpaths(handle: object, matrix: PdfMatrix) -> Iterator[list[_Point]]:
    """The corners of each subpath in user space; one with curves ends at its first curve."""
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
            points.append(matrix.on_point(x.value, y.value))
            if raw.FPDFPathSegment_GetClose(segment) and points[0] != points[-1]:
                points.append(points[0])
    if len(points) > 1:
        yield points


def _straight(points: Sequence[_Point]) -> Iterator[_Side]:
    for (x0, y0), (x1, y1) in pairwise(points):
        across, down = abs(x1 - x0), abs(y1 - y0)
        if max(across, down) >= _MIN_LENGTH and min(across, down) <= _STRAIGHT * max(across, down):
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
    if max(width, height) < _MIN_LENGTH or width * height > 0.8 * page_area:
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


_FORMS = {raw.FORMTYPE_ACRO_FORM: "acroform", raw.FORMTYPE_XFA_FULL: "xfa", raw.FORMTYPE_XFA_FOREGROUND: "xfa"}
_NAMES = {
    "Title": "title", "Author": "author", "Subject": "subject", "Keywords": "keywords",
    "Creator": "creator", "Producer": "producer", "CreationDate": "created", "ModDate": "modified",
}  # fmt: skip
_MAX_VALUE_CHARS = 1000
_MAX_ATTACHMENTS = 100  # that are looked at for an invoice
# ISO 32000-1, 7.9.4, whose apostrophes and minutes many programs leave out; "Z00'00'" is Adobe's.
_DATE = re.compile(
    r"(?:D:)?(?P<year>\d{4})(?P<month>\d\d)?(?P<day>\d\d)?(?P<hour>\d\d)?(?P<minute>\d\d)?(?P<second>\d\d)?"
    r"(?:(?P<utc>Z)(?:00'?00'?)?|(?P<zone>[+-]\d\d)(?:[':]?(?P<zone_minute>\d\d))?'?)?",
    re.ASCII,
)


class PdfFile:
    """An open PDF. For one thread: PDFium is not thread-safe."""

    def __init__(self, data: mmap.mmap, password: str | None) -> None:
        self._data = np.frombuffer(data, np.uint8)  # gives PDFium an address, and keeps the mapping alive
        handle = self._open(password)
        self._pdf = pdfium.PdfDocument(handle)
        self._flattened_pages = set[int]()
        if self._pdf.get_formtype() != raw.FORMTYPE_NONE:
            self._pdf.init_forms()  # so that the values of fields are rendered and become text

    def info(self) -> dict[str, Any]:
        """Page count, sizes of the first pages, metadata."""
        count = len(self._pdf)
        if count < 1:
            raise UnreadableFile("file: the PDF has no pages, or its page tree is broken")
        sizes = [self._size(index) for index in range(min(count, MAX_SIZES))]
        return {
            "page_count": count,
            "sizes": [(size.width, size.height) for size in sizes],
            "metadata": self._metadata(),
            "attachments": self._pdf.count_attachments(),
        }

    @cached_property
    def invoice(self) -> EInvoice | None:
        """The invoice that is attached as XML (Factur-X, ZUGFeRD, UBL, Facturae); None where none is."""
        for index in range(min(self._pdf.count_attachments(), _MAX_ATTACHMENTS)):
            try:
                attachment = self._pdf.get_attachment(index)
                if not attachment.get_name().lower().endswith(".xml"):
                    continue
                return read_einvoice(bytes(attachment.get_data()))
            except (
                pdfium.PdfiumError,
                UnreadableFile,
                UnicodeError,
            ):  # no name, other XML, or a broken one: the pages are read as ever
                continue
        return None

    def text_layer(self, number: int) -> tuple[LayoutWords, LayerStats, PageSize, NDArray[np.float32]]:
        """The words of a page (from 1), statistics of its text layer, its size as a viewer shows it, and its lines.

        The lines, (rulings, 4), are turned as the words are.
        """
        with self._page(number) as page:
            try:
                characters, stats = read_characters(page)
                rulings = read_rulings(page)
            except (pdfium.PdfiumError, ValueError) as error:
                raise UnreadableFile(f"page {number}: its text cannot be read: {error}", page=number) from error
        words, size = lay_out(characters), PageSize(characters.width, characters.height)
        return words, stats, size, rotate_boxes(rulings, words.turn // 90, size.width, size.height)

    def render(
        self, number: int, dpi: float, turn: int, *, color: bool, most_pixels: int
    ) -> tuple[NDArray[np.uint8], PageSize]:
        """The image of a page (from 1), and its size as a viewer shows it."""
        with self._page(number) as page:
            pixels = render(page, dpi, turn, color=color, most_pixels=most_pixels)
            return pixels, PageSize(*page.get_size())

    def close(self) -> None:
        """Free PDFium's memory."""
        self._pdf.close()

    def _open(self, password: str | None) -> raw.FPDF_DOCUMENT:
        address = ctypes.c_void_p(self._data.ctypes.data)
        error = raw.FPDF_ERR_UNKNOWN
        for encoded in _encodings(password or ""):
            if handle := raw.FPDF_LoadMemDocument64(address, self._data.nbytes, encoded):
                return handle
            error = raw.FPDF_GetLastError()
            if error != raw.FPDF_ERR_PASSWORD:
                break
        raise _open_error(error, password)

    def _metadata(self) -> dict[str, str]:
        metadata = {name: _printable(self._metadata_text(key)) for key, name in _NAMES.items()}
        for name in ("created", "modified"):
            metadata[name] = iso_date(metadata[name])
        if version := self._pdf.get_version():
            metadata["version"] = f"{version // 10}.{version % 10}"
        if form := _FORMS.get(self._pdf.get_formtype()):
            metadata["form"] = form
        return {name: value for name, value in metadata.items() if value}

    def _metadata_text(self, key: str) -> str:
        """As `get_metadata_value`, which half of a surrogate pair in a title makes fail, and so the file."""
        name = key.encode() + b"\0"
        buffer = ctypes.create_string_buffer(max(2, raw.FPDF_GetMetaText(self._pdf, name, None, 0)))
        raw.FPDF_GetMetaText(self._pdf, name, buffer, len(buffer))
        return buffer.raw[:-2].decode("utf-16-le", "replace")

    def _size(self, index: int) -> PageSize:
        try:
            return PageSize(*self._pdf.get_page_size(index))
        except pdfium.PdfiumError:  # only this page is broken; reading it raises
            return PageSize(0.0, 0.0)

    @contextmanager
    def _page(self, number: int) -> Iterator[pdfium.PdfPage]:
        try:
            if number in self._flattened_pages:
                page = self._pdf[number - 1]
            else:
                self._check_fields(number)
                page = self._flatten(self._pdf[number - 1], number)
        except pdfium.PdfiumError as error:
            raise UnreadableFile(
                f"page {number}: the PDF's page is broken and cannot be loaded", page=number
            ) from error
        try:
            yield page
        finally:
            page.close()

    def _check_fields(self, number: int) -> None:
        """Raises: TooLarge. Of a PDF with a form they are counted before it is loaded, which takes the longest."""
        if self._pdf.formenv is not None:
            page = raw.FPDF_LoadPage(self._pdf, number - 1)
            count = raw.FPDFPage_GetAnnotCount(page)  # 0 of a page that is broken
            raw.FPDF_ClosePage(page)
            _require_few(count, number)

    def _flatten(self, page: pdfium.PdfPage, number: int) -> pdfium.PdfPage:
        """The page with annotations and form fields made part of its content, so that they are read and rendered."""
        count = raw.FPDFPage_GetAnnotCount(page)
        try:
            _require_few(count, number)
        except TooLarge:
            page.close()
            raise
        self._flattened_pages.add(number)
        if not count:
            return page
        if raw.FPDFPage_Flatten(page, raw.FLAT_NORMALDISPLAY) != raw.FLATTEN_SUCCESS:
            return page
        page.close()
        return self._pdf[number - 1]


def _require_few(annotations: int, number: int) -> None:
    if annotations > _MAX_ANNOTATIONS:
        what, advice = f"page {number}: annotations and form fields", "Print the page into another PDF."
        raise TooLarge(what, annotations, _MAX_ANNOTATIONS, "no setting", advice=advice, param="file")


def iso_date(text: str) -> str:
    """A PDF's date ("D:20250910085407+02'00'") as ISO 8601; unchanged where it is ISO 8601 already, or no date."""
    match = _DATE.fullmatch(text)
    if not match:
        return _iso_without_prefix(text)
    part = match.groupdict()
    year, month, day, hour, minute = (part[name] for name in ("year", "month", "day", "hour", "minute"))
    written = "-".join(filter(None, (year, month, day)))
    if hour is not None and minute is not None:
        offset = "Z" if part["utc"] else (f"{part['zone']}:{part['zone_minute'] or '00'}" if part["zone"] else "")
        written += f"T{hour}:{minute}:{part['second'] or '00'}{offset}"
    try:  # the calendar's opinion of it, with January the first for what it leaves out
        datetime.fromisoformat(written if day else f"{year}-{month or '01'}-01")
    except ValueError:
        return text
    return written


def _iso_without_prefix(text: str) -> str:
    """ISO 8601 behind the prefix of a PDF's date, as some programs write it; any other text unchanged."""
    if not text.startswith("D:"):
        return text
    try:
        datetime.fromisoformat(text[2:])
    except ValueError:
        return text
    return text[2:]


def _encodings(password: str) -> list[bytes]:
    """A password in UTF-8, as PDF 2.0 encrypts it, and in Latin-1, as older versions do."""
    encodings = [password.encode("utf-8", errors="replace")]
    if not password.isascii():
        encodings.append(password.encode("latin-1", errors="replace"))
    return encodings


def _open_error(error: int, password: str | None) -> UnreadableFile | PasswordRequired:
    if error == raw.FPDF_ERR_PASSWORD:
        return WrongPassword() if password else PasswordRequired()
    if error == raw.FPDF_ERR_SECURITY:
        return UnreadableFile("file: the PDF is encrypted in a way that is not supported (not by a password)")
    return UnreadableFile("file: it begins like a PDF but is too damaged to open; it may have been cut off on its way")


def _printable(value: str) -> str:
    return "".join(character for character in value if character.isprintable()).strip()[:_MAX_VALUE_CHARS]
