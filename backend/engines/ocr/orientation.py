"""Reading a page that may lie on its side or on its head: which way is up is asked of the reader itself.

Whether lines run down the page is seen cheaply (`looking`); head or foot first only shows in the reading. So an upright
page costs nothing more; one that is read badly, or lies on its side, has a few lines of it read in each direction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from backend.engines.ocr.image_stats import Look, look
from backend.engines.ocr.preprocessing import Prepared, placed_back, prepare, to_gray, turned
from backend.engines.ocr.records import Gray, OcrBlocks, OcrWord
from backend.engines.ocr.tesseract_words import Reading

Read = Callable[[Gray, float], Reading]  # an image with dark ink on light paper and its dpi; may raise TooLarge

_LEAST_CONTRAST = 12.0  # gray levels; less is the noise of a scanner on empty paper
_DOUBTFUL = 0.65  # confidence of a page below which it may stand on its head
_FEWEST_LETTERS = 40  # pieces of ink of a letter's size; fewer say nothing about a direction
_SAMPLE = (16.0, 80.0)  # height and width in heights of a letter: some six lines of a hundred letters
_CLEARLY = 1.5  # so many times as much must be read another way before a page is turned
_DPI_A_GLYPH_PIXEL = 10.0  # print of 10 points has letters 25 to 30 pixels high at 300 dpi
_READABLE = 0.5  # confidence of a word above which it speaks for its direction


@dataclass(frozen=True, slots=True)
class UprightReading:
    """A page's words, on the image as it stands upright."""

    blocks: OcrBlocks
    rotation: int  # degrees clockwise that the image was turned
    confidence: float | None
    steps: tuple[str, ...]


def read_upright(pixels: NDArray[np.uint8], dpi: float, read: Read) -> UprightReading:
    """Look at the page, turn and prepare it as it needs, read it, and put its words where they are on the page.

    Shapes: pixels (height, width_px) or (height, width_px, 3).
    """
    gray = to_gray(pixels)
    seen = look(gray)
    if seen.contrast < _LEAST_CONTRAST:
        return UprightReading((), 0, None, ())
    first = None if seen.sideways else _read(gray, seen, dpi, read)
    if first is not None and not _may_be_turned(first, seen):
        return first
    rotation = _direction(gray, seen, dpi, read)
    if first is not None and not rotation:
        return first
    upright = _read(turned(gray, rotation), _look_after(seen, rotation), dpi, read)
    return replace(
        upright, rotation=rotation, steps=(f"turn {rotation}°", *upright.steps) if rotation else upright.steps
    )


def _read(gray: Gray, seen: Look, dpi: float, read: Read) -> UprightReading:
    prepared = prepare(gray, seen)
    reading = read(prepared.gray, _dpi_of(seen, dpi) * prepared.scale)
    height, width_px = gray.shape
    blocks = tuple(
        tuple(tuple(_back(word, prepared, width_px, height) for word in line) for line in block)
        for block in reading.blocks
    )
    return UprightReading(blocks, 0, reading.confidence, prepared.steps)


def _dpi_of(seen: Look, dpi: float) -> float:
    """What print of this size would have been scanned with: photographs say 72 or 96, and Tesseract believes it."""
    return dpi if seen.glyph_height is None else seen.glyph_height * _DPI_A_GLYPH_PIXEL


def _back(word: OcrWord, prepared: Prepared, width_px: int, height: int) -> OcrWord:
    return OcrWord(word.text, placed_back(word.box, prepared.back, width_px, height), word.confidence)


def _may_be_turned(first: UprightReading, seen: Look) -> bool:
    return seen.glyphs >= _FEWEST_LETTERS and (first.confidence or 0.0) < _DOUBTFUL


def _runs_down(word: OcrWord) -> bool:
    box = word.box
    return len(word.text) >= 3 and box.bottom - box.top > box.right - box.left


def _direction(gray: Gray, seen: Look, dpi: float, read: Read) -> int:
    """Degrees clockwise to turn the page by: the direction in which most of a few lines can be read."""
    readable = {degrees: _readable(gray, seen, degrees, dpi, read) for degrees in (0, 90, 180, 270)}
    best = max(readable, key=lambda degrees: readable[degrees])
    return best if readable[best] > _CLEARLY * readable[0] else 0


def _readable(gray: Gray, seen: Look, degrees: int, dpi: float, read: Read) -> float:
    """How much is read of a few lines of the page turned by so much: letters, weighed by confidence.

    Tesseract also reads lines that run down the page, which then still has to be turned: those do not count.
    """
    seen = _look_after(seen, degrees)
    prepared = prepare(turned(gray, degrees), seen)
    sample = _densest(prepared.gray, (seen.glyph_height or 1.0) * prepared.scale)
    words = [
        word for block in read(sample, _dpi_of(seen, dpi) * prepared.scale).blocks for line in block for word in line
    ]
    return sum(
        len(word.text) * word.confidence for word in words if word.confidence > _READABLE and not _runs_down(word)
    )


def _look_after(seen: Look, degrees: int) -> Look:
    """The look of the page turned by so much: its skew is known along its lines alone."""
    along = seen.sideways == (degrees in {90, 270})
    return replace(seen, skew=seen.skew if along else 0.0, sideways=not along)


def _densest(gray: Gray, glyph_height: float) -> Gray:
    """The part of a page, some lines high, where most is written."""
    height, width_px = (min(side, round(parts * glyph_height)) for side, parts in zip(gray.shape, _SAMPLE, strict=True))
    rough = np.abs(np.diff(gray.astype(np.int16), axis=1))  # edges of letters, not the dark of a picture
    top = _densest_start(rough.sum(axis=1), height)
    left = _densest_start(rough[top : top + height].sum(axis=0), width_px)
    return np.ascontiguousarray(gray[top : top + height, left : left + width_px])


def _densest_start(counts: NDArray[np.int64], length: int) -> int:
    sums = np.concatenate(([0], np.cumsum(counts)))
    length = min(length, len(counts))
    return int(np.argmax(sums[length:] - sums[: len(sums) - length]))
