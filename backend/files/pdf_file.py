"""Opens a PDF with PDFium: metadata, text layers and images of its pages. Runs in the workers only."""

from __future__ import annotations

import ctypes
import mmap
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property
from typing import Any

import numpy as np
import pypdfium2 as pdfium
from numpy.typing import NDArray
from pypdfium2 import raw

from backend.errors import PasswordRequired, UnreadableFile, WrongPassword
from backend.files import pdf_page
from backend.files.einvoice.read import read_einvoice
from backend.files.einvoice.records import EInvoice
from backend.files.pdf_rulings import read_rulings
from backend.files.records import MOST_SIZES, LayerStats, PageSize
from backend.files.text_layout import LayoutWords, lay_out, rotate_boxes

_FORMS = {raw.FORMTYPE_ACRO_FORM: "acroform", raw.FORMTYPE_XFA_FULL: "xfa", raw.FORMTYPE_XFA_FOREGROUND: "xfa"}
_NAMES = {
    "Title": "title", "Author": "author", "Subject": "subject", "Keywords": "keywords",
    "Creator": "creator", "Producer": "producer", "CreationDate": "created", "ModDate": "modified",
}  # fmt: skip
_MOST_VALUE_CHARS = 1000
_MOST_ATTACHMENTS = 100  # that are looked at for an invoice
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
        sizes = [self._size(index) for index in range(min(count, MOST_SIZES))]
        return {
            "page_count": count,
            "sizes": [(size.width, size.height) for size in sizes],
            "metadata": self._metadata(),
            "attachments": self._pdf.count_attachments(),
        }

    @cached_property
    def invoice(self) -> EInvoice | None:
        """The invoice that is attached as XML (Factur-X, ZUGFeRD, UBL, Facturae); None where none is."""
        for index in range(min(self._pdf.count_attachments(), _MOST_ATTACHMENTS)):
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
            page = self._pdf[number - 1]
            if number not in self._flattened_pages:
                page = self._flatten(page, number)
        except pdfium.PdfiumError as error:
            raise UnreadableFile(
                f"page {number}: the PDF's page is broken and cannot be loaded", page=number
            ) from error
        try:
            yield page
        finally:
            page.close()

    def _flatten(self, page: pdfium.PdfPage, number: int) -> pdfium.PdfPage:
        """The page with annotations and form fields made part of its content, so that they are read and rendered."""
        self._flattened_pages.add(number)
        if not raw.FPDFPage_GetAnnotCount(page):
            return page
        if raw.FPDFPage_Flatten(page, raw.FLAT_NORMALDISPLAY) != raw.FLATTEN_SUCCESS:
            return page
        page.close()
        return self._pdf[number - 1]


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
    return "".join(character for character in value if character.isprintable()).strip()[:_MOST_VALUE_CHARS]
