"""Memory growth of OCR: resident bytes of the service and its processes over thousands of pages."""

import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.ocr_client import read_all
from benchmarks.ocr_comparisons import CLIENTS_A_CORE, LANGUAGE
from benchmarks.ocr_pages import digital_pdf, slip
from benchmarks.ocr_peers import cores
from benchmarks.peers import ours, resident_bytes, running

TARGET_BYTES_A_PAGE = 1024
_PAGES_OF_A_PDF = 5
_SCANS, _PDFS = 16, 4  # between two samples
_PAGES = _SCANS + _PDFS * _PAGES_OF_A_PDF
MIN_PAGES = 6 * _PAGES


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
            samples.append((pages, resident_bytes(server.pid)))
            print(f"{pages} pages: {samples[-1][1] / 2**20:.1f} MiB", file=sys.stderr)
    return as_json(samples)


def rounds(page_count: int) -> Iterator[tuple[int, list[bytes]]]:
    """Yield the total number of pages and the files of each round; no page repeats."""
    for number in range(math.ceil(page_count / _PAGES)):
        scans = [slip(number * _SCANS + index).png for index in range(_SCANS)]
        pdfs = [digital_pdf(f"{number} {index}", _PAGES_OF_A_PDF) for index in range(_PDFS)]
        yield (number + 1) * _PAGES, [*scans, *pdfs]


def as_json(samples: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """The content of the result file beside ``facts``: the slope over the second half, after warm-up.

    Args:
        samples: pages so far, and the resident bytes then.
    """
    second_half = samples[len(samples) // 2 :]
    pages, resident = np.array(second_half, float).T
    line, covariance = np.polyfit(pages, resident, 1, cov=True)
    return {
        "pages": samples[-1][0],
        "middle_bytes": second_half[0][1],
        "last_bytes": samples[-1][1],
        "bytes_a_page": {"all": {"slope": line[0], "error": math.sqrt(covariance[0, 0])}},
        "target": TARGET_BYTES_A_PAGE,
        "raw": samples,
    }
