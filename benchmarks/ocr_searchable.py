"""Making a scanned PDF searchable: OCRmyPDF, in an environment of its own, beside this service's jobs."""

import subprocess
import time
from pathlib import Path

import pypdfium2

from benchmarks.machine import ROOT, program_of
from benchmarks.ocr_client import searchable_pdf
from benchmarks.ocr_peers import LANGUAGES, cores

OCRMYPDF = "ocrmypdf"
PAGES = 20
VENV = ROOT / ".venv-ocrmypdf"  # it calls the program tesseract
# From version 17 on it draws and writes PDFs by libraries, so that Ghostscript is not needed.
_OCRMYPDF = "ocrmypdf==17.13.0"
_PAGE_LIMIT_S = 3600  # after 180 s, its default, a page has no text: on a busy machine that would be no comparison


def by_ocrmypdf(scans: Path, target: Path) -> tuple[float, list[str]]:
    """Seconds of the command with its defaults, a page on each core, and the texts of its pages.

    Raises: subprocess.CalledProcessError.
    """
    flags = (f"--language={LANGUAGES}", f"--jobs={cores()}", f"--tesseract-timeout={_PAGE_LIMIT_S}", "--quiet")
    program = program_of(VENV, "ocrmypdf", [_OCRMYPDF])
    started_s = time.perf_counter()
    subprocess.run([str(program), *flags, str(scans), str(target)], check=True)
    return time.perf_counter() - started_s, texts_of(target.read_bytes())


def by_job(port: int, scans: Path, language: str) -> tuple[float, list[str]]:
    """Seconds from sending a job to its searchable PDF, and the texts of its pages. Raises: RequestRefused."""
    started_s = time.perf_counter()
    file = searchable_pdf(port, scans.read_bytes(), language=language, features="text,words")
    return time.perf_counter() - started_s, texts_of(file)


def texts_of(file: bytes) -> list[str]:
    """The text layer of each page."""
    with pypdfium2.PdfDocument(file) as document:
        return [page.get_textpage().get_text_range() for page in document]
