"""OCR workloads beside clean print: one scan alone, pages that RapidOCR reads better, and pages of several kinds."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image, ImageFilter

from benchmarks.ocr_pages import DPI, clean_page
from benchmarks.ocr_quality import OcrDataset, pages_of

# data set -> pages. Every second one of a set, those that no threshold was chosen on.
_DOUBTFUL = {"ocr_fr_typed": 1, "ocr_sroie": 3, "ocr_photos": 1}
_MIXED = {"ocr_es_print": 3, "ocr_en_print": 2, "ocr_it_print": 1, "ocr_fr_typed": 1, "ocr_sroie": 4, "ocr_photos": 1}
_PAPER, _INK = 236, 24  # gray levels
_WORN_PAPER, _WORN_INK = 190, 90


def scan(number: int) -> bytes:
    """An A4 page as an office scanner gives it: a little turned, gray, soft and noisy."""
    return _scanned(number, paper=_PAPER, ink=_INK, blur_px=0.7, noise=7)


def worn(number: int) -> bytes:
    """A faded and blurred copy of a page, which Tesseract is not sure of."""
    return _scanned(number, paper=_WORN_PAPER, ink=_WORN_INK, blur_px=1.4, noise=22)


def doubtful_pages(data: Path) -> list[bytes]:
    """Typescript, receipts and photographs; worn pages where the sets are not there."""
    return _of_sets(data, _DOUBTFUL) or [worn(number) for number in range(4)]


def mixed_pages(data: Path) -> list[bytes]:
    """Two made scans and pages of six kinds; made pages of three kinds where the sets are not there."""
    scans = [scan(number) for number in (100, 101)]
    others = _of_sets(data, _MIXED) or [
        *(worn(number) for number in range(3)),
        *(clean_page(number).png for number in range(100, 103)),
    ]
    return [*scans, *others]


def _of_sets(data: Path, counts: Mapping[str, int]) -> list[bytes]:
    """The first ``counts`` of every second page of each set."""
    return [
        page.file.read_bytes()
        for folder, count in counts.items()
        for page in pages_of(data, OcrDataset(folder, folder))[1::2][:count]
    ]


def _scanned(number: int, *, paper: int, ink: int, blur_px: float, noise: float) -> bytes:
    rng = np.random.default_rng(number)
    with Image.open(io.BytesIO(clean_page(number).png)) as drawn:
        turned = drawn.rotate(rng.uniform(-0.8, 0.8), Image.Resampling.BICUBIC, fillcolor=255)
    soft = np.asarray(turned.filter(ImageFilter.GaussianBlur(blur_px)), np.float32) / 255
    levels = ink + (paper - ink) * soft + rng.normal(0, noise, soft.shape)
    target = io.BytesIO()
    page = Image.fromarray(np.clip(levels, 0, 255).astype(np.uint8))
    page.save(target, "JPEG", quality=85, dpi=(DPI, DPI))
    return target.getvalue()
