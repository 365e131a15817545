"""The rotation of a page is found by recognising samples, and only in case of doubt."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from numpy.typing import NDArray

from backend.ocr.orientation import Recognize, UprightPage, densest_lines, turn_upright
from backend.ocr.preprocessing import measure, rotated
from backend.ocr.records import Gray, OcrBlocks, OcrWord, PixelBox
from backend.ocr.tesseract_words import TesseractResult
from tests.ocr.drawn_pages import LINES, drawn_page, pixels_of, skewed

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
    "The agreement between both of them", "was signed here", "and shall remain", "in force", "El contrato",
    "se firma",
)  # fmt: skip


def read_upright(pixels: NDArray[np.uint8], recognize: Recognize) -> tuple[UprightPage, OcrBlocks]:
    """The page and its words on it, in the direction in which it is recognised best."""
    page = turn_upright(pixels, DPI, recognize)
    result = recognize(page.gray, page.dpi)
    if page.may_be_rotated(result.confidence) and not page.rotation:
        page = turn_upright(pixels, DPI, recognize, search=True)
        result = recognize(page.gray, page.dpi)
    return page, page.words_on_page(result.blocks)


@pytest.mark.parametrize("degrees", [0, 90, 180, 270])
def test_every_direction(degrees: int):
    """A rotated page is rotated back, and its boxes are those of the upright page."""
    page = pixels_of(drawn_page(LEFT_HEAVY))

    upright, blocks = read_upright(rotated(page, degrees), UprightRecognizer())

    assert (360 - degrees) % 360 == upright.rotation
    assert (f"turn {upright.rotation}°",) * (degrees != 0) == upright.steps
    assert page.shape == upright.size
    rows, columns = np.nonzero(page < 128)
    expected = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
    assert blocks[0][0][0].box == pytest.approx(expected, abs=1)


def test_an_upright_page_needs_no_trial():
    recognizer = UprightRecognizer()

    turn_upright(pixels_of(drawn_page(LEFT_HEAVY)), DPI, recognizer)

    assert [] == recognizer.shown


def test_directions_are_tried_on_samples():
    """On a large page the four trials together cover less than the page."""
    recognizer = UprightRecognizer()
    page = rotated(pixels_of(drawn_page(LEFT_HEAVY * 6)), 180)

    turn_upright(page, DPI, recognizer, search=True)

    assert 4 == len(recognizer.shown)
    assert sum(width_px * height for width_px, height in recognizer.shown) < page.size


@pytest.mark.parametrize(("degrees", "trials"), [pytest.param(270, 1, id="likeliest"), pytest.param(90, 2, id="other")])
def test_a_sure_direction_ends_the_trials(degrees: int, trials: int):
    """On a page with lines that run down, 90 and 270 degrees are tried first."""
    words = tuple(OcrWord("agreement", PixelBox(0, 0, 90, 9), 0.95) for _ in range(9))
    recognizer = UprightRecognizer()

    def recognize(gray: Gray, dpi: float) -> TesseractResult:
        result = recognizer(gray, dpi)
        return TesseractResult(((words,),), 0.95) if result.confidence == 0.95 else result

    page = turn_upright(rotated(pixels_of(drawn_page(LEFT_HEAVY)), degrees), DPI, recognize)

    assert (360 - degrees, trials) == (page.rotation, len(recognizer.shown))


def test_low_confidence_in_every_direction_keeps_the_rotation():
    """Handwriting and pictures are no reason to rotate a page."""
    calls: list[int] = []

    def recognize(gray: Gray, dpi: float) -> TesseractResult:
        calls.append(1)
        return TesseractResult((((OcrWord("x", PixelBox(1, 1, 5, 5), 0.55),),),), 0.3)

    page = turn_upright(pixels_of(drawn_page()), DPI, recognize, search=True)

    assert (0, 4) == (page.rotation, len(calls))


def test_a_skewed_and_sideways_page():
    """Boxes lie on the rotated page, with its skew."""
    upright = skewed(drawn_page(LEFT_HEAVY), 3.0)

    page, blocks = read_upright(pixels_of(upright.rotate(90, expand=True)), UprightRecognizer())

    assert 90 == page.rotation
    assert page.steps[0] == "turn 90°"
    assert page.steps[1].startswith("deskew -3")
    rows, columns = np.nonzero(pixels_of(upright) < 128)
    box = blocks[0][0][0].box
    assert box.left <= columns.min() + 2
    assert box.top <= rows.min() + 2
    assert box.right >= columns.max() - 2
    assert box.bottom >= rows.max() - 2


@pytest.mark.parametrize("shape", [(1, 1), (400, 300)])
def test_a_blank_page_is_not_recognised(shape: tuple[int, int]):
    noise = np.random.default_rng(3).integers(246, 254, shape).astype(np.uint8)

    page = turn_upright(noise, DPI, UprightRecognizer(), search=True)

    assert (None, 0, ()) == (page.gray, page.rotation, page.steps)
    assert densest_lines(page) is None


def test_the_densest_lines():
    """Of a page with an empty half, those with print; none of a page that has little more than them."""
    page = np.vstack([np.full((1200, 900), 255, np.uint8), pixels_of(drawn_page(LINES * 2))])
    sample = densest_lines(turn_upright(page, DPI, UprightRecognizer()))

    assert sample is not None
    lines, ink_share = sample
    assert lines.size * 2.5 <= page.size
    assert (lines < 128).sum() / (page < 128).sum() == pytest.approx(ink_share, abs=0.03)
    assert (lines < 128).mean() > (page < 128).mean()
    assert densest_lines(turn_upright(pixels_of(drawn_page(LINES[:4])), DPI, UprightRecognizer())) is None
