"""Which engine's result is used for a page. Pure decisions, with their reasons.

Measured on 83 pages of eight sets (Spanish, Italian and English books, French typescript, receipts, forms, photos):
RapidOCR was better on nearly every page, Tesseract as good on clean print in half the time. So Tesseract runs first,
and RapidOCR runs on pages where Tesseract is not sure. Merging both results gained nothing: Tesseract had not one sure
word where RapidOCR had none. Words are compared, not their order: both engines' words are put in order in one place
(`reading_order`), so that neither has an order of its own. Of 200 pages order decides one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from backend.ocr.records import OcrBlocks, OcrResult
from backend.ocr.tesseract_words import TesseractResult
from backend.reasons import because

OcrEngineName = Literal["auto", "tesseract", "pytesseract", "rapidocr"]

# Chosen on the Spanish, English and Italian books from 0.90 to 0.95 and 1 % to 5 %: with these no page of clean English
# or Italian print is recognised twice, and of the Spanish ones those that gain are. Receipts, typescript and
# photographs, which were not used for the choice, go to RapidOCR at (nearly) all of those values, forms at 1 % only.
_SURE_PAGE = 0.92  # confidence of a page
DOUBTFUL = 0.7  # confidence of a word
_DOUBTFUL_SHARE = 0.01  # of a page's words
_LEGIBLE = 0.8  # confidence of a word that counts when two results are compared
_FAR_FEWER = 0.5  # letters of one result to those of the other


def reason_for_doubt(result: OcrResult) -> str:
    """Why RapidOCR should recognise the page as well; "" where Tesseract's result is good enough."""
    words = result.words
    if not words:
        return because("tesseract_found_none")
    confidence = result.confidence or 0.0
    share = sum(word.confidence < DOUBTFUL for word in words) / len(words)
    if confidence >= _SURE_PAGE and share <= _DOUBTFUL_SHARE:
        return ""
    return because("tesseract_unsure", confidence=confidence, share=share)


def accept_first(first: OcrResult) -> OcrResult:
    return replace(first, why=f"{first.why}; {because('tesseract_sure')}")


def choose_result(first: OcrResult, second: OcrResult, why: str) -> OcrResult:
    """RapidOCR's result (``second``), unless it has far fewer legible letters than Tesseract's (``first``).

    Args:
        why: of `reason_for_doubt`.
    """
    letters, rapidocr_letters = legible_letters(first.blocks), legible_letters(second.blocks)
    if rapidocr_letters < _FAR_FEWER * letters:
        fewer = because("rapidocr_fewer", letters=rapidocr_letters, of=letters)
        return replace(first, why=f"{first.why}; {why}, {fewer}")
    return replace(second, why=f"{second.why}; {why}")


def legible_letters(blocks: OcrBlocks) -> int:
    """Letters of the words that are probably right."""
    return sum(len(word.text) for block in blocks for line in block for word in line if word.confidence >= _LEGIBLE)


# Chosen on every second page of seven sets. On the other 31 pages: of the 25 whose result `engine_choice` doubts in the
# end 15 are left, after 0.35 of Tesseract's time at the median, and none of the six that it keeps.
_SURE_LINES = 0.91  # confidence; a page needs 0.92, and of a few lines it varies
_PROBE_DOUBTFUL_SHARE = 0.0125  # of the words that the whole page may have; `engine_choice` asks for less than 0.01
_MIN_DOUBTFUL = 2  # a stain may spoil one word of any page


def reason_to_leave(lines: TesseractResult, ink_share: float) -> str:
    """Why Tesseract should not read the rest of the page; "" where it may be good enough.

    Args:
        lines: what it has read so far.
        ink_share: of the page's ink that is in them.
    """
    words = [word for block in lines.blocks for line in block for word in line]
    if not words:
        return because("tesseract_found_none_first")
    confidence = lines.confidence or 0.0
    doubtful = sum(word.confidence < DOUBTFUL for word in words)
    page_words = len(words) / max(ink_share, 0.01)
    if confidence >= _SURE_LINES and doubtful < max(_MIN_DOUBTFUL, _PROBE_DOUBTFUL_SHARE * page_words):
        return ""
    return because("tesseract_unsure_first", confidence=confidence, doubtful=doubtful, words=len(words))
