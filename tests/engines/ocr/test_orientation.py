"""The rotation of a page is found by recognising samples, and only in case of doubt."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from backend.engines.ocr.image_stats import measure
from backend.engines.ocr.orientation import recognize_upright
from backend.engines.ocr.preprocessing import rotated
from backend.engines.ocr.records import Gray, OcrWord, PixelBox
from backend.engines.ocr.tesseract_words import TesseractResult
from tests.engines.ocr.drawn_pages import drawn_page, pixels_of, skewed

DPI = 200.0


@dataclass
class UprightRecognizer:
    """Recognises a page of more ink in its left half with high confidence when upright, else with low confidence.

    Records the sizes of the images it got.
    """

    shown: list[tuple[int, int]] = field(default_factory=list)

    def __call__(self, gray: Gray, dpi: float) -> TesseractResult:
        self.shown.append((gray.shape[1], gray.shape[0]))
        assert dpi == pytest.approx(measure(gray).glyph_height * 10, rel=0.3)
        ink = (gray < 128).astype(np.float64)
        across = not measure(gray).sideways
        left_first = ink[:, : gray.shape[1] // 2].sum() > ink[:, gray.shape[1] // 2 :].sum()
        confidence = 0.95 if across and left_first else 0.3
        rows, columns = np.nonzero(ink)
        box = PixelBox(columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
        return TesseractResult((((OcrWord("contract", box, confidence),),),), confidence)


LEFT_HEAVY = (
    "The agreement between both of them",
    "was signed here",
    "and shall remain",
    "in force",
    "El contrato",
    "se firma",
)


@pytest.mark.parametrize("degrees", [0, 90, 180, 270])
def test_every_direction(degrees: int):
    """A rotated page is rotated back, and its boxes are those of the upright page."""
    page = pixels_of(drawn_page(LEFT_HEAVY))

    result = recognize_upright(rotated(page, degrees), DPI, UprightRecognizer())

    assert (360 - degrees) % 360 == result.rotation
    assert (f"turn {result.rotation}°",) * (degrees != 0) == result.steps
    assert result.confidence == 0.95
    rows, columns = np.nonzero(page < 128)
    expected = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
    assert result.blocks[0][0][0].box == pytest.approx(expected, abs=1)


def test_an_upright_page_is_recognised_once():
    recognizer = UprightRecognizer()
    page = pixels_of(drawn_page(LEFT_HEAVY))

    recognize_upright(page, DPI, recognizer)

    assert [page.shape[::-1]] == recognizer.shown


def test_directions_are_tried_on_samples():
    """On a large page the four trials together cover less than the page."""
    recognizer = UprightRecognizer()
    page = rotated(pixels_of(drawn_page(LEFT_HEAVY * 6)), 180)

    recognize_upright(page, DPI, recognizer)

    first, *trials, last = [width_px * height for width_px, height in recognizer.shown]
    assert first == last == page.size
    assert 4 == len(trials)
    assert sum(trials) < page.size


def test_low_confidence_in_every_direction_keeps_the_rotation():
    """Handwriting and pictures are no reason to rotate a page."""
    calls: list[int] = []

    def recognize(gray: Gray, dpi: float) -> TesseractResult:
        calls.append(1)
        return TesseractResult((((OcrWord("x", PixelBox(1, 1, 5, 5), 0.55),),),), 0.3)

    result = recognize_upright(pixels_of(drawn_page()), DPI, recognize)

    assert (0, 0.3, 5) == (result.rotation, result.confidence, len(calls))


def test_a_skewed_and_sideways_page():
    """Boxes lie on the rotated page, with its skew."""
    upright = skewed(drawn_page(LEFT_HEAVY), 3.0)
    page = pixels_of(upright.rotate(90, expand=True))

    result = recognize_upright(page, DPI, UprightRecognizer())

    assert 90 == result.rotation
    assert result.steps[0] == "turn 90°"
    assert result.steps[1].startswith("deskew -3")
    rows, columns = np.nonzero(pixels_of(upright) < 128)
    box = result.blocks[0][0][0].box
    assert box.left <= columns.min() + 2
    assert box.top <= rows.min() + 2
    assert box.right >= columns.max() - 2
    assert box.bottom >= rows.max() - 2


@pytest.mark.parametrize("shape", [(1, 1), (400, 300)])
def test_a_blank_page_is_not_recognised(shape: tuple[int, int]):
    def recognize(gray: Gray, dpi: float) -> TesseractResult:
        raise AssertionError("recognize")

    noise = np.random.default_rng(3).integers(246, 254, shape).astype(np.uint8)

    result = recognize_upright(noise, DPI, recognize)

    assert ((), 0, None, ()) == (result.blocks, result.rotation, result.confidence, result.steps)
