"""Recognises a page that may lie sideways or upside down, and finds its rotation by trial recognition.

Image statistics show cheaply whether lines run down the page; upside down shows only in the result. So an upright page
costs nothing more; for one that is sideways or badly recognised, a few lines are recognised in each direction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from backend.engines.ocr.image_stats import ImageStats, measure
from backend.engines.ocr.preprocessing import Prepared, prepare, rotated, to_gray, to_original_box
from backend.engines.ocr.records import Gray, OcrBlocks, OcrWord
from backend.engines.ocr.tesseract_words import TesseractResult

Recognize = Callable[[Gray, float], TesseractResult]  # of an image with dark ink on light paper and its dpi

_MIN_CONTRAST = 12.0  # gray levels; less is scanner noise on empty paper
_MIN_CONFIDENCE = 0.65  # of a page; below, it may be upside down
_MIN_LETTERS = 40  # letter-sized components; fewer show no direction
_SAMPLE = (16.0, 80.0)  # height and width in letter heights: some six lines of a hundred letters
_MIN_ADVANTAGE = 1.5  # times the letters of direction 0 that another one needs
_DPI_A_GLYPH_PIXEL = 10.0  # print of 10 points has letters 25 to 30 pixels high at 300 dpi
_LEGIBLE = 0.5  # confidence of a word that counts for its direction


@dataclass(frozen=True, slots=True)
class UprightResult:
    """A page's words, with boxes on the upright image."""

    blocks: OcrBlocks
    rotation: int  # degrees clockwise to the upright image
    confidence: float | None
    steps: tuple[str, ...]


def recognize_upright(pixels: NDArray[np.uint8], dpi: float, recognize: Recognize) -> UprightResult:
    """Rotate and preprocess the page as far as it needs it, recognise it, and map the boxes of its words back to it.

    Raises: what ``recognize`` raises.

    Shapes: pixels (height, width_px) or (height, width_px, 3).
    """
    gray = to_gray(pixels)
    stats = measure(gray)
    if stats.contrast < _MIN_CONTRAST:
        return UprightResult((), 0, None, ())
    first = None if stats.sideways else _recognize(gray, stats, dpi, recognize)
    if first is not None and not _may_be_rotated(first, stats):
        return first
    rotation = _best_rotation(gray, stats, dpi, recognize)
    if first is not None and not rotation:
        return first
    upright = _recognize(rotated(gray, rotation), _stats_after_rotation(stats, rotation), dpi, recognize)
    return replace(
        upright, rotation=rotation, steps=(f"turn {rotation}°", *upright.steps) if rotation else upright.steps
    )


def _recognize(gray: Gray, stats: ImageStats, dpi: float, recognize: Recognize) -> UprightResult:
    prepared = prepare(gray, stats)
    result = recognize(prepared.gray, _dpi_of(stats, dpi) * prepared.scale)
    height, width_px = gray.shape
    blocks = tuple(
        tuple(tuple(_to_page(word, prepared, width_px, height) for word in line) for line in block)
        for block in result.blocks
    )
    return UprightResult(blocks, 0, result.confidence, prepared.steps)


def _dpi_of(stats: ImageStats, dpi: float) -> float:
    """The resolution that fits the size of the letters: photographs claim 72 or 96 dpi, which misleads Tesseract."""
    return dpi if stats.glyph_height is None else stats.glyph_height * _DPI_A_GLYPH_PIXEL


def _to_page(word: OcrWord, prepared: Prepared, width_px: int, height: int) -> OcrWord:
    return OcrWord(word.text, to_original_box(word.box, prepared.back, width_px, height), word.confidence)


def _may_be_rotated(first: UprightResult, stats: ImageStats) -> bool:
    return stats.glyphs >= _MIN_LETTERS and (first.confidence or 0.0) < _MIN_CONFIDENCE


def _runs_down(word: OcrWord) -> bool:
    box = word.box
    return len(word.text) >= 3 and box.bottom - box.top > box.right - box.left


def _best_rotation(gray: Gray, stats: ImageStats, dpi: float, recognize: Recognize) -> int:
    """Degrees clockwise to rotate the page by: the direction in which most of a sample of it is recognised."""
    letters = {degrees: _legible_letters(gray, stats, degrees, dpi, recognize) for degrees in (0, 90, 180, 270)}
    best = max(letters, key=lambda degrees: letters[degrees])
    return best if letters[best] > _MIN_ADVANTAGE * letters[0] else 0


def _legible_letters(gray: Gray, stats: ImageStats, degrees: int, dpi: float, recognize: Recognize) -> float:
    """Letters recognised in a sample of the page rotated by ``degrees``, weighted by confidence.

    Tesseract also recognises lines that run down the page; those do not count, as the page still has to be rotated.
    """
    stats = _stats_after_rotation(stats, degrees)
    prepared = prepare(rotated(gray, degrees), stats)
    sample = _densest_part(prepared.gray, (stats.glyph_height or 1.0) * prepared.scale)
    words = [
        word
        for block in recognize(sample, _dpi_of(stats, dpi) * prepared.scale).blocks
        for line in block
        for word in line
    ]
    return sum(
        len(word.text) * word.confidence for word in words if word.confidence > _LEGIBLE and not _runs_down(word)
    )


def _stats_after_rotation(stats: ImageStats, degrees: int) -> ImageStats:
    """The statistics of the page after a rotation: its skew is known only along its lines."""
    along = stats.sideways == (degrees in {90, 270})
    return replace(stats, skew=stats.skew if along else 0.0, sideways=not along)


def _densest_part(gray: Gray, glyph_height: float) -> Gray:
    """The part of a page, some lines high, with the most print."""
    height, width_px = (
        min(side, round(glyphs * glyph_height)) for side, glyphs in zip(gray.shape, _SAMPLE, strict=True)
    )
    edges = np.abs(np.diff(gray.astype(np.int16), axis=1))  # edges count, dark areas of pictures do not
    top = _densest_start(edges.sum(axis=1), height)
    left = _densest_start(edges[top : top + height].sum(axis=0), width_px)
    return np.ascontiguousarray(gray[top : top + height, left : left + width_px])


def _densest_start(counts: NDArray[np.int64], length: int) -> int:
    sums = np.concatenate(([0], np.cumsum(counts)))
    length = min(length, len(counts))
    return int(np.argmax(sums[length:] - sums[: len(sums) - length]))
