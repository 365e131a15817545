"""PNGs of pages and searchable PDFs, made in workers."""

import io
import sys
import time

import numpy as np
import pytest
from PIL import Image

from backend.errors import DeadlineExceeded, InvalidField
from backend.files.file_readers import FileReaders
from backend.files.limits import FileLimits
from backend.files.pages import Box, Document, RawWord, make_page
from tests.files.pdfs import encoded, pdf, picture, text
from tests.files.programs import pdftotext

INK = Image.fromarray(np.kron(np.eye(10, dtype=np.uint8), np.full((20, 30), 255, np.uint8)))  # 300 x 200


def ocr_document(kind: str, sha256: str, rotation: int = 0) -> Document:
    """A document of one OCR page with one line."""
    words = [[[RawWord("Señor", Box(20, 20, 80, 40)), RawWord("1.284,50", Box(90, 20, 180, 40))]]]
    size = (200, 300) if rotation % 180 else (300, 200)
    page = make_page(
        words, number=1, width=size[0], height=size[1], rotation=rotation, source="ocr", why="why", engine="engine"
    )
    return Document(kind, (page,), 1, sha256)


@pytest.mark.parametrize(
    ("content", "turn", "expected"),
    [
        pytest.param(pdf(text(b"words", 20)), 0, (300, 200), id="pdf"),
        pytest.param(pdf(text(b"words", 20)), 90, (200, 300), id="pdf-turned"),
        pytest.param(encoded(INK, "PNG"), 0, (300, 200), id="image"),
        pytest.param(encoded(INK, "PNG"), 270, (200, 300), id="image-turned"),
    ],
)
def test_a_page_as_png(readers: FileReaders, content: bytes, turn: int, expected: tuple[int, int]) -> None:
    """A PNG of what a viewer shows, turned as requested; at 72 dpi a pixel is a point."""
    with readers.open(content) as file:
        drawn = Image.open(io.BytesIO(readers.picture(file, 1, dpi=72, turn=turn)))

        raster = readers.render(file, 1, turn=turn, color=True)

    assert ("PNG", expected) == (drawn.format, drawn.size)
    assert (raster.pixels.shape[1] > raster.pixels.shape[0]) == (expected[0] > expected[1])
    assert np.asarray(drawn).min() < 128 < np.asarray(drawn).max()


@pytest.mark.slow
def test_a_png_respects_the_limits(readers: FileReaders) -> None:
    """The resolution is limited by LIMIT_RENDER_PIXELS; an unknown page is an error."""
    with readers.open(pdf(text(b"x"), size=(3000, 2000))) as file:
        drawn = Image.open(io.BytesIO(readers.picture(file, 1, dpi=2000)))

        assert drawn.width * drawn.height <= readers.limits.render_pixels
        with pytest.raises(InvalidField, match="no page 2"):
            readers.picture(file, 2, dpi=72)


@pytest.mark.parametrize("kind", ["pdf", "png", "jpeg", "tiff", "webp"])
@pytest.mark.parametrize("rotation", [0, 90])
def test_a_searchable_pdf_has_its_words(readers: FileReaders, kind: str, rotation: int) -> None:
    """As pdftotext extracts them."""
    content = pdf(picture(300, 200), image=INK) if kind == "pdf" else encoded(INK, kind.upper())
    with readers.open(content) as file:
        written = readers.searchable_pdf(file, ocr_document(kind, file.info.sha256, rotation))

    assert "Señor 1.284,50" == pdftotext(written).strip()


def test_an_encrypted_pdf_stays_so(readers: FileReaders) -> None:
    """It keeps its password."""
    locked = pdf(picture(300, 200), image=INK, password="open")
    with readers.open(locked, password="open") as file:
        written = readers.searchable_pdf(file, ocr_document("pdf", file.info.sha256))

    with readers.open(written, password="open") as again:
        assert 1 == again.info.page_count


def test_a_searchable_pdf_has_a_deadline(readers: FileReaders) -> None:
    """A late call is ended, and the next one is answered."""
    with readers.open(pdf(*[text(b"x" * 50)] * 100)) as file:
        document = ocr_document("pdf", file.info.sha256)
        with pytest.raises(DeadlineExceeded):
            readers.searchable_pdf(
                file, document, deadline_s=time.monotonic()
            )  # over before it begins: no race with a fast worker

        assert readers.searchable_pdf(file, document)


def test_a_path_that_is_there_for_a_moment_is_not_handed_on(tmp_path, monkeypatch):
    """OpenCV puts its folder on sys.path while it is imported: its typing.py must not become the worker's."""
    (tmp_path / "typing.py").write_text("raise ImportError('not the standard library')", encoding="utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    with FileReaders(1, FileLimits()) as readers, readers.open(pdf(text(b"hello"))) as file:
        assert "hello" == readers.page_text(file, 1).text
