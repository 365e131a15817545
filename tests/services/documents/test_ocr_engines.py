"""Which engines are usable, and an OCR_ENGINE that is not."""

from __future__ import annotations

import pytest

from backend.errors import SetupError
from backend.services.documents import ocr_engines
from backend.services.documents.ocr_engines import load_ocr_engines


@pytest.fixture
def no_tesseract(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ocr_engines, "find_tessdata", lambda _folder: None)


@pytest.mark.usefixtures("no_tesseract")
def test_without_tesseract_auto_is_rapidocr():
    """It starts, and says what is missing and what to do."""
    engines = load_ocr_engines("auto")

    assert ("rapidocr",) == engines.names
    assert engines.any_tesseract is None
    assert "install tesseract-ocr" in engines.why


@pytest.mark.usefixtures("no_tesseract")
@pytest.mark.parametrize("default", ["tesseract", "pytesseract"])
def test_an_unusable_default_stops_the_start(default):
    """With the reason and the usable engines; no other engine replaces it."""
    with pytest.raises(SetupError, match=f"OCR_ENGINE={default}.*install tesseract-ocr.*There are: rapidocr"):
        load_ocr_engines(default)


@pytest.mark.tesseract
def test_without_rapidocr_auto_is_tesseract(monkeypatch):
    monkeypatch.setattr(ocr_engines, "rapidocr_version", lambda: "")
    engines = load_ocr_engines("auto")

    assert engines.rapidocr is None
    assert "Tesseract reads every page" in engines.why
    with pytest.raises(SetupError, match="rapidocr"):
        load_ocr_engines("rapidocr")


@pytest.mark.tesseract
def test_with_both_auto_chooses_by_page():
    """Both ways to run Tesseract and RapidOCR; the languages of all."""
    engines = load_ocr_engines("auto")

    assert ("tesseract", "pytesseract", "rapidocr") == engines.names
    assert "Tesseract reads first" in engines.why
    assert {"es", "en", "fr", "zh"} <= set(engines.languages)
