"""OCR quality: data sets of ../shared/data with ground truth, by this service over HTTP and by its peers."""

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pypdfium2

from benchmarks.client import RequestRefused
from benchmarks.ocr_client import read
from benchmarks.ocr_peers import cached_texts, cores, versions
from benchmarks.ocr_scores import score, summed
from benchmarks.ocr_timings import AUTO
from benchmarks.peers import ours, running

PEER_DPI = 300  # of the image that peers get of a PDF; our service chooses its own
TESSERACT_POOL, RAPIDOCR_LOOP = "pytesseract-pool", "rapidocr"  # the pool gives the texts of the loop, sooner
_QUICK_EVERY = 8  # a quick run takes every eighth page


@dataclass(frozen=True, slots=True)
class OcrDataset:
    """A folder of pages with ground truth files, and its targets."""

    folder: str
    name: str
    keeps_cer: bool = False  # our CER must be at most plain Tesseract's
    cer_target: float | None = None  # our CER must be at most this
    recall_target: float | None = None
    folds_case: bool = False  # its ground truth is upper case


DATASETS = (
    OcrDataset("ocr_es_print", "Spanish books, 1816-1899", keeps_cer=True),
    OcrDataset("ocr_en_print", "English books", keeps_cer=True),
    OcrDataset("ocr_fr_typed", "French typescripts", cer_target=0.05),
    OcrDataset("ocr_it_print", "Italian books"),
    OcrDataset("ocr_sroie", "receipts (SROIE)", cer_target=0.12, recall_target=0.95, folds_case=True),
    OcrDataset("ocr_business_scans", "business papers, noisy, skewed, turned", recall_target=0.94),
    OcrDataset("ocr_photos", "photographs of crumpled paper"),
    OcrDataset("ocr_tesseract_samples", "Tesseract's samples, turned"),
)


@dataclass(frozen=True, slots=True)
class Page:
    """A file with one page, and its ground truth."""

    file: Path
    truth: str


def pages_of(data: Path, dataset: OcrDataset) -> list[Page]:
    """The pages of a data set, by name."""
    pages = []
    for truth in sorted((data / dataset.folder).glob("*.gt.txt")):
        stem = truth.name.removesuffix(".gt.txt")
        (file,) = (path for path in truth.parent.glob(f"{stem}.*") if path.suffix != ".txt")
        pages.append(Page(file, truth.read_text(encoding="utf-8")))
    return pages


def measure(data: Path, work: Path, *, is_quick: bool) -> dict[str, Any]:
    """Score this service, plain Tesseract and RapidOCR on every available data set."""
    available = {
        dataset: pages for dataset in DATASETS if (pages := pages_of(data, dataset)[:: _QUICK_EVERY if is_quick else 1])
    }
    missing = {dataset.folder: f"not in {data.name}" for dataset in DATASETS if dataset not in available}
    failed: dict[str, str] = {}
    by_peers = {dataset: _peer_texts(pages, work) for dataset, pages in available.items()}
    with running(ours(work / "state"), work) as server:
        by_ours = {dataset: _our_texts(server.port, pages, failed) for dataset, pages in available.items()}
    rows = [row_of(dataset, available[dataset], {AUTO: by_ours[dataset], **by_peers[dataset]}) for dataset in available]
    return {"quality": rows, "failed": failed, "unmeasured": missing}


def _our_texts(port: int, pages: Sequence[Page], failed: dict[str, str]) -> list[str]:
    """The service's texts with default settings; a refused page has no text."""

    def text_of(page: Page) -> str:
        try:
            return str(read(port, page.file.read_bytes(), source="ocr")["text"])
        except RequestRefused as error:
            failed[page.file.name] = str(error)
            return ""

    with ThreadPoolExecutor(cores()) as pool:
        return list(pool.map(text_of, pages))


def _peer_texts(pages: Sequence[Page], work: Path) -> dict[str, list[str]]:
    files, version = [_image_of(page.file, work) for page in pages], versions()
    texts = partial(cached_texts, files=files)
    print(f"{pages[0].file.parent.name}: {len(pages)} pages", file=sys.stderr)
    return {
        TESSERACT_POOL: texts(TESSERACT_POOL, version=version["tesseract"]),
        RAPIDOCR_LOOP: texts(RAPIDOCR_LOOP, version=version["rapidocr"]),
    }


def _image_of(file: Path, work: Path) -> Path:
    """The file, or an image of its first page where it is a PDF."""
    if file.suffix != ".pdf":
        return file
    picture = work / f"{file.stem}.png"
    with pypdfium2.PdfDocument(file) as document:
        image = document[0].render(scale=PEER_DPI / 72).to_pil()
    image.save(picture, dpi=(PEER_DPI, PEER_DPI))
    return picture


def row_of(dataset: OcrDataset, pages: Sequence[Page], texts: dict[str, list[str]]) -> dict[str, Any]:
    """The result row of a data set, with its targets."""
    readers = {
        name: summed(
            [
                score(text, page.truth, folds_case=dataset.folds_case)
                for text, page in zip(page_texts, pages, strict=True)
            ]
        )
        for name, page_texts in texts.items()
    }
    return {
        "set": dataset.name,
        "folder": dataset.folder,
        "pages": len(pages),
        "readers": readers,
        "cer_target": readers[TESSERACT_POOL]["cer"] if dataset.keeps_cer else dataset.cer_target,
        "recall_target": dataset.recall_target,
    }
