"""Languages have one code in requests and another in the names of Tesseract's files."""

from backend.ocr.tessdata import TESSERACT_CODES, iso_codes


def test_every_code_has_its_counterpart():
    assert set(TESSERACT_CODES) == set(iso_codes(TESSERACT_CODES.values()))
    assert "spa" == TESSERACT_CODES["es"]
    assert "spa" not in TESSERACT_CODES


def test_iso_codes_leave_out_what_is_no_language():
    """Orientation data and scripts lie among the languages."""
    assert ("en", "fr") == iso_codes(["eng", "osd", "Latin", "fra"])


def test_basque_is_read_with_the_data_of_spanish():
    """Its own data are of no use."""
    assert "spa" == TESSERACT_CODES["eu"]
    assert ("es", "eu") == iso_codes(["spa"])
