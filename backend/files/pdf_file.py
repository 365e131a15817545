"""Opens a PDF with PDFium: metadata, text layers and images of its pages. Runs in the workers only."""

from __future__ import annotations

import ctypes
import math
import mmap
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pypdfium2 as pdfium
from numpy.typing import NDArray
from pypdfium2 import raw

from backend.errors import PasswordRequired, TooLarge, UnreadableFile, WrongPassword
from backend.files import pdf_page
from backend.files.einvoice.read import read_einvoice
from backend.files.einvoice.records import EInvoice
from backend.files.pdf_page import Matrix, matrix_of, objects_of, product, to_viewer
from backend.files.records import MAX_SIZES, LayerStats, PageSize
from backend.files.text_layout import LayoutWords, lay_out, rotate_boxes

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
            except (pdfium.PdfiumError, UnreadableFile):  # other XML, or a broken one: the pages are read as ever
                continue
        return None

    def text_layer(self, number: int) -> tuple[LayoutWords, LayerStats, PageSize, NDArray[np.float32]]:
        """The words of a page (from 1), statistics of its text layer, its size as a viewer shows it, and its lines.

        The lines, (rulings, 4), are turned as the words are.
        """
        with self._page(number) as page:
            try:
                characters, stats = pdf_page.read_characters(page)
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
            pixels = pdf_page.render(page, dpi, turn, color=color, most_pixels=most_pixels)
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
        entries = self._pdf.get_metadata_dict(skip_empty=True)
        metadata = {name: _printable(entries[key]) for key, name in _NAMES.items() if key in entries}
        for name in ("created", "modified"):
            if name in metadata:
                metadata[name] = iso_date(metadata[name])
        if version := self._pdf.get_version():
            metadata["version"] = f"{version // 10}.{version % 10}"
        if form := _FORMS.get(self._pdf.get_formtype()):
            metadata["form"] = form
        return {name: value for name, value in metadata.items() if value}

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
