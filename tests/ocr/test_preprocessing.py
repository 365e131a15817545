"""Each preprocessing step runs only where it is needed, and boxes can be mapped back to the page."""

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image, ImageDraw

from backend.ocr.preprocessing import MAX_SIDE_PX, ImageStats, measure, prepare, rotated, to_gray, to_original_box
from backend.ocr.records import PixelBox
from tests.ocr.drawn_pages import drawn_page, pixels_of, skewed

GOOD = ImageStats(
    contrast=255, inverted=False, shade=0, glyphs=500, glyph_height=24, specks=0.1, skew=0.0, sideways=False
)


def marked_page(width_px: int, height: int, box: tuple[int, int, int, int]) -> np.ndarray:
    """A white page with one black rectangle; right and bottom are outside of it."""
    page = Image.new("L", (width_px, height), 255)
    ImageDraw.Draw(page).rectangle((box[0], box[1], box[2] - 1, box[3] - 1), 0)
    return np.asarray(page)


def box_of_ink(gray: np.ndarray) -> PixelBox:
    rows, columns = np.nonzero(gray < 128)
    return PixelBox(columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)


def test_a_clean_page_is_not_changed():
    gray = pixels_of(drawn_page())

    prepared = prepare(gray, measure(gray))

    assert () == prepared.steps
    inner = to_original_box(PixelBox(0, 0, *prepared.gray.shape[::-1]), prepared.back, gray.shape[1], gray.shape[0])
    assert PixelBox(0, 0, gray.shape[1], gray.shape[0]) == inner


@pytest.mark.parametrize(
    ("change", "step"),
    [
        pytest.param({"skew": 3.0}, "deskew -3.0°", id="deskewed"),
        pytest.param({"skew": -7.5}, "deskew 7.5°", id="deskewed-the-other-way"),
        pytest.param({"glyph_height": 8.0}, "enlarge 1.5 times", id="enlarged"),
        pytest.param({"glyph_height": 10.0, "skew": 2.0}, "deskew -2.0°", id="enlarged-and-deskewed"),
        pytest.param({}, None, id="as-it-is"),
    ],
)
def test_boxes_map_back_to_their_ink(change: dict[str, float], step: str | None):
    """To a pixel and a half."""
    box = PixelBox(300, 200, 480, 230)
    page = marked_page(800, 600, box)

    prepared = prepare(page, replace(GOOD, **change))

    assert (step is None) == (prepared.steps == ())
    assert step is None or step in prepared.steps
    mapped = to_original_box(box_of_ink(prepared.gray), prepared.back, 800, 600)
    grown = grown_by(box, change.get("skew", 0.0))
    assert mapped == pytest.approx(grown, abs=1.5)


def grown_by(box: PixelBox, skew: float) -> PixelBox:
    """The upright box after rotation by the skew and back, which enlarges it twice."""
    angle = abs(np.radians(skew))
    for _ in range(2 if skew else 0):
        middle = ((box.left + box.right) / 2, (box.top + box.bottom) / 2)
        width_px, height = box.right - box.left, box.bottom - box.top
        wider = (width_px * np.cos(angle) + height * np.sin(angle)) / 2
        higher = (width_px * np.sin(angle) + height * np.cos(angle)) / 2
        box = PixelBox(middle[0] - wider, middle[1] - higher, middle[0] + wider, middle[1] + higher)
    return box


@pytest.mark.parametrize("degrees", [-6.0, 1.5, 5.0])
def test_deskewing_straightens_lines(degrees: float):
    gray = pixels_of(skewed(drawn_page(), degrees))

    prepared = prepare(gray, measure(gray))

    assert abs(measure(prepared.gray).skew) <= 0.3


def test_light_on_dark_becomes_dark_on_light():
    gray = pixels_of(drawn_page(ink=255, paper=0))

    prepared = prepare(gray, measure(gray))

    assert ("invert",) == prepared.steps
    assert not measure(prepared.gray).inverted


def test_a_shadow_is_removed():
    """Afterwards the paper is evenly bright, and the ink is still dark."""
    light = np.linspace(1.0, 0.3, 900)
    gray = (pixels_of(drawn_page()) * light).astype(np.uint8)

    prepared = prepare(gray, measure(gray))

    assert "even the light" in prepared.steps
    after = measure(prepared.gray)
    assert after.shade < 10
    assert after.contrast > 200


def test_specks_are_removed():
    gray = pixels_of(drawn_page()).copy()
    gray[np.random.default_rng(2).random(gray.shape) < 0.01] = 0

    prepared = prepare(gray, measure(gray))

    assert "remove specks" in prepared.steps
    assert measure(prepared.gray).specks < 1


def test_a_strip_over_tesseracts_limit_is_reduced():
    gray = np.full((40, 50_000), 255, np.uint8)

    prepared = prepare(gray, GOOD)

    assert max(prepared.gray.shape) == MAX_SIDE_PX
    assert ("reduce 0.64 times",) == prepared.steps


@pytest.mark.parametrize("shape", [(1, 1), (1, 500), (30, 8)])
def test_a_small_crop_is_padded(shape: tuple[int, int]):
    """Tesseract's layout analysis fails on images of a few pixels."""
    prepared = prepare(np.full(shape, 200, np.uint8), GOOD)

    assert min(prepared.gray.shape) >= 64
    assert set(np.unique(prepared.gray)) == {200}


def test_a_large_page_of_specks_is_enlarged_within_limits():
    """Noise looks like tiny letters; a page of it must not become a hundred million pixels."""
    prepared = prepare(np.full((3000, 3000), 255, np.uint8), replace(GOOD, glyph_height=4.0))

    assert 9_000_000 < prepared.gray.size < 12_100_000


@pytest.mark.parametrize("degrees", [0, 90, 180, 270])
def test_rotated_is_clockwise(degrees: int):
    """Pillow rotates counterclockwise."""
    gray = pixels_of(drawn_page())

    assert np.array_equal(np.asarray(Image.fromarray(gray).rotate(-degrees, expand=True)), rotated(gray, degrees))


def test_to_gray():
    """Colours become one channel by their brightness; a gray image shares its memory."""
    colours = np.zeros((2, 3, 3), np.uint8)
    colours[0] = (255, 255, 255)
    colours[1] = (255, 0, 0)

    assert [[255] * 3, [76] * 3] == to_gray(colours).tolist()
    gray = np.zeros((4, 4), np.uint8)
    assert np.shares_memory(gray, to_gray(gray))
