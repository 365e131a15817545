"""Languages have one code in requests and another in the names of Tesseract's files."""

from __future__ import annotations

from backend.engines.ocr.languages import TESSERACT_CODES, iso_codes, tesseract_code


def test_every_code_has_one_counterpart():
    assert tuple(TESSERACT_CODES) == iso_codes(TESSERACT_CODES.values())
    assert "spa" == tesseract_code("es")
    assert tesseract_code("spa") is None


def test_iso_codes_leave_out_what_is_no_language():
    """Orientation data and scripts lie among the languages."""
    assert ("en", "es") == iso_codes(["eng", "osd", "Latin", "spa"])
