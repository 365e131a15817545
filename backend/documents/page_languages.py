"""Which languages a page is read with, where OCR_LANGUAGES lists more than Tesseract should choose from at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from backend.documents.ocr import OcrService
from backend.errors import InferenceFailed, InvalidField, Overloaded
from backend.lanes.inference import Urgency
from backend.ocr.engine_choice import OcrEngineName, reason_for_doubt
from backend.ocr.languages import tesseract_code
from backend.ocr.rapidocr_models import is_latin_print
from backend.ocr.records import OcrImage, OcrResult
from backend.text.language import detect

_AT_ONCE = 2
# Sentences of nine languages (SIB-200) in pairs, of 270 characters, were told apart without a fault at this score.
_SURE = 0.9
_LEAST_WORDS = 20
# Confidence by which a reading in the page's own language may fall behind one in others: a French typescript had 0.839
# with French and Spanish, 0.842 with Spanish and English, and 0.89 of its words right instead of 0.78 (no
# other of eight fell behind by more).
_SLACK = 0.02


def first_guess(listed: tuple[str, ...], earlier: str | None) -> tuple[str, ...]:
    """The languages to read a page with at first: at most two, while all are of Latin print.

    Pages of other scripts tell nothing in the wrong language, so with one of those on the list all are read at once.

    Args:
        listed: OCR_LANGUAGES, most likely first.
        earlier: the language of an earlier page of the file, None where it is not known.
    """
    if len(listed) <= _AT_ONCE or not is_latin_print(listed):
        return listed
    return listed[:_AT_ONCE] if earlier is None else _languages_for(earlier, listed)


def second_guess(result: OcrResult, read_with: Sequence[str], listed: tuple[str, ...]) -> tuple[str, ...]:
    """The languages to read a page with once more: those for its text; empty where it was read with them.

    They follow from the text alone, so that a page reads the same whatever the first guess was.
    """
    if set(listed) <= set(read_with) or len(result.words) < _LEAST_WORDS:
        return ()
    language = detect(" ".join(word.text for word in result.words))
    if language is None or language.score < _SURE or language.code not in listed:
        return ()
    languages = _languages_for(language.code, listed)
    return () if languages == tuple(read_with) else languages


async def recognize_in_its_language(
    ocr: OcrService, image: OcrImage, listed: tuple[str, ...], engine: OcrEngineName, urgency: Urgency
) -> OcrResult:
    """The words of a page, read again by Tesseract where its text turns out to be in another language of ``listed``.

    RapidOCR's result is replaced only by one that Tesseract is sure of: it reads all Latin print alike.

    Args:
        image: with the languages of `first_guess`.

    Raises: what `OcrService.recognize` raises.
    """
    first = await ocr.recognize(image, engine, urgency)
    again = ocr.tesseract_of(engine)
    if again is None:
        return first
    languages = await asyncio.to_thread(second_guess, first, image.languages, listed)
    if not languages:
        return first
    named = ",".join(languages)
    try:
        second = await ocr.recognize(replace(image, languages=languages), again, urgency)
    except (Overloaded, InferenceFailed, InvalidField) as error:  # no data: RapidOCR may know the language
        return replace(first, why=f"{first.why}; it could not be read again with {named}: {error}")
    if _is_no_worse(second, first):
        return replace(second, why=f"Tesseract read it again with {named}, for the language of its text; {first.why}")
    return replace(first, why=f"{first.why}; Tesseract read it again with {named}, which was no better")


def _languages_for(language: str, listed: tuple[str, ...]) -> tuple[str, ...]:
    usual = listed[:_AT_ONCE]
    same_data = tesseract_code(language) in map(tesseract_code, usual)
    return usual if same_data or language not in listed else (language, listed[0])


def _is_no_worse(second: OcrResult, first: OcrResult) -> bool:
    if first.engine.partition(" ")[0] != second.engine.partition(" ")[0]:
        return not reason_for_doubt(second)
    return (second.confidence or 0.0) > (first.confidence or 0.0) - _SLACK
