"""Makes a searchable PDF from a file and its words: the file's pages with invisible text over each.

Pages of a PDF stay as they are; an image becomes a page of its own size. Runs in the workers, as PDFium is not
thread-safe and a broken file can crash its process. Needs PDFium and Pillow only.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import closing

import numpy as np
import pypdfium2 as pdfium
from numpy.typing import NDArray
from PIL import Image

from backend.files.invisible_text import invisible_fonts, remove_invisible, write_invisible
from backend.files.page_transforms import image_matrix
from backend.files.pages import POINTS_PER_INCH, Document, Page

_MOST_POINTS = 14_400.0  # a page's longest side in user space units, ISO 32000-1, annex C.2
_EXIF_ORIENTATION = 0x0112
_LOSSY = frozenset({"webp", "heic"})  # lossy already; uncompressed pixels would take ten times the size
_JPEG_QUALITY = 90

# Page number -> (height, width_px) gray or (height, width_px, 3) RGB, as a viewer shows it, before `Page.rotation`.
Pixels = Callable[[int], NDArray[np.uint8]]


def searchable_pdf(document: Document, original: bytes, *, password: str | None = None) -> bytes:
    """A PDF with the words of its pages as text; pages that were read from their own text layer keep only that.

    Pages that lay on their side are turned upright. On an OCR page the new text replaces an older invisible layer, and
    is added to visible text. Pages that were not read stay as they are. An encrypted file keeps its password.

    Args:
        original: the bytes of the PDF that ``document`` was read from.

    Raises:
        pypdfium2.PdfiumError: PDFium cannot open or write it.
    """
    with closing(pdfium.PdfDocument(original, password=password)) as pdf:
        return _with_words(pdf, [(pdf[page.number - 1], page) for page in document.pages])


def searchable_images(document: Document, original: bytes, pixels_of: Pixels) -> bytes:
    """A PDF of the pages that were read of an image file, each in its physical size.

    A JPEG is embedded byte for byte, WebP and HEIC as JPEG, others losslessly.

    Args:
        original: the bytes of the file that ``document`` was read from.
        pixels_of: decodes a page; called once for each page in order, and not for a JPEG.

    Raises:
        pypdfium2.PdfiumError: PDFium does not take the image.
    """
    with closing(pdfium.PdfDocument.new()) as pdf:
        sheets = []
        for page in document.pages:
            sheet = _sheet(pdf, page)
            image_object = pdfium.PdfImage.new(pdf)
            orientation = _load(image_object, document.kind, original, page, pixels_of)
            matrix = image_matrix(orientation, *sheet.get_size())
            image_object.set_matrix(pdfium.PdfMatrix(matrix.a, matrix.b, matrix.c, matrix.d, matrix.e, matrix.f))
            sheet.insert_obj(image_object)
            sheet.gen_content()
            sheets.append((sheet, page))
        return _with_words(pdf, sheets)


def _with_words(pdf: pdfium.PdfDocument, sheets: list[tuple[pdfium.PdfPage, Page]]) -> bytes:
    ocr_pages = [page for _, page in sheets if page.source == "ocr"]
    with invisible_fonts(pdf, ocr_pages) as font_of:
        for sheet, page in sheets:
            sheet.set_rotation((sheet.get_rotation() + page.rotation) % 360)
            if page.source == "ocr":
                remove_invisible(sheet)
                write_invisible(sheet, page, font_of[page.number])
            sheet.close()
        target = io.BytesIO()
        pdf.save(target)
    return target.getvalue()


def _sheet(pdf: pdfium.PdfDocument, page: Page) -> pdfium.PdfPage:
    """An empty PDF page with the page's size in points, before its orientation."""
    points = POINTS_PER_INCH / page.units_per_inch
    points *= min(1.0, _MOST_POINTS / (points * max(page.width, page.height)))
    width, height = page.width * points, page.height * points
    return pdf.new_page(height, width) if page.rotation % 180 else pdf.new_page(width, height)


def _load(image_object: pdfium.PdfImage, kind: str, original: bytes, page: Page, pixels_of: Pixels) -> int:
    """Fill the image object. Returns: the EXIF orientation that is still to be applied."""
    if kind == "jpeg":
        image_object.load_jpeg(io.BytesIO(original), inline=True)
        return _exif_orientation(original)
    image = Image.fromarray(pixels_of(page.number))
    if kind in _LOSSY:
        encoded = io.BytesIO()
        image.save(encoded, "JPEG", quality=_JPEG_QUALITY)
        image_object.load_jpeg(encoded, inline=True)
    else:
        image_object.set_bitmap(pdfium.PdfBitmap.from_pil(image))
    return 1


def _exif_orientation(jpeg: bytes) -> int:
    try:
        with Image.open(io.BytesIO(jpeg)) as image:
            return int(image.getexif().get(_EXIF_ORIENTATION, 1))
    except Exception:  # noqa: BLE001  # broken EXIF raises errors of any kind; the image is then shown as stored
        return 1
