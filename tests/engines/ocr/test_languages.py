"""Languages have one name in requests and another in Tesseract's files."""

from __future__ import annotations

import pytest

from backend.engines.ocr.languages import TESSERACT_CODES, iso_code, iso_codes, split_languages, tesseract_code


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("es", "es", id="as-it-is"),
        pytest.param(" EN ", "en", id="blanks-and-capitals"),
        pytest.param("es-MX", "es", id="a-region"),
        pytest.param("pt_BR", "pt", id="a-region-as-locales-write-it"),
        pytest.param("spa", "es", id="tesseracts-name"),
        pytest.param("chi_sim", "zh", id="tesseracts-name-with-a-script"),
        pytest.param("xx", None, id="no-language"),
        pytest.param("", None, id="nothing"),
    ],
)
def test_iso_code(name: str, expected: str | None):
    """Every spelling that users of either name send is understood."""
    assert expected == iso_code(name)


def test_names_go_there_and_back():
    """No two languages share a name."""
    assert list(TESSERACT_CODES) == [iso_code(code) for code in TESSERACT_CODES.values()]
    assert "spa" == tesseract_code("es")
    assert tesseract_code("spa") is None


def test_iso_codes_leave_out_what_is_no_language():
    """Orientation data and scripts lie among the languages."""
    assert ("en", "es") == iso_codes(["eng", "osd", "Latin", "spa"])


@pytest.mark.parametrize("wish", ["es,en", "es+en", " es, en ", "es en es"])
def test_split_languages(wish: str):
    """Commas, blanks and Tesseract's plus all separate; a language said twice counts once."""
    assert ("es", "en") == split_languages(wish)
