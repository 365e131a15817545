"""How well pages are read: sets of ../shared/data with their true text, by our service over HTTP and by its peers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pypdfium2

from benchmarks.ocr_client import Refused, read
from benchmarks.ocr_peers import cores, kept_texts, versions
from benchmarks.ocr_scores import score, summed
from benchmarks.ocr_speed import AUTO
from benchmarks.peers import ours, running

PEER_DPI = 300  # a PDF is given to the peers as an image of this; our service chooses for itself
PLAIN, RAPID = "pytesseract-pool", "rapidocr"  # the pool reads what the loop reads, sooner
_FEWER = 8  # a quick run takes every eighth page


@dataclass(frozen=True, slots=True)
class Set:
    """A folder of pages with their texts beside them, and what is asked of it."""

    folder: str
    name: str
    keeps_cer: bool = False  # ours must be at most plain Tesseract's
    recall_target: float | None = None
    folds_case: bool = False  # its truth is written in capitals


SETS = (
    Set("ocr_es_print", "Spanish books, 1816-1899", keeps_cer=True),
    Set("ocr_en_print", "English books", keeps_cer=True),
    Set("ocr_fr_typed", "French typescripts", keeps_cer=True),
    Set("ocr_it_print", "Italian books"),
    Set("ocr_sroie", "receipts (SROIE)", recall_target=0.93, folds_case=True),
    Set("ocr_business_scans", "business papers, noisy, skewed, turned", recall_target=0.94),
    Set("ocr_photos", "photographs of crumpled paper"),
    Set("ocr_tesseract_samples", "Tesseract's samples, turned"),
)


@dataclass(frozen=True, slots=True)
class Page:
    """A file with one page, and what it says."""

    file: Path
    truth: str


def pages_of(data: Path, one: Set) -> list[Page]:
    """The set's pages by name."""
    found = []
    for truth in sorted((data / one.folder).glob("*.gt.txt")):
        stem = truth.name.removesuffix(".gt.txt")
        (file,) = (path for path in truth.parent.glob(f"{stem}.*") if path.suffix != ".txt")
        found.append(Page(file, truth.read_text(encoding="utf-8")))
    return found


def measure(data: Path, work: Path, *, is_quick: bool) -> dict[str, Any]:
    """Every set that is there, read by ours, by plain Tesseract and by RapidOCR in one call."""
    there = {one: pages for one in SETS if (pages := pages_of(data, one)[:: _FEWER if is_quick else 1])}
    absent = {one.folder: f"not in {data.name}" for one in SETS if one not in there}
    failed: dict[str, str] = {}
    by_peers = {one: _peer_texts(pages, work) for one, pages in there.items()}
    with running(ours(work / "state"), work) as server:
        by_ours = {one: _our_texts(server.port, pages, failed) for one, pages in there.items()}
    rows = [row_of(one, there[one], {AUTO: by_ours[one], **by_peers[one]}) for one in there]
    return {"quality": rows, "failed": failed, "unmeasured": absent}


def _our_texts(port: int, pages: Sequence[Page], failed: dict[str, str]) -> list[str]:
    """What the service reads with its default settings; a page that it refuses has no text."""

    def text_of(page: Page) -> str:
        try:
            return str(read(port, page.file.read_bytes(), source="ocr")["text"])
        except Refused as refused:
            failed[page.file.name] = str(refused)
            return ""

    with ThreadPoolExecutor(cores()) as pool:
        return list(pool.map(text_of, pages))


def _peer_texts(pages: Sequence[Page], work: Path) -> dict[str, list[str]]:
    files, version = [_image_of(page.file, work) for page in pages], versions()
    texts = partial(kept_texts, files=files)
    print(f"{pages[0].file.parent.name}: {len(pages)} pages", file=sys.stderr)
    return {PLAIN: texts(PLAIN, version=version["tesseract"]), RAPID: texts(RAPID, version=version["rapidocr"])}


def _image_of(file: Path, work: Path) -> Path:
    """The file, or a picture of its first page where it is a PDF."""
    if file.suffix != ".pdf":
        return file
    picture = work / f"{file.stem}.png"
    with pypdfium2.PdfDocument(file) as document:
        image = document[0].render(scale=PEER_DPI / 72).to_pil()
    image.save(picture, dpi=(PEER_DPI, PEER_DPI))
    return picture


def row_of(one: Set, pages: Sequence[Page], texts: dict[str, list[str]]) -> dict[str, Any]:
    """A set's row of the result; each target stands beside what it is for."""
    readers = {
        name: summed(
            [score(text, page.truth, folds_case=one.folds_case) for text, page in zip(read, pages, strict=True)]
        )
        for name, read in texts.items()
    }
    return {
        "set": one.name,
        "folder": one.folder,
        "pages": len(pages),
        "readers": readers,
        "cer_target": readers[PLAIN]["cer"] if one.keeps_cer else None,
        "recall_target": one.recall_target,
    }
