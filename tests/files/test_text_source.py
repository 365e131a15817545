"""Choice between text layer and OCR."""

from dataclasses import replace

import pytest

from backend.files.pages import Box, RawWord
from backend.files.records import LayerStats, TextLayer
from backend.files.text_files import choose_source, text_quality
from tests.files.test_letter_bigrams import ENGLISH, SPANISH, scrambled

SOUND = LayerStats(characters=170, objects=30, drawings=5)


def layer(text: str, stats: LayerStats = SOUND) -> TextLayer:
    """A text layer with all words on one line."""
    words = tuple(RawWord(word, Box(0, 0, 1, 1)) for word in text.split())
    return TextLayer(595, 842, 0, ((words,),) if words else (), stats)


@pytest.mark.parametrize(
    ("text", "stats", "expected", "why"),
    [
        pytest.param(SPANISH, SOUND, "text_layer", "its own text of 170 characters is sound", id="sound"),
        pytest.param("", LayerStats(), "text_layer", "the page is blank", id="blank-needs-no-ocr"),
        pytest.param("", LayerStats(objects=1, drawings=1), "ocr", "no text of its own", id="a-scan"),
        pytest.param("7", LayerStats(1, objects=9, drawings=8), "ocr", "has 1 characters", id="a-page-number"),
        pytest.param("Page 7", LayerStats(5, objects=1), "text_layer", "sound", id="little-text-and-nothing-else"),
        pytest.param(
            ENGLISH[:60], replace(SOUND, characters=50, image_ratio=0.95), "ocr", "images cover 95%", id="a-stamp"
        ),
        pytest.param(ENGLISH, replace(SOUND, image_ratio=0.95), "text_layer", "sound", id="text-over-a-picture"),
        pytest.param(
            ENGLISH, replace(SOUND, invisible=170, image_ratio=1.0), "text_layer", "earlier OCR", id="an-ocr-layer"
        ),
        pytest.param(ENGLISH, replace(SOUND, unmapped_ratio=0.3), "ocr", "30% of its glyphs", id="unmapped"),
        pytest.param(ENGLISH, replace(SOUND, unmapped_ratio=0.02), "text_layer", "sound", id="a-few-bullets"),
        pytest.param(ENGLISH, replace(SOUND, replaced=20), "ocr", "12% of its characters", id="replacements"),
        pytest.param(scrambled(ENGLISH, 3), SOUND, "ocr", "as in no language", id="scrambled"),
        pytest.param(
            scrambled(ENGLISH, 3), replace(SOUND, invisible=170, image_ratio=1.0), "ocr", "no language",
            id="a-scrambled-ocr-layer",
        ),
        pytest.param("♠♣♥♦ " * 30, SOUND, "ocr", "neither letters, digits nor punctuation", id="pictures"),
        pytest.param("12.345,67 €  -8,00 % .......... 4711/2024 " * 5, SOUND, "text_layer", "sound", id="numbers"),
        pytest.param("XK-77 QRT/B PZW " * 4, SOUND, "text_layer", "sound", id="too-few-letters-to-judge"),
        pytest.param(" ".join(SPANISH[:120]), SOUND, "ocr", "single letters", id="words-torn-apart"),
        pytest.param("A B C D E F G H " + SPANISH, SOUND, "text_layer", "sound", id="a-few-single-letters"),
        pytest.param("Договор поставки товара между сторонами " * 4, SOUND, "text_layer", "sound", id="another-script"),
    ],
)  # fmt: skip
def test_choose_source(text: str, stats: LayerStats, expected: str, why: str):
    """By what is on the page, whether its glyphs are mapped, and whether its characters are text."""
    chosen = choose_source(layer(text, stats))

    assert expected == chosen.source
    assert why in chosen.why


@pytest.mark.parametrize("requested", ["ocr", "text_layer"])
def test_an_explicit_request_is_followed(requested: str):
    """Whatever the page is like."""
    assert requested == choose_source(layer(SPANISH), requested).source
    assert requested == choose_source(layer("", LayerStats(objects=1)), requested).source


def test_a_layer_as_a_page():
    """The same words, with the reason."""
    page = layer("Factura número 7").page(3, "because")

    assert (3, "Factura número 7", "text_layer", "because", "pdfium") == (
        page.number,
        page.text,
        page.source,
        page.why,
        page.engine,
    )


def test_quality_of_an_empty_text():
    """No division by zero."""
    assert text_quality("").odd_ratio == 0
