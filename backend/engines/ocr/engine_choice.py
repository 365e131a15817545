"""Which engine's reading of a page is taken. No engine here: only the decisions, with their reasons.

Measured on 83 pages of eight sets (Spanish, Italian and English books, French typescript, receipts, forms, photos):
RapidOCR read nearly every page better, Tesseract read clean print as well in half the time. So Tesseract reads first,
and a page on which it is not sure is RapidOCR's. Joining both readings was tried and gave nothing: not one sure word of
Tesseract's lay where RapidOCR had none.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from backend.engines.ocr.records import OcrResult

EngineWish = Literal["auto", "tesseract", "pytesseract", "rapidocr"]

# Chosen on the Spanish, English and Italian books from 0.90 to 0.95 and 1 % to 5 %: with these no page of clean English
# or Italian print is read twice, and of the Spanish ones those that gain are. Receipts, typescript and photographs,
# which had no say in it, are asked at (nearly) every one of those values, forms at 1 % only.
_SURE_PAGE = 0.92  # confidence of a page
_DOUBTFUL = 0.7  # confidence of a word
_DOUBTFUL_SHARE = 0.01  # of a page's words
_LEGIBLE = 0.8  # confidence of a word that counts when two readings are compared
_FAR_FEWER = 0.5  # letters of one reading for those of another


def doubt(reading: OcrResult) -> str:
    """Why another engine should read the page that Tesseract has read; "" where it need not."""
    words = reading.words
    if not words:
        return "Tesseract found no word"
    confidence = reading.confidence or 0.0
    share = sum(word.confidence < _DOUBTFUL for word in words) / len(words)
    if confidence >= _SURE_PAGE and share <= _DOUBTFUL_SHARE:
        return ""
    return f"Tesseract was unsure (confidence {confidence:.2f}, {share:.0%} of its words doubtful)"


def kept(first: OcrResult) -> OcrResult:
    """Tesseract's reading, when it is sure."""
    return replace(first, why=f"{first.why}; sure of it, so no other engine was asked")


def better(first: OcrResult, second: OcrResult, why: str) -> OcrResult:
    """RapidOCR's reading, unless it has far fewer legible letters than the ``first``, which is Tesseract's.

    Args:
        why: as ``doubt`` gave it.
    """
    letters, others = _legible(first), _legible(second)
    if others < _FAR_FEWER * letters:
        return replace(first, why=f"{first.why}; {why}, but RapidOCR found {others} letters of {letters}")
    return replace(second, why=f"{second.why}; {why}")


def _legible(reading: OcrResult) -> int:
    return sum(len(word.text) for word in reading.words if word.confidence >= _LEGIBLE)
