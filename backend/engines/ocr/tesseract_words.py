"""What both ways of running Tesseract take and give, and what of it is kept."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from backend.engines.ocr.records import Gray, OcrBlocks, OcrWord, PixelBox

_PICTURE_RATIO = 0.25  # of the page under one word of a letter or two: a frame or a picture that was taken for it
_PICTURE_LETTERS = 2
_SURE = 0.5


class Found(NamedTuple):
    """A word as Tesseract gives it, before anything is dropped."""

    text: str
    box: tuple[int, int, int, int]  # left, top, right, bottom in pixels
    confidence: float  # 0..1
    paragraph: int  # counted through the page; words of a paragraph follow each other
    line: int  # the same


class Reading(NamedTuple):
    """A page as it was read, boxes in pixels of the image that was given."""

    blocks: OcrBlocks  # a block is a paragraph of Tesseract's
    confidence: float | None  # mean over letters, 0..1; None where there is no word


class TesseractReader(Protocol):
    """Tesseract, in this process or as a program. Any thread, several at once."""

    @property
    def version(self) -> str:
        """Of Tesseract itself: "5.5.4"."""

    @property
    def why(self) -> str:
        """How it is run; a few words: "in the process"."""

    def read(self, gray: Gray, codes: tuple[str, ...], dpi: float, limit_s: float) -> Reading:
        """Read a page in one recognition. Blocks for as long as it takes.

        Args:
            gray: (height, width_px), dark ink on light paper.
            codes: Tesseract's names of languages whose data are there, most likely first.

        Raises:
            TimeoutError: over ``limit_s``; the page was given up.
            InferenceFailed: Tesseract gave up on it.
        """


def reading_of(found: Iterable[Found], width_px: int, height: int) -> Reading:
    """The words worth keeping, in their paragraphs and lines.

    Left out are words without text, without a box within the page, and frames and pictures taken for a letter.
    """
    blocks: list[list[list[OcrWord]]] = []
    place = (-1, -1)
    letters, weighed = 0, 0.0
    for one in found:
        word = _kept(one, width_px, height)
        if word is None:
            continue
        if not blocks or one.paragraph != place[0]:
            blocks.append([[]])
        elif one.line != place[1]:
            blocks[-1].append([])
        place = (one.paragraph, one.line)
        blocks[-1][-1].append(word)
        letters += len(word.text)
        weighed += len(word.text) * word.confidence
    kept = tuple(tuple(tuple(line) for line in block) for block in blocks)
    return Reading(kept, weighed / letters if letters else None)


def _kept(one: Found, width_px: int, height: int) -> OcrWord | None:
    text = one.text.strip()
    left, top, right, bottom = one.box
    left, top, right, bottom = max(0, left), max(0, top), min(width_px, right), min(height, bottom)
    if not text or left >= right or top >= bottom:
        return None
    ratio = (right - left) * (bottom - top) / (width_px * height)
    if ratio > _PICTURE_RATIO and len(text) <= _PICTURE_LETTERS and one.confidence < _SURE:
        return None
    return OcrWord(text, PixelBox(left, top, right, bottom), min(1.0, max(0.0, one.confidence)))
