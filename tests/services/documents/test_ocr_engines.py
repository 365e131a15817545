"""Which engines there are, and a wish that cannot be granted."""

from __future__ import annotations

import pytest

from backend.errors import SetupError
from backend.services.documents import ocr_engines
from backend.services.documents.ocr_engines import load_ocr_engines


@pytest.fixture
def no_tesseract(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without Tesseract's data."""
    monkeypatch.setattr(ocr_engines, "find_tessdata", lambda _folder: None)


@pytest.mark.usefixtures("no_tesseract")
def test_without_tesseract_auto_is_rapidocr():
    """It starts, and says what is missing and what to do."""
    engines = load_ocr_engines("auto")

    assert ("rapidocr",) == engines.names
    assert engines.first is None
    assert "install tesseract-ocr" in engines.why


@pytest.mark.usefixtures("no_tesseract")
@pytest.mark.parametrize("wish", ["tesseract", "pytesseract"])
def test_a_wish_that_cannot_be_granted_stops_the_start(wish):
    """With the reason and what there is; nothing else is taken in its place."""
    with pytest.raises(SetupError, match=f"OCR_ENGINE={wish}.*install tesseract-ocr.*There are: rapidocr"):
        load_ocr_engines(wish)


@pytest.mark.tesseract
def test_without_rapidocr_auto_is_tesseract(monkeypatch):
    """The other way round."""
    monkeypatch.setattr(ocr_engines, "rapid_version", lambda: "")
    engines = load_ocr_engines("auto")

    assert engines.rapid is None
    assert "Tesseract reads every page" in engines.why
    with pytest.raises(SetupError, match="rapidocr"):
        load_ocr_engines("rapidocr")


@pytest.mark.tesseract
def test_with_both_there_is_a_choice():
    """Both ways to run Tesseract and RapidOCR; the languages of all."""
    engines = load_ocr_engines("auto")

    assert ("tesseract", "pytesseract", "rapidocr") == engines.names
    assert "Tesseract reads first" in engines.why
    assert {"es", "en", "fr", "zh"} <= set(engines.languages)
