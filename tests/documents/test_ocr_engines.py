"""Which engines are usable, and an OCR_ENGINE that is not."""

from pathlib import Path

import pytest

from backend.documents import ocr_engines
from backend.documents.ocr_engines import (
    OcrEngines,
    TesseractInfo,
    check_default_languages,
    load_ocr_engines,
    print_languages,
)
from backend.errors import InvalidField, SetupError
from backend.ocr import tessdata
from backend.ocr.records import OcrImage
from tests.fakes import EchoEngine
from tests.ocr.drawn_pages import TEXT, drawn_page, pixels_of


@pytest.fixture
def no_tesseract(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ocr_engines, "find_tessdata", lambda *_: None)


@pytest.mark.usefixtures("no_tesseract")
def test_without_tesseract_auto_is_rapidocr():
    """It starts, and says what is missing and what that costs."""
    engines = load_ocr_engines("auto")

    assert ("rapidocr",) == engines.names
    assert engines.any_tesseract is None
    assert "RapidOCR reads every page, clean print in twice the time: Tesseract's language data" in engines.why


@pytest.mark.usefixtures("no_tesseract")
@pytest.mark.parametrize("default", ["tesseract", "pytesseract"])
def test_an_unusable_default_stops_the_start(default):
    """With the reason and the usable engines; no other engine replaces it."""
    with pytest.raises(
        SetupError, match=f"OCR_ENGINE={default}.*language data cannot be unpacked.*There are: rapidocr"
    ):
        load_ocr_engines(default)


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


def test_default_languages_that_nobody_reads_stop_the_start():
    """Each scan would be refused otherwise. Without any engine the texts of PDFs are still read."""
    engine = EchoEngine("ocr_tesseract")
    engines = OcrEngines(TesseractInfo(engine, engine, engine, "in a test", "tesseract 5", ("en", "es")))

    check_default_languages(("es", "en"), engines)
    check_default_languages(("spa",), OcrEngines())
    with pytest.raises(SetupError, match="OCR_LANGUAGES: spa, ru cannot be read here, only en, es"):
        check_default_languages(("es", "spa", "ru"), engines)


@pytest.mark.slow  # unpacks the data, and loads three languages
async def test_a_machine_without_tesseract_reads_with_both_engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Neither the program nor data of the machine, and nothing unpacked at the installation: a fresh clone."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(tessdata, "USUAL_FOLDERS", ())
    monkeypatch.setattr(tessdata, "INSTALLED", tmp_path / "installed")

    engines = load_ocr_engines("auto", keep_in=tmp_path / "state")

    assert ("tesseract", "rapidocr") == engines.names
    assert "Tesseract reads first, RapidOCR the pages on which it is not sure" == engines.why
    assert {"es", "en", "ca", "gl", "eu", "fr", "pt", "it", "de"} <= set(engines.tesseract.languages)
    prepare, read = engines.tesseract.prepare, engines.tesseract.read
    image = OcrImage(pixels_of(drawn_page()), None, ("es", "en", "ca"), 60.0)
    [page] = prepare.finish(prepare.forward(prepare.prepare([image])))
    result = page.joined(read.finish(read.forward(read.prepare(page.parts))))
    assert TEXT == " ".join(word.text for block in result.blocks for line in block for word in line)


@pytest.mark.parametrize(
    ("written", "codes"),
    [
        ("es en", ("es", "en")), ("spa eng", ("es", "en")), ("es-ES en_US", ("es", "en")),
        ("Spanish english", ("es", "en")), ("chi_sim", ("zh",)), ("eu eus spa es", ("eu", "es")), ("", ()),
    ],
)  # fmt: skip
def test_languages_as_clients_write_them(written: str, codes: tuple[str, ...]):
    """Codes of ISO 639-1 and 639-2 with or without a region, Tesseract's and English names; each once."""
    assert codes == print_languages(written.split())


@pytest.mark.parametrize("word", ["tlh", "klingon", "script/Latin", "12"])
def test_words_that_are_no_language(word: str):
    """Refused whether or not a page is to be recognised, about the field that the client sent."""
    with pytest.raises(InvalidField, match=f"ocr_lang: '{word}' is no language"):
        print_languages(["es", word], "ocr_lang")
