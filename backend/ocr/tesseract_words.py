"""The interface of both ways to run Tesseract, and the words of its output that are kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple, Protocol

import numpy as np

from backend.ocr.reading_order import TextLine, in_order
from backend.ocr.records import Gray, OcrBlocks, OcrWord, PixelBox

_PICTURE_RATIO = 0.25  # of the page under one word of a letter or two: that is a frame or a picture
_PICTURE_LETTERS = 2
_MIN_CONFIDENCE = 0.5
_MAX_PARTS = 1000  # of lines; with more (noise, maps) the order is left as it is: every pair is compared
_WIDE_GAP = 2.0  # heights between words that may belong to different columns
_SLOPE_WORDS = 4  # of a line whose slope counts; with fewer, letters without ascenders tilt it
_SLOPE_ASPECT = 8.0  # width to height
_EDGE_PX = 2


class TesseractWord(NamedTuple):
    """A word of Tesseract's output, before filtering."""

    text: str
    box: tuple[int, int, int, int]  # left, top, right, bottom in pixels
    confidence: float  # 0..1
    paragraph: int  # numbered through the page; words of a paragraph are contiguous
    line: int  # the same


class TesseractResult(NamedTuple):
    """Tesseract's words of one image, boxes in its pixels."""

    blocks: OcrBlocks  # a block is a paragraph of Tesseract's
    confidence: float | None  # mean over letters, 0..1; None where there is no word
    complete: bool = True  # False when its time was over before all was recognised


class TesseractBackend(Protocol):
    """Tesseract in this process or as a program. Any thread, several at once."""

    @property
    def version(self) -> str:
        """Version of Tesseract: "5.5.4"."""

    @property
    def why(self) -> str:
        """How it runs, in a few words: "in the process"."""

    def work_clock(self) -> float:
        """Seconds of work that this thread's pages have cost so far; only differences mean something."""

    def recognize(self, gray: Gray, codes: tuple[str, ...], dpi: float, limit_s: float) -> TesseractResult:
        """Recognise a page or a part of one. Blocks for as long as it takes.

        Args:
            gray: (height, width_px), dark ink on light paper.
            codes: Tesseract's names of installed languages, most likely first.
            limit_s: on the clock; then the words so far are the result, none where Tesseract does not tell them.

        Raises:
            InferenceFailed: Tesseract failed on it.
        """


def confidence_of(blocks: OcrBlocks) -> float | None:
    """Mean confidence over the letters; None without words."""
    words = [word for block in blocks for line in block for word in line]
    letters = sum(len(word.text) for word in words)
    return sum(len(word.text) * word.confidence for word in words) / letters if letters else None


def without_edge_words(result: TesseractResult, width_px: int, height: int) -> TesseractResult:
    """The result of a sample without what its borders may have cut."""
    inside = tuple(
        tuple(tuple(word for word in line if _is_inside(word.box, width_px, height)) for line in block)
        for block in result.blocks
    )
    return TesseractResult(inside, confidence_of(inside), result.complete)


def _is_inside(box: PixelBox, width_px: int, height: int) -> bool:
    right, bottom = width_px - _EDGE_PX, height - _EDGE_PX
    return box.left > _EDGE_PX and box.top > _EDGE_PX and box.right < right and box.bottom < bottom


def result_of(words: Iterable[TesseractWord], width_px: int, height: int) -> TesseractResult:
    """The words in their paragraphs and lines.

    Leaves out words without text or without a box on the page, and frames and pictures taken for a letter.
    """
    blocks: list[list[list[OcrWord]]] = []
    place = (-1, -1)
    for raw in words:
        word = _clean_word(raw, width_px, height)
        if word is None:
            continue
        if not blocks or raw.paragraph != place[0]:
            blocks.append([[]])
        elif raw.line != place[1]:
            blocks[-1].append([])
        place = (raw.paragraph, raw.line)
        blocks[-1][-1].append(word)
    result_blocks = tuple(tuple(tuple(line) for line in block) for block in blocks)
    return TesseractResult(_reordered(result_blocks), confidence_of(result_blocks))


def _reordered(blocks: OcrBlocks) -> OcrBlocks:
    """The words in the order that `in_order` finds; Tesseract's paragraphs where that is its order too.

    Tesseract takes the cells of a table for columns of prose: a typed list had a CER of 0.55, and has 0.17 in rows. On
    30 receipts and 7 other typescripts the order stays as good as it was.
    """
    lines = [line for block in blocks for line in block]
    parts = [part for line in lines for part in _parts(line)]
    if len(parts) > _MAX_PARTS:
        return blocks
    ordered = in_order(parts)
    in_rows = [word for block in ordered for line in block for word in line]
    return blocks if in_rows == [word for line in lines for word in line] else ordered


def _parts(line: Sequence[OcrWord]) -> list[TextLine]:
    """The line, cut at wide gaps: Tesseract joins what stands side by side, across columns too.

    All parts lie on the line through the middles of its words, for a lone comma or dash is low or high by itself. The
    line is level where words are too few to show a slope.
    """
    top, bottom = median(word.box.top for word in line), median(word.box.bottom for word in line)
    height = bottom - top
    left, right = min(word.box.left for word in line), max(word.box.right for word in line)
    slope, middle = 0.0, (top + bottom) / 2
    if len(line) >= _SLOPE_WORDS and right - left > _SLOPE_ASPECT * height:
        x = [(word.box.left + word.box.right) / 2 - left for word in line]
        slope, middle = np.polyfit(x, [(word.box.top + word.box.bottom) / 2 for word in line], 1)
    parts = [[line[0]]]
    for before, word in pairwise(line):
        if word.box.left - before.box.right > _WIDE_GAP * height:
            parts.append([])
        parts[-1].append(word)
    ends = [(min(word.box.left for word in part), max(word.box.right for word in part)) for part in parts]
    return [
        TextLine(tuple(part), np.array([[x, middle + slope * (x - left)] for x in part_ends]), height)
        for part, part_ends in zip(parts, ends, strict=True)
    ]


def _clean_word(word: TesseractWord, width_px: int, height: int) -> OcrWord | None:
    text = word.text.strip()
    left, top, right, bottom = word.box
    left, top, right, bottom = max(0, left), max(0, top), min(width_px, right), min(height, bottom)
    if not text or left >= right or top >= bottom:
        return None
    ratio = (right - left) * (bottom - top) / (width_px * height)
    if ratio > _PICTURE_RATIO and len(text) <= _PICTURE_LETTERS and word.confidence < _MIN_CONFIDENCE:
        return None
    return OcrWord(text, PixelBox(left, top, right, bottom), min(1.0, max(0.0, word.confidence)))
