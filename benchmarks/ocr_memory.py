"""Memory growth of OCR: resident bytes of the service and its processes over thousands of pages."""

import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.ocr_client import read_all
from benchmarks.ocr_comparisons import CLIENTS_A_CORE, LANGUAGE
from benchmarks.ocr_pages import digital_pdf, slip
from benchmarks.ocr_peers import cores
from benchmarks.peers import ours, running

TARGET_BYTES_A_PAGE = 1024
_PAGES_OF_A_PDF = 5
_SCANS, _PDFS = 16, 4  # between two samples
_PAGES = _SCANS + _PDFS * _PAGES_OF_A_PDF
MIN_PAGES = 6 * _PAGES


@dataclass(frozen=True, slots=True)
class MemorySample:
    """Resident memory after a number of pages."""

    pages: int
    service_bytes: int
    children_bytes: int  # of the processes that parse files; shared memory counts in each

    @property
    def bytes(self) -> int:
        return self.service_bytes + self.children_bytes


def measure(work: Path, page_count: int) -> dict[str, Any]:
    """Send new pages, scans and PDFs alternating, and sample the memory after each round.

    Raises: RequestRefused for a refused page; ValueError for too few pages to fit a line to their second half.
    """
    if page_count < MIN_PAGES:
        raise ValueError(f"{page_count} pages show no line, {MIN_PAGES} do")
    samples = []
    with running(ours(work / "state"), work) as server:
        for pages, files in rounds(page_count):
            read_all(server.port, files, CLIENTS_A_CORE * cores(), language=LANGUAGE)
            samples.append(sample_memory(server.pid, pages))
            print(f"{pages} pages: {samples[-1].bytes / 2**20:.1f} MiB", file=sys.stderr)
    return as_json(samples)


def rounds(page_count: int) -> Iterator[tuple[int, list[bytes]]]:
    """Yield the total number of pages and the files of each round; no page repeats."""
    for number in range(math.ceil(page_count / _PAGES)):
        scans = [slip(number * _SCANS + index).png for index in range(_SCANS)]
        pdfs = [digital_pdf(f"{number} {index}", _PAGES_OF_A_PDF) for index in range(_PDFS)]
        yield (number + 1) * _PAGES, [*scans, *pdfs]


def sample_memory(pid: int, pages: int) -> MemorySample:
    """Read the current resident bytes of a process and its children."""
    process, children = psutil.Process(pid), 0
    for child in process.children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # a child may end meanwhile
            children += child.memory_info().rss
    return MemorySample(pages, process.memory_info().rss, children)


def as_json(samples: Sequence[MemorySample]) -> dict[str, Any]:
    """The content of the result file beside ``facts``: slopes over the second half, after warm-up."""
    second_half = samples[len(samples) // 2 :]
    pages = [sample.pages for sample in second_half]
    slopes = {
        "all": slope(pages, [sample.bytes for sample in second_half]),
        "service": slope(pages, [sample.service_bytes for sample in second_half]),
        "children": slope(pages, [sample.children_bytes for sample in second_half]),
    }
    raw = [[sample.pages, sample.service_bytes, sample.children_bytes] for sample in samples]
    return {
        "pages": samples[-1].pages,
        "first_bytes": samples[0].bytes,
        "middle_bytes": second_half[0].bytes,
        "last_bytes": samples[-1].bytes,
        "bytes_a_page": {name: {"slope": value, "error": error} for name, (value, error) in slopes.items()},
        "target": TARGET_BYTES_A_PAGE,
        "raw": raw,
    }


def slope(pages: Sequence[int], values: Sequence[int]) -> tuple[float, float]:
    """Least-squares slope in bytes per page, and its standard error. Needs at least three samples."""
    x, y = np.asarray(pages, float), np.asarray(values, float)
    x -= x.mean()
    gradient = float(x @ y / (x @ x))
    residuals = y - y.mean() - gradient * x
    return gradient, math.sqrt(float(residuals @ residuals) / (len(x) - 2) / float(x @ x))
