"""Which engine's result is used for a page."""

import pytest

from backend.ocr.engine_choice import accept_first, choose_result, reason_for_doubt
from backend.ocr.records import OcrResult, OcrWord, PixelBox

BOX = PixelBox(0, 0, 9, 9)


def result(*confidences: float, page: float | None = None, engine: str = "tesseract") -> OcrResult:
    """A page with a word of four letters for each confidence."""
    words = tuple(OcrWord("word", BOX, confidence) for confidence in confidences)
    mean = sum(confidences) / len(confidences) if confidences else None
    return OcrResult(((words,),), 0, page if page is not None else mean, engine, engine, ())


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        pytest.param(result(*[0.96] * 60), "", id="clean-print"),
        pytest.param(result(*[0.96] * 200, 0.3), "", id="one-doubtful-word-in-two-hundred"),
        pytest.param(result(*[0.96] * 50, 0.3), "confidence 0.95, 2% of its words doubtful", id="one-in-fifty"),
        pytest.param(result(*[0.91] * 60), "confidence 0.91, 0% of its words doubtful", id="unsure-everywhere"),
        pytest.param(result(), "found no word", id="nothing-read"),
    ],
)
def test_doubt(first, expected):
    """Low confidences of Tesseract are a reason to run RapidOCR as well."""
    assert expected in reason_for_doubt(first)
    assert bool(expected) == bool(reason_for_doubt(first))


def test_a_confident_result_says_why():
    assert "no other engine was asked" in accept_first(result(0.96)).why


def test_rapidocr_wins_with_about_as_many_letters():
    taken = choose_result(result(0.5, 0.9), result(0.99, engine="rapidocr"), "it was unsure")

    assert ("rapidocr", "rapidocr; it was unsure") == (taken.engine, taken.why)


def test_tesseract_wins_when_rapidocr_finds_far_fewer_letters():
    taken = choose_result(result(*[0.85] * 9, 0.1), result(0.99, engine="rapidocr"), "it was unsure")

    assert "tesseract" == taken.engine
    assert "4 letters of 36" in taken.why
