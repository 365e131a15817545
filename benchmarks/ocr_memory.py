"""Whether reading pages keeps memory: resident bytes of the service and its processes, over thousands of pages."""

from __future__ import annotations

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
from benchmarks.ocr_pages import digital_pdf, slip
from benchmarks.ocr_peers import cores
from benchmarks.ocr_speed import CLIENTS_A_CORE, LANGUAGE
from benchmarks.peers import ours, running

TARGET_BYTES_A_PAGE = 1024
_PAGES_OF_A_PDF = 5
_SCANS, _PDFS = 16, 4  # between two looks
_PAGES = _SCANS + _PDFS * _PAGES_OF_A_PDF
LEAST_PAGES = 6 * _PAGES


@dataclass(frozen=True, slots=True)
class Look:
    """Resident memory after so many pages."""

    pages: int
    service_bytes: int
    children_bytes: int  # the processes that parse files; pages they share count in each

    @property
    def bytes(self) -> int:
        return self.service_bytes + self.children_bytes


def measure(work: Path, page_count: int) -> dict[str, Any]:
    """Read pages that nobody has seen, scans and PDFs by turns, and look after every few.

    Raises: Refused for the first page that is; ValueError for too few pages to see a line in their second half.
    """
    if page_count < LEAST_PAGES:
        raise ValueError(f"{page_count} pages show no line, {LEAST_PAGES} do")
    looks = []
    with running(ours(work / "state"), work) as server:
        for pages, files in rounds(page_count):
            read_all(server.port, files, CLIENTS_A_CORE * cores(), language=LANGUAGE)
            looks.append(look(server.pid, pages))
            print(f"{pages} pages: {looks[-1].bytes / 2**20:.1f} MiB", file=sys.stderr)
    return as_json(looks)


def rounds(page_count: int) -> Iterator[tuple[int, list[bytes]]]:
    """The files between two looks, and how many pages have been sent with them; no page comes twice."""
    for number in range(math.ceil(page_count / _PAGES)):
        scans = [slip(number * _SCANS + index).png for index in range(_SCANS)]
        papers = [digital_pdf(f"{number} {index}", _PAGES_OF_A_PDF) for index in range(_PDFS)]
        yield (number + 1) * _PAGES, [*scans, *papers]


def look(pid: int, pages: int) -> Look:
    """Resident bytes now."""
    process, children = psutil.Process(pid), 0
    for child in process.children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # a child may end while it is looked at
            children += child.memory_info().rss
    return Look(pages, process.memory_info().rss, children)


def as_json(looks: Sequence[Look]) -> dict[str, Any]:
    """What the result file says beside ``facts``: slopes over the second half, when everything is warm."""
    half = looks[len(looks) // 2 :]
    pages = [one.pages for one in half]
    slopes = {
        "all": slope(pages, [one.bytes for one in half]),
        "service": slope(pages, [one.service_bytes for one in half]),
        "children": slope(pages, [one.children_bytes for one in half]),
    }
    raw = [[one.pages, one.service_bytes, one.children_bytes] for one in looks]
    return {
        "pages": looks[-1].pages,
        "first_bytes": looks[0].bytes,
        "middle_bytes": half[0].bytes,
        "last_bytes": looks[-1].bytes,
        "bytes_a_page": {name: {"slope": value, "error": error} for name, (value, error) in slopes.items()},
        "target": TARGET_BYTES_A_PAGE,
        "raw": raw,
    }


def slope(pages: Sequence[int], values: Sequence[int]) -> tuple[float, float]:
    """Bytes a page by least squares, and the standard error of that number. Three looks at least."""
    across, up = np.asarray(pages, float), np.asarray(values, float)
    across -= across.mean()
    found = float(across @ up / (across @ across))
    left = up - up.mean() - found * across
    return found, math.sqrt(float(left @ left) / (len(across) - 2) / float(across @ across))
