"""Whose reading of a page is taken."""

from __future__ import annotations

import pytest

from backend.engines.ocr.engine_choice import better, doubt, kept
from backend.engines.ocr.records import OcrResult, OcrWord, PixelBox

BOX = PixelBox(0, 0, 9, 9)


def reading(*confidences: float, page: float | None = None, engine: str = "tesseract") -> OcrResult:
    """A page with a word of four letters for each confidence."""
    words = tuple(OcrWord("word", BOX, confidence) for confidence in confidences)
    mean = sum(confidences) / len(confidences) if confidences else None
    return OcrResult(((words,),), 0, page if page is not None else mean, engine, engine, ())


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        pytest.param(reading(*[0.96] * 60), "", id="clean-print"),
        pytest.param(reading(*[0.96] * 200, 0.3), "", id="one-doubtful-word-in-two-hundred"),
        pytest.param(reading(*[0.96] * 50, 0.3), "confidence 0.95, 2% of its words doubtful", id="one-in-fifty"),
        pytest.param(reading(*[0.91] * 60), "confidence 0.91, 0% of its words doubtful", id="unsure-everywhere"),
        pytest.param(reading(), "found no word", id="nothing-read"),
    ],
)
def test_doubt(first, expected):
    """Tesseract's confidences tell whether another engine is worth its time."""
    assert expected in doubt(first)
    assert bool(expected) == bool(doubt(first))


def test_a_sure_reading_says_so():
    """The reason reaches the answer."""
    assert "no other engine was asked" in kept(reading(0.96)).why


def test_the_second_engine_is_believed():
    """With about as many letters, or more, RapidOCR's reading is taken, with both reasons."""
    taken = better(reading(0.5, 0.9), reading(0.99, engine="rapidocr"), "it was unsure")

    assert ("rapidocr", "rapidocr; it was unsure") == (taken.engine, taken.why)


def test_but_not_when_it_is_nearly_blind():
    """Far fewer legible letters than Tesseract's: what it could not find it cannot read better."""
    taken = better(reading(*[0.85] * 9, 0.1), reading(0.99, engine="rapidocr"), "it was unsure")

    assert "tesseract" == taken.engine
    assert "4 letters of 36" in taken.why
