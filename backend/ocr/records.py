"""Input and output of OCR engines, and the names of the engines in metrics and logs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

PREPARE = "ocr_prepare"
TESSERACT = "ocr_tesseract"
PROGRAM = "ocr_tesseract_program"
DETECT = "ocr_detect"
RECOGNIZE = "ocr_recognize"
OCR_TASKS = (PREPARE, TESSERACT, PROGRAM, DETECT, RECOGNIZE)

Gray = NDArray[np.uint8]  # (height, width_px)


class PixelBox(NamedTuple):
    """A rectangle in pixels, origin top left; right and bottom are the first column and row outside."""

    left: float
    top: float
    right: float
    bottom: float


class PixelLine(NamedTuple):
    """A line in pixels, from its left or upper end to the other."""

    x0: float
    y0: float
    x1: float
    y1: float


class OcrWord(NamedTuple):
    text: str
    box: PixelBox
    confidence: float  # 0..1


OcrBlocks = tuple[tuple[tuple[OcrWord, ...], ...], ...]  # words of lines of blocks, in reading order


@dataclass(frozen=True, slots=True)
class OcrImage:
    """One page to recognise."""

    pixels: NDArray[np.uint8]  # (height, width_px) gray or (height, width_px, 3) RGB
    dpi: float | None  # None where it is unknown
    languages: tuple[str, ...]  # ISO 639-1, most likely first: ("es", "en")
    limit_s: float  # seconds of work for each engine; then what it has read so far is its result
    deadline_s: float = math.inf  # on the monotonic clock: the deadline of who waits for it, with whom the work ends


@dataclass(frozen=True, slots=True)
class OcrResult:
    """The recognised words of one page, and how they were found."""

    blocks: OcrBlocks  # boxes in pixels of the given image rotated by ``rotation``; deskew is undone
    rotation: int  # 0, 90, 180, 270: degrees clockwise to the upright page
    confidence: float | None  # of the page, 0..1; None without words
    engine: str  # name and version: "tesseract 5.5.1", "rapidocr 3.10.0"
    why: str  # one sentence: which engine and preprocessing, and why
    steps: tuple[str, ...]  # preprocessing steps, e.g. "deskew -1.8°"
    incomplete: str = ""  # one clause: why a part of the page was not read; "" for a whole page
    rulings: tuple[PixelLine, ...] = ()  # the printed lines of the page, in the pixels of its boxes

    @property
    def words(self) -> tuple[OcrWord, ...]:
        return tuple(word for block in self.blocks for line in block for word in line)
