"""A PDF that looks like the file that was read and in which its words are found: unseen text over each page.

Pages of a PDF stay what they are; an image becomes a page of its own size. Runs where PDFium may run: it is not
thread-safe, and a broken file can end its process. Needs what reading needs, PDFium and Pillow, and nothing else.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import closing

import numpy as np
import pypdfium2 as pdfium
from numpy.typing import NDArray
from PIL import Image

from backend.documents.formats.invisible_text import alphabets, remove_unseen, write_unseen
from backend.documents.formats.rotation import image_matrix
from backend.documents.pages import POINTS_PER_INCH, Document, Page

_MOST_POINTS = 14_400.0  # a page's longest side in user space units, ISO 32000-1, annex C.2
_EXIF_ORIENTATION = 0x0112
_LOSSY = frozenset({"webp", "heic"})  # came with losses already; their plain pixels would be ten times the size
_JPEG_QUALITY = 90

# A page's number -> (height, width_px) grey or (height, width_px, 3) RGB, as a viewer shows it, not turned to be read.
Pixels = Callable[[int], NDArray[np.uint8]]


def searchable_pdf(document: Document, original: bytes, *, password: str | None = None) -> bytes:
    """A PDF with the words of its pages; those that were read from their own text layer keep it alone.

    A page stands as it was read: one that lay on its side is turned. An older unseen layer of a page that was read anew
    gives way to the new one; a visible one cannot, and is found beside it. Pages that were not read stay as they are.
    A file that needs a password still needs it.

    Args:
        original: the bytes of the PDF that ``document`` was read from.

    Raises:
        pypdfium2.PdfiumError: PDFium cannot open or write it.
    """
    with closing(pdfium.PdfDocument(original, password=password)) as pdf:
        return _with_words(pdf, [(pdf[page.number - 1], page) for page in document.pages])


def searchable_images(document: Document, original: bytes, pixels_of: Pixels) -> bytes:
    """A PDF of the pages of an image file that were read, each of its own size in inches.

    A JPEG goes in byte for byte; others by their pixels, exactly unless the file itself had lost some (WebP, HEIC).

    Args:
        original: the bytes of the file that ``document`` was read from.
        pixels_of: the decoder that read it; asked for each page once, in order, and not for a JPEG.

    Raises:
        pypdfium2.PdfiumError: PDFium does not take the image.
    """
    with closing(pdfium.PdfDocument.new()) as pdf:
        sheets = []
        for page in document.pages:
            sheet = _sheet(pdf, page)
            picture = pdfium.PdfImage.new(pdf)
            turn = _load(picture, document.kind, original, page, pixels_of)
            matrix = image_matrix(turn, *sheet.get_size())
            picture.set_matrix(pdfium.PdfMatrix(matrix.a, matrix.b, matrix.c, matrix.d, matrix.e, matrix.f))
            sheet.insert_obj(picture)
            sheet.gen_content()
            sheets.append((sheet, page))
        return _with_words(pdf, sheets)


def _with_words(pdf: pdfium.PdfDocument, sheets: list[tuple[pdfium.PdfPage, Page]]) -> bytes:
    read = [page for _, page in sheets if page.source == "ocr"]
    with alphabets(pdf, read) as alphabet_of:
        for sheet, page in sheets:
            sheet.set_rotation((sheet.get_rotation() + page.rotation) % 360)
            if page.source == "ocr":
                remove_unseen(sheet)
                write_unseen(sheet, page, alphabet_of[page.number])
            sheet.close()
        written = io.BytesIO()
        pdf.save(written)
    return written.getvalue()


def _sheet(pdf: pdfium.PdfDocument, page: Page) -> pdfium.PdfPage:
    """An empty page of a page's size in points, as it was shown before it was turned."""
    points = POINTS_PER_INCH / page.units_per_inch
    points *= min(1.0, _MOST_POINTS / (points * max(page.width, page.height)))
    width, height = page.width * points, page.height * points
    return pdf.new_page(height, width) if page.rotation % 180 else pdf.new_page(width, height)


def _load(picture: pdfium.PdfImage, kind: str, original: bytes, page: Page, pixels_of: Pixels) -> int:
    """Fill the picture; the EXIF orientation that it still has to be shown with."""
    if kind == "jpeg":
        picture.load_jpeg(io.BytesIO(original), inline=True)
        return _exif_orientation(original)
    image = Image.fromarray(pixels_of(page.number))
    if kind in _LOSSY:
        encoded = io.BytesIO()
        image.save(encoded, "JPEG", quality=_JPEG_QUALITY)
        picture.load_jpeg(encoded, inline=True)
    else:
        picture.set_bitmap(pdfium.PdfBitmap.from_pil(image))
    return 1


def _exif_orientation(jpeg: bytes) -> int:
    try:
        with Image.open(io.BytesIO(jpeg)) as image:
            return int(image.getexif().get(_EXIF_ORIENTATION, 1))
    except Exception:  # noqa: BLE001  # broken EXIF raises half of Python's errors; such an image is shown as it lies
        return 1
