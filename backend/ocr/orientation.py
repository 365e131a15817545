"""Turns a page upright that lies sideways or upside down, and finds its rotation by trial recognition.

Image statistics show cheaply whether lines run down the page; upside down shows only in the result. So an upright page
costs nothing more; for one that is sideways or badly recognised, a few lines are recognised in each direction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from backend.ocr.preprocessing import (
    Affine,
    ImageStats,
    ink_of,
    measure,
    prepare,
    rotated,
    shrink,
    to_gray,
    to_original_box,
)
from backend.ocr.records import Gray, OcrBlocks, OcrWord
from backend.ocr.tesseract_words import TesseractResult

Recognize = Callable[[Gray, float], TesseractResult]  # of an image with dark ink on light paper and its dpi

_MIN_CONTRAST = 12.0  # gray levels; less is scanner noise on empty paper
_MIN_CONFIDENCE = 0.65  # of a page; below, it may be upside down
_MIN_LETTERS = 40  # letter-sized components; fewer show no direction
_SAMPLE = (16.0, 80.0)  # height and width in letter heights: some six lines of a hundred letters
_MIN_ADVANTAGE = 1.5  # times the letters of direction 0 that another one needs
_DPI_A_GLYPH_PIXEL = 10.0  # print of 10 points has letters 25 to 30 pixels high at 300 dpi
_FIRST_LINES = (14.0, 80.0)  # the same, of the lines that are read first
_SAMPLED_PAGE = 2.5  # times the sample's pixels that a page has; on a smaller one the sample is no saving
_SURE_DIRECTION = 0.85  # mean confidence of legible words; upside down, words rarely reach 0.7
_LEGIBLE = 0.5  # confidence of a word that counts for its direction


@dataclass(frozen=True, slots=True)
class UprightPage:
    """A page turned upright and preprocessed."""

    gray: Gray | None  # dark ink on light paper, lines level; None for a page without print
    dpi: float  # of it, as the height of its letters tells
    glyph_height: float | None  # of its letters, in its pixels; None for too few
    back: Affine  # from its pixels to those of the upright page
    rotation: int  # degrees clockwise from the given page to the upright one
    size: tuple[int, int]  # height and width of the upright page in pixels
    glyphs: int  # components of the size of letters
    steps: tuple[str, ...]

    def words_on_page(self, blocks: OcrBlocks, top: int = 0) -> OcrBlocks:
        """The words with boxes on the upright page, of a part of its image that begins at row ``top``."""
        height, width_px = self.size

        def on_page(word: OcrWord) -> OcrWord:
            box = word.box._replace(top=word.box.top + top, bottom=word.box.bottom + top)
            return OcrWord(word.text, to_original_box(box, self.back, width_px, height), word.confidence)

        return tuple(tuple(tuple(map(on_page, line)) for line in block) for block in blocks)

    def may_be_rotated(self, confidence: float | None) -> bool:
        """Whether so low a confidence of the page may come from its rotation."""
        return self.glyphs >= _MIN_LETTERS and (confidence or 0.0) < _MIN_CONFIDENCE


def turn_upright(pixels: NDArray[np.uint8], dpi: float, recognize: Recognize, *, search: bool = False) -> UprightPage:
    """Rotate and preprocess the page as far as it needs it.

    Args:
        search: recognise samples in all directions, and not only where lines run down the page.

    Raises: what ``recognize`` raises.

    Shapes: pixels (height, width_px) or (height, width_px, 3).
    """
    gray = to_gray(pixels)
    stats = measure(gray)
    height, width_px = gray.shape
    if stats.contrast < _MIN_CONTRAST:
        return UprightPage(None, dpi, None, np.eye(2, 3), 0, (height, width_px), 0, ())
    rotation = _best_rotation(gray, stats, dpi, recognize) if search or stats.sideways else 0
    if rotation:
        gray, stats = rotated(gray, rotation), _stats_after_rotation(stats, rotation)
    prepared = prepare(gray, stats)
    return UprightPage(
        gray=prepared.gray,
        dpi=_dpi_of(stats, dpi) * prepared.scale,
        glyph_height=None if stats.glyph_height is None else stats.glyph_height * prepared.scale,
        back=prepared.back,
        rotation=rotation,
        size=(gray.shape[0], gray.shape[1]),
        glyphs=stats.glyphs,
        steps=(f"turn {rotation}°", *prepared.steps) if rotation else prepared.steps,
    )


def densest_lines(page: UprightPage) -> tuple[Gray, float] | None:
    """Some lines of the page with the most print, and the share of its ink in them; None where they are most of it."""
    if page.gray is None or page.glyph_height is None:
        return None
    lines = _densest_part(page.gray, page.glyph_height, _FIRST_LINES)
    if lines.size * _SAMPLED_PAGE > page.gray.size:
        return None
    ink, all_ink = (int(np.count_nonzero(ink_of(shrink(gray, 2)))) for gray in (lines, page.gray))
    return lines, min(1.0, ink / max(1, all_ink))


def _dpi_of(stats: ImageStats, dpi: float) -> float:
    """The resolution that fits the size of the letters: photographs claim 72 or 96 dpi, which misleads Tesseract."""
    return dpi if stats.glyph_height is None else stats.glyph_height * _DPI_A_GLYPH_PIXEL


def _runs_down(word: OcrWord) -> bool:
    box = word.box
    return len(word.text) >= 3 and box.bottom - box.top > box.right - box.left


def _best_rotation(gray: Gray, stats: ImageStats, dpi: float, recognize: Recognize) -> int:
    """Degrees clockwise to rotate the page by: the direction in which most of a sample of it is recognised.

    The likelier directions are tried first, and the first one that is read with confidence is taken.
    """
    letters: dict[int, float] = {}
    for degrees in (90, 270, 0, 180) if stats.sideways else (0, 180, 90, 270):
        words = _legible_words(gray, stats, degrees, dpi, recognize)
        letters[degrees] = sum(len(word.text) * word.confidence for word in words)
        count = sum(len(word.text) for word in words)
        if count >= _MIN_LETTERS and letters[degrees] >= _SURE_DIRECTION * count:
            return degrees
    best = max(letters, key=lambda degrees: letters[degrees])
    return best if letters[best] > _MIN_ADVANTAGE * letters[0] else 0


def _legible_words(gray: Gray, stats: ImageStats, degrees: int, dpi: float, recognize: Recognize) -> list[OcrWord]:
    """The words recognised in a sample of the page rotated by ``degrees``.

    Tesseract also recognises lines that run down the page; those do not count, as the page still has to be rotated.
    """
    stats = _stats_after_rotation(stats, degrees)
    prepared = prepare(rotated(gray, degrees), stats)
    sample = _densest_part(prepared.gray, (stats.glyph_height or 1.0) * prepared.scale)
    blocks = recognize(sample, _dpi_of(stats, dpi) * prepared.scale).blocks
    words = [word for block in blocks for line in block for word in line]
    return [word for word in words if word.confidence > _LEGIBLE and not _runs_down(word)]


def _stats_after_rotation(stats: ImageStats, degrees: int) -> ImageStats:
    """The statistics of the page after a rotation: its skew is known only along its lines."""
    along = stats.sideways == (degrees in {90, 270})
    return replace(stats, skew=stats.skew if along else 0.0, sideways=not along)


def _densest_part(gray: Gray, glyph_height: float, size: tuple[float, float] = _SAMPLE) -> Gray:
    """The part of a page, some lines high, with the most print."""
    height, width_px = (min(side, round(glyphs * glyph_height)) for side, glyphs in zip(gray.shape, size, strict=True))
    edges = np.abs(np.diff(gray.astype(np.int16), axis=1))  # edges count, dark areas of pictures do not
    top = _densest_start(edges.sum(axis=1), height)
    left = _densest_start(edges[top : top + height].sum(axis=0), width_px)
    return np.ascontiguousarray(gray[top : top + height, left : left + width_px])


def _densest_start(counts: NDArray[np.int64], length: int) -> int:
    sums = np.concatenate(([0], np.cumsum(counts)))
    length = min(length, len(counts))
    return int(np.argmax(sums[length:] - sums[: len(sums) - length]))
