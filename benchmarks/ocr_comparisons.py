"""The OCR engines on other work than clean pages: a scan alone, doubtful pages, a mixed set, a PDF made searchable."""

import io
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageFilter

from benchmarks.ocr_client import read, read_all
from benchmarks.ocr_pages import DPI, clean_page, scanned_pdf, slip
from benchmarks.ocr_peers import cores, run_in_subprocess
from benchmarks.ocr_quality import OcrDataset, pages_of
from benchmarks.ocr_scores import score, summed
from benchmarks.ocr_searchable import OCRMYPDF, PAGES, by_job, by_ocrmypdf
from benchmarks.ocr_timings import AUTO, DOUBTFUL, MIXED, RAPIDOCR, SEARCHABLE, SINGLE, TESSERACT, Timing

# data set -> pages. Every second one of a set, those that no threshold was chosen on.
_DOUBTFUL = {"ocr_fr_typed": 1, "ocr_sroie": 3, "ocr_photos": 1}
_MIXED = {"ocr_es_print": 3, "ocr_en_print": 2, "ocr_it_print": 1, "ocr_fr_typed": 1, "ocr_sroie": 4, "ocr_photos": 1}
_PAPER, _INK = 236, 24  # gray levels
LANGUAGE = "es,en"
CLIENTS_A_CORE = 2  # one page is decoded and sent while another one is recognized
ENGINES = {AUTO: "auto", TESSERACT: "tesseract", RAPIDOCR: "rapidocr"}

_SINGLE_PEERS = ("pytesseract-one-thread", "rapidocr")  # one page at a time; pytesseract with all threads takes 20 s
_MIXED_PEERS = ("pytesseract-pool",)
_PDF_SEED = 200


@dataclass(frozen=True, slots=True)
class Workloads:
    """The files to read. The same in every round: nobody keeps what it has read."""

    scans: Sequence[bytes]
    doubtful: Sequence[bytes]
    mixed: Sequence[bytes]
    folder: Path  # of the files below

    @property
    def pdf(self) -> Path:
        """A PDF of ``PAGES`` scans."""
        return self.folder / "scans.pdf"

    def paths(self, work: str) -> list[Path]:
        """The files of SINGLE or MIXED, for peers that take paths."""
        return sorted(self.folder.glob(f"{work}-*"))


def prepare(folder: Path, data: Path) -> Workloads:
    """Draw and gather the files, and write those that peers read."""
    folder.mkdir()
    workloads = Workloads([scan(number) for number in range(2)], _of_sets(data, _DOUBTFUL), mixed_pages(data), folder)
    for work, files in ((SINGLE, workloads.scans), (MIXED, workloads.mixed)):
        for number, file in enumerate(files):
            (folder / f"{work}-{number:02}").write_bytes(file)
    workloads.pdf.write_bytes(scanned_pdf([scan(_PDF_SEED + number) for number in range(PAGES)]))
    return workloads


def warm_up(port: int, engines: Sequence[str]) -> None:
    """Load every engine on every lane."""
    clients = CLIENTS_A_CORE * cores()
    for engine in engines:
        read_all(port, [slip(number).png for number in range(clients)], clients, language=LANGUAGE, engine=engine)


def time_before(port: int, index: int, workloads: Workloads, reader: str) -> Iterator[Timing]:
    """What an earlier commit is compared in, as it chooses by itself."""
    yield _single(port, index, workloads, (reader, "auto"))
    yield _mixed(port, index, workloads, reader)


def time_ours(port: int, index: int, workloads: Workloads) -> Iterator[Timing]:
    """All works by this service. No timing of DOUBTFUL where RapidOCR was chosen for no page."""
    for named_engine in ENGINES.items():
        yield _single(port, index, workloads, named_engine)
    yield from _doubtful(port, index, workloads)
    yield _mixed(port, index, workloads, AUTO)
    seconds, texts = by_job(port, workloads.pdf, LANGUAGE)
    yield _searchable(AUTO, index, seconds, texts)


