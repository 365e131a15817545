"""A page as Tesseract reads it: its parts, and the result that theirs make together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from backend.ocr.page_time import PageBudget
from backend.ocr.records import Gray, OcrWord
from backend.ocr.tesseract_words import TesseractResult, confidence_of

if TYPE_CHECKING:  # they load OpenCV
    from backend.ocr.orientation import UprightPage
    from backend.ocr.page_strips import Strip


_MARGIN_PX = 10  # of white at a cut; Tesseract loses letters that touch the border of their image


@dataclass(frozen=True, slots=True)
class TesseractPart:
    """Rows of a page, made ready: the payload of `TesseractEngine`."""

    gray: Gray  # dark ink on light paper
    codes: tuple[str, ...]  # Tesseract's names of its languages
    dpi: float
    budget: PageBudget  # of the page


@dataclass(frozen=True, slots=True)
class TesseractPage:
    """A page that was made ready for Tesseract."""

    upright: UprightPage
    strips: tuple[Strip, ...]  # from the top; none for a page without print
    parts: tuple[TesseractPart, ...]  # of each strip
    sample: TesseractPart | None = None  # its densest lines, where it has one strip and is much larger
    sample_share: float = 0.0  # of the page's ink that is in them

    @property
    def probe(self) -> int:
        """Which part shows whether Tesseract can read the page: one of its middle, where its text is."""
        return len(self.parts) // 2

    def joined(self, results: Sequence[TesseractResult]) -> TesseractResult:
        """The result of the page, with boxes on the upright page.

        Args:
            results: of each part.
        """
        blocks: list[tuple[tuple[OcrWord, ...], ...]] = []
        for strip, result in zip(self.strips, results, strict=True):
            more = list(self.upright.words_on_page(result.blocks, strip.top - _margin_above(strip)))
            if strip.continues and blocks and more:
                more[0] = (*blocks.pop(), *more[0])
            blocks += more
        complete = all(result.complete for result in results)
        return TesseractResult(tuple(blocks), confidence_of(tuple(blocks)), complete)


def rows_of(gray: Gray, strip: Strip) -> Gray:
    """The rows of a strip; at a cut its last row, which has no ink, is repeated as a margin."""
    rows = gray[strip.top : strip.bottom]
    margins = (_margin_above(strip), _MARGIN_PX if strip.bottom < len(gray) else 0)
    return np.pad(rows, (margins, (0, 0)), mode="edge") if any(margins) else rows


def _margin_above(strip: Strip) -> int:
    return _MARGIN_PX if strip.top else 0
