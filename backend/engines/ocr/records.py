"""What an engine that reads pages takes and gives: an image in, words with boxes out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from backend.errors import TooLarge

Gray = NDArray[np.uint8]  # (height, width_px)


class PixelBox(NamedTuple):
    """A rectangle in pixels, origin top left; right and bottom are the first column and row outside."""

    left: float
    top: float
    right: float
    bottom: float


class OcrWord(NamedTuple):
    """A word as an engine read it."""

    text: str
    box: PixelBox
    confidence: float  # 0..1


OcrBlocks = tuple[tuple[tuple[OcrWord, ...], ...], ...]  # words of lines of blocks, in reading order


@dataclass(frozen=True, slots=True)
class OcrImage:
    """One page to read: the payload of a page engine."""

    pixels: NDArray[np.uint8]  # (height, width_px) gray or (height, width_px, 3) RGB
    dpi: float | None  # None where nobody knows
    languages: tuple[str, ...]  # ISO 639-1, most likely first: ("es", "en")
    limit_s: float  # seconds the engine may take for it; an error after


@dataclass(frozen=True, slots=True)
class OcrResult:
    """What was read on one page."""

    blocks: OcrBlocks  # boxes in pixels of the image as given after it was turned by ``rotation``; deskew is undone
    rotation: int  # 0, 90, 180, 270: degrees clockwise that the image was turned by to stand upright
    confidence: float | None  # of the page, 0..1; None where nothing was read
    engine: str  # name and version: "tesseract 5.5.1", "rapidocr 3.10.0"
    why: str  # one sentence: which engine and preprocessing, and why
    steps: tuple[str, ...]  # preprocessing that was done, e.g. "deskew -1.8°"

    @property
    def words(self) -> tuple[OcrWord, ...]:
        """Every word, in reading order."""
        return tuple(word for block in self.blocks for line in block for word in line)


def too_long(spent_s: float, limit_s: float, advice: str) -> TooLarge:
    """The error for a page that takes more time than it may."""
    what = "file: seconds of OCR for a page"
    return TooLarge(what, round(spent_s, 1), limit_s, "LIMIT_PAGE_S", advice=advice, param="file")