def time_peers(index: int, workloads: Workloads) -> Iterator[Timing]:
    """The peers that fit each work. Raises: RuntimeError for one that fails."""
    for work, peers in ((SINGLE, _SINGLE_PEERS), (MIXED, _MIXED_PEERS)):
        files = workloads.paths(work)
        for peer in peers:
            yield Timing(work, peer, index, len(files), run_in_subprocess(peer, files).seconds)


def time_ocrmypdf(index: int, workloads: Workloads) -> Timing:
    """Raises: subprocess.CalledProcessError."""
    seconds, texts = by_ocrmypdf(workloads.pdf, workloads.folder / "searchable.pdf")
    return _searchable(OCRMYPDF, index, seconds, texts)


def _single(port: int, index: int, workloads: Workloads, named_engine: tuple[str, str]) -> Timing:
    """One scan after the other, with nothing else to do."""
    reader, engine = named_engine
    seconds = sum(_read(port, file, engine)[0] for file in workloads.scans)
    return Timing(SINGLE, reader, index, len(workloads.scans), seconds)


def _doubtful(port: int, index: int, workloads: Workloads) -> Iterator[Timing]:
    """Each page by ``auto`` and by RapidOCR alone; only pages count for which ``auto`` took RapidOCR's result."""
    pairs = []
    for file in workloads.doubtful:
        auto_s, answer = _read(port, file, "auto")
        if answer["pages"][0]["engine"].startswith("rapidocr"):
            pairs.append((auto_s, _read(port, file, "rapidocr")[0]))
    if pairs:
        for reader, seconds in zip((AUTO, RAPIDOCR), zip(*pairs, strict=True), strict=True):
            yield Timing(DOUBTFUL, reader, index, len(pairs), sum(seconds))


def _mixed(port: int, index: int, workloads: Workloads, reader: str) -> Timing:
    """All at once, more clients than cores."""
    started_s = time.perf_counter()
    read_all(port, workloads.mixed, CLIENTS_A_CORE * cores(), language=LANGUAGE, source="ocr")
    return Timing(MIXED, reader, index, len(workloads.mixed), time.perf_counter() - started_s)


def _searchable(reader: str, index: int, seconds: float, texts: Sequence[str]) -> Timing:
    """Raises: RuntimeError where pages are missing: their time would be no time for the work."""
    if len(texts) != PAGES:
        raise RuntimeError(f"{reader}: {len(texts)} of {PAGES} pages came back")
    truths = [clean_page(_PDF_SEED + number).text for number in range(PAGES)]
    cer = summed([score(*pair) for pair in zip(texts, truths, strict=True)])["cer"]
    return Timing(SEARCHABLE, reader, index, PAGES, seconds, cer)


def _read(port: int, file: bytes, engine: str) -> tuple[float, dict[str, Any]]:
    started_s = time.perf_counter()
    answer = read(port, file, language=LANGUAGE, engine=engine, source="ocr")
    return time.perf_counter() - started_s, answer


def mixed_pages(data: Path) -> list[bytes]:
    """Two made scans and pages of six kinds."""
    return [scan(100), scan(101), *_of_sets(data, _MIXED)]


def _of_sets(data: Path, counts: Mapping[str, int]) -> list[bytes]:
    """The first ``counts`` of every second page of each set."""
    return [
        page.file.read_bytes()
        for folder, count in counts.items()
        for page in pages_of(data, OcrDataset(folder, folder))[1::2][:count]
    ]


def scan(number: int) -> bytes:
    """An A4 page as an office scanner gives it: a little turned, gray, soft and noisy."""
    rng = np.random.default_rng(number)
    with Image.open(io.BytesIO(clean_page(number).png)) as drawn:
        turned = drawn.rotate(rng.uniform(-0.8, 0.8), Image.Resampling.BICUBIC, fillcolor=255)
    soft = np.asarray(turned.filter(ImageFilter.GaussianBlur(0.7)), np.float32) / 255
    levels = _INK + (_PAPER - _INK) * soft + rng.normal(0, 7, soft.shape)
    target = io.BytesIO()
    page = Image.fromarray(np.clip(levels, 0, 255).astype(np.uint8))
    page.save(target, "JPEG", quality=85, dpi=(DPI, DPI))
    return target.getvalue()
