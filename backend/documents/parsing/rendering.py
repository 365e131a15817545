"""What is made of a file besides reading it: pictures of pages, a searchable PDF. Runs in the workers only."""

from __future__ import annotations

import io
import mmap

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from backend.documents.page_codec import unpack_document
from backend.documents.parsing.image_file import ImageDocument
from backend.documents.parsing.limits import FileLimits
from backend.documents.parsing.pdf_file import PdfFile

_FAST = 1  # of zlib: a page in 30 ms; the picture is looked at, not kept


def png(pixels: NDArray[np.uint8]) -> bytes:
    """Pixels (height, width_px) or (height, width_px, 3) as a PNG."""
    written = io.BytesIO()
    Image.fromarray(pixels).save(written, "PNG", compress_level=_FAST)
    return written.getvalue()


def searchable(
    file: PdfFile | ImageDocument, data: mmap.mmap, password: str | None, words: bytes, limits: FileLimits
) -> bytes:
    """The file as a PDF in which its words are found.

    Args:
        data: the file's bytes.
        words: what was read of it, as `page_codec.pack_document` writes it.
    """
    from backend.documents.formats.searchable_pdf import (  # few workers are ever asked for one
        searchable_images,
        searchable_pdf,
    )

    document = unpack_document(words)
    if isinstance(file, PdfFile):
        return searchable_pdf(document, data[:], password=password)

    def pixels_of(number: int) -> NDArray[np.uint8]:
        drawn: NDArray[np.uint8] = file.draw(number, 0, color=True, most_pixels=limits.render_pixels)["pixels"]
        return drawn

    return searchable_images(document, data[:], pixels_of)
