"""When a few lines are enough to leave the page to RapidOCR."""

import pytest

from backend.ocr.engine_choice import reason_to_leave
from backend.ocr.records import OcrWord, PixelBox
from backend.ocr.tesseract_words import TesseractResult, confidence_of


def lines(*confidences: float) -> TesseractResult:
    words = tuple(OcrWord("palabra", PixelBox(0, 0, 9, 9), confidence) for confidence in confidences)
    blocks = ((words,),) if words else ()
    return TesseractResult(blocks, confidence_of(blocks))


@pytest.mark.parametrize(
    ("read", "ink_share", "reason"),
    [
        pytest.param(lines(*[0.95] * 60), 0.2, "", id="sure"),
        pytest.param(lines(*[0.95] * 59, 0.3), 1.0, "", id="one-odd-word"),
        pytest.param(lines(*[0.97] * 97, *[0.5] * 3), 0.2, "", id="the-rest-may-have-none"),
        pytest.param(lines(*[0.97] * 97, *[0.5] * 3), 0.5, "3 of 100 words", id="already-too-many-for-the-page"),
        pytest.param(lines(*[0.8] * 60), 0.2, "confidence 0.80", id="unsure"),
        pytest.param(lines(), 0.2, "no word", id="nothing"),
    ],
)
def test_reason_to_leave(read: TesseractResult, ink_share: float, reason: str):
    """The share of doubtful words is that of the whole page: more than it may have are enough before its end."""
    assert bool(reason) == bool(reason_to_leave(read, ink_share))
    assert reason in reason_to_leave(read, ink_share)
