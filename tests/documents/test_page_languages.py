"""A page is read with two languages at most, and once more with its own where its text is in another."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from backend.documents.extraction import first_guess, recognize_in_its_language, second_guess
from backend.errors import InferenceFailed, InvalidField, Overloaded
from backend.lanes.inference import Urgency
from backend.ocr.records import OcrImage, OcrResult, OcrWord, PixelBox

LISTED = ("es", "en", "fr", "gl")
FRENCH = (
    "Le conseil municipal se réunit chaque mois à la mairie pour examiner les demandes des habitants, et les décisions "
    "sont affichées le lendemain sur la porte."
)
SPANISH = (
    "El ayuntamiento se reúne cada mes para examinar las peticiones de los vecinos, y sus decisiones se publican al "
    "día siguiente en la puerta de la casa consistorial."
)


def result_of(text: str, confidence: float = 0.95, engine: str = "tesseract 5") -> OcrResult:
    line = tuple(OcrWord(word, PixelBox(0, 0, 9, 9), confidence) for word in text.split())
    return OcrResult(((line,),), 0, confidence if line else None, engine, engine, ())


@dataclass
class ScriptedOcr:
    """Answers with ``results`` in order, or raises them."""

    results: list[OcrResult | Exception]
    tesseract: str | None = "tesseract"
    asked: list[tuple[tuple[str, ...], str]] = field(default_factory=list)

    async def recognize(self, image: OcrImage, engine: str, urgency: Urgency) -> OcrResult:
        self.asked.append((image.languages, engine))
        result = self.results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    def tesseract_of(self, engine: str) -> str | None:
        return self.tesseract


async def read(ocr: Any, *languages: str, listed: tuple[str, ...] = LISTED) -> OcrResult:
    image = OcrImage(np.zeros((9, 9), np.uint8), None, languages, 9.0)
    return await recognize_in_its_language(ocr, image, listed, "auto", Urgency())


@pytest.mark.parametrize(
    ("listed", "earlier", "first"),
    [
        pytest.param(("es", "en"), "fr", ("es", "en"), id="two-are-always-read-together"),
        pytest.param(LISTED, None, ("es", "en"), id="the-first-two"),
        pytest.param(LISTED, "fr", ("fr", "es"), id="that-of-an-earlier-page"),
        pytest.param(LISTED, "en", ("es", "en"), id="an-earlier-page-in-one-of-two"),
        pytest.param(("es", "en", "eu"), "eu", ("es", "en"), id="Basque-has-the-data-of-Spanish"),
        pytest.param(LISTED, "it", ("es", "en"), id="an-earlier-page-in-an-unlisted-one"),
        pytest.param(("es", "en", "ru"), None, ("es", "en", "ru"), id="another-script-tells-nothing"),
    ],
)
def test_the_first_guess(listed: tuple[str, ...], earlier: str | None, first: tuple[str, ...]):
    assert first == first_guess(listed, earlier)


@pytest.mark.parametrize(
    ("text", "read_with", "listed", "second"),
    [
        pytest.param(FRENCH, ("es", "en"), LISTED, ("fr", "es"), id="another-listed-language"),
        pytest.param(SPANISH, ("es", "en"), LISTED, (), id="the-guess-was-right"),
        pytest.param(FRENCH, ("fr", "es"), LISTED, (), id="that-of-an-earlier-page-was-right"),
        pytest.param(SPANISH, ("fr", "es"), LISTED, ("es", "en"), id="back-to-the-first-two"),
        pytest.param(FRENCH, ("es", "en"), ("es", "en", "pt"), (), id="an-unlisted-language"),
        pytest.param(" ".join(FRENCH.split()[:12]), ("es", "en"), LISTED, (), id="too-few-words"),
        pytest.param("", ("es", "en"), LISTED, (), id="no-words"),
        pytest.param(FRENCH, LISTED, LISTED, (), id="all-were-asked-for"),
    ],
)
def test_the_second_guess(text: str, read_with: tuple[str, ...], listed: tuple[str, ...], second: tuple[str, ...]):
    assert second == second_guess(result_of(text), read_with, listed)


async def test_a_page_in_another_listed_language_is_read_again():
    """Once, and the answer says so. Its own language may be a little less sure of itself."""
    ocr = ScriptedOcr([result_of(FRENCH, 0.97), result_of(FRENCH, 0.96)])
    result = await read(ocr, "es", "en")

    assert [(("es", "en"), "auto"), (("fr", "es"), "tesseract")] == ocr.asked
    assert 0.96 == result.confidence
    assert "Tesseract read it again with fr,es, for the language of its text" in result.why


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(result_of(FRENCH, 0.93), result_of(FRENCH, 0.88), id="far-less-sure"),
        pytest.param(result_of(FRENCH, 0.93), result_of(""), id="no-words"),
        pytest.param(result_of(FRENCH, 0.8, "rapidocr 3"), result_of(FRENCH, 0.9), id="no-surer-than-RapidOCR"),
    ],
)
async def test_the_first_reading_stays_where_the_second_is_worse(first: OcrResult, second: OcrResult):
    result = await read(ScriptedOcr([first, second]), "es", "en")

    assert first == replace(result, why=first.why)
    assert "Tesseract read it again with fr,es, which was no better" in result.why


async def test_rapidocr_gives_way_to_a_sure_reading():
    """Its doubt of Tesseract was a doubt of the wrong language."""
    ocr = ScriptedOcr([result_of(FRENCH, 0.97, "rapidocr 3"), result_of(FRENCH, 0.95)])

    assert "tesseract 5" == (await read(ocr, "es", "en")).engine


@pytest.mark.parametrize(
    "error", [InferenceFailed("broken"), Overloaded(9, 9, 1.0, "full"), InvalidField("no data for fr")]
)
async def test_a_second_reading_that_fails_is_no_loss(error: Exception):
    result = await read(ScriptedOcr([result_of(FRENCH), error]), "es", "en")

    assert result_of(FRENCH).words == result.words
    assert f"it could not be read again with fr,es: {error}" in result.why


async def test_where_tesseract_does_not_read_nothing_is_read_again():
    ocr = ScriptedOcr([result_of(FRENCH, engine="rapidocr 3")], tesseract=None)

    assert "rapidocr 3" == (await read(ocr, "es", "en")).why


async def test_the_languages_of_a_request_are_read_once():
    ocr = ScriptedOcr([result_of(FRENCH)])
    await read(ocr, "es", "en", listed=("es", "en"))

    assert 1 == len(ocr.asked)
