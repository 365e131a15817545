"""Which way is up is found by reading a little in each direction, and only where there is doubt."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from backend.engines.ocr.image_stats import look
from backend.engines.ocr.orientation import read_upright
from backend.engines.ocr.preprocessing import turned
from backend.engines.ocr.records import Gray, OcrWord, PixelBox
from backend.engines.ocr.tesseract_words import Reading
from tests.engines.ocr.drawn_pages import drawn_page, pixels_of, skewed

DPI = 200.0


@dataclass
class OneWayReader:
    """Reads the page well as it was drawn, badly in every other direction; keeps the sizes that it was shown.

    A page drawn by `drawn_page` has its first letters at the top left: more ink left of the middle than right of it,
    and more above than below once the last lines are left out.
    """

    shown: list[tuple[int, int]] = field(default_factory=list)

    def __call__(self, gray: Gray, dpi: float) -> Reading:
        self.shown.append((gray.shape[1], gray.shape[0]))
        assert dpi == pytest.approx(look(gray).glyph_height * 10, rel=0.3)
        ink = (gray < 128).astype(np.float64)
        across = not look(gray).sideways
        left_first = ink[:, : gray.shape[1] // 2].sum() > ink[:, gray.shape[1] // 2 :].sum()
        confidence = 0.95 if across and left_first else 0.3
        rows, columns = np.nonzero(ink)
        box = PixelBox(columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
        return Reading((((OcrWord("contract", box, confidence),),),), confidence)


LEFT_HEAVY = (
    "The agreement between both of them",
    "was signed here",
    "and shall remain",
    "in force",
    "El contrato",
    "se firma",
)


@pytest.mark.parametrize("lies", [0, 90, 180, 270])
def test_every_direction(lies: int):
    """A page that was turned clockwise is turned on until it stands, and its words are told where they then are."""
    page = pixels_of(drawn_page(LEFT_HEAVY))

    found = read_upright(turned(page, lies), DPI, OneWayReader())

    assert (360 - lies) % 360 == found.rotation
    assert (f"turn {found.rotation}°",) * (lies != 0) == found.steps
    assert found.confidence == 0.95
    rows, columns = np.nonzero(page < 128)
    expected = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
    assert found.blocks[0][0][0].box == pytest.approx(expected, abs=1)


def test_an_upright_page_is_read_once():
    """Nobody pays for a doubt that is not there."""
    reader = OneWayReader()
    page = pixels_of(drawn_page(LEFT_HEAVY))

    read_upright(page, DPI, reader)

    assert [page.shape[::-1]] == reader.shown


def test_directions_are_asked_of_a_part():
    """On a large page the four trials together see less than the page once."""
    reader = OneWayReader()
    page = turned(pixels_of(drawn_page(LEFT_HEAVY * 6)), 180)

    read_upright(page, DPI, reader)

    first, *trials, last = [width_px * height for width_px, height in reader.shown]
    assert first == last == page.size
    assert 4 == len(trials)
    assert sum(trials) < page.size


def test_a_page_read_badly_in_every_direction_stays_as_it_is():
    """Handwriting and pictures are no reason to turn a page."""
    calls: list[int] = []

    def read(gray: Gray, dpi: float) -> Reading:
        calls.append(1)
        return Reading((((OcrWord("x", PixelBox(1, 1, 5, 5), 0.55),),),), 0.3)

    found = read_upright(pixels_of(drawn_page()), DPI, read)

    assert (0, 0.3, 5) == (found.rotation, found.confidence, len(calls))


def test_a_skewed_page_on_its_side():
    """Turned and deskewed together, words lie on the turned, undeskewed page."""
    upright = skewed(drawn_page(LEFT_HEAVY), 3.0)
    page = pixels_of(upright.rotate(90, expand=True))

    found = read_upright(page, DPI, OneWayReader())

    assert 90 == found.rotation
    assert found.steps[0] == "turn 90°"
    assert found.steps[1].startswith("deskew -3")
    rows, columns = np.nonzero(pixels_of(upright) < 128)
    box = found.blocks[0][0][0].box
    assert box.left <= columns.min() + 2
    assert box.top <= rows.min() + 2
    assert box.right >= columns.max() - 2
    assert box.bottom >= rows.max() - 2


@pytest.mark.parametrize("shape", [(1, 1), (400, 300)])
def test_a_blank_page_is_not_read(shape: tuple[int, int]):
    """Empty paper, with the noise that scanners have, costs no recognition."""

    def read(gray: Gray, dpi: float) -> Reading:
        raise AssertionError("read")

    noise = np.random.default_rng(3).integers(246, 254, shape).astype(np.uint8)

    found = read_upright(noise, DPI, read)

    assert ((), 0, None, ()) == (found.blocks, found.rotation, found.confidence, found.steps)
