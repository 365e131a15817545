"""From a map of likely text to level crops: boxes where the text is, strips that follow the line."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from backend.engines.ocr.curved_lines import shift
from backend.engines.ocr.text_boxes import CROP_HEIGHT_PX, Line, cut, find_lines, is_tall, turned


def drawn(*lines: np.ndarray, thickness: int = 8, size: tuple[int, int] = (200, 400)) -> np.ndarray:
    """A map on which lines (points of x and y) are sure text."""
    likely = np.zeros(size, np.float32)
    for points in lines:
        cv2.polylines(likely, [np.round(points).astype(np.int32)], isClosed=False, color=1.0, thickness=thickness)
    return likely


def straight(left: float, top: float, right: float, bottom: float) -> np.ndarray:
    return np.array([[left, top], [right, bottom]])


def wave() -> np.ndarray:
    x = np.linspace(40, 360, 60)
    return np.stack([x, 100 + 14 * np.sin(x / 60)], axis=1)


def test_a_box_is_grown_and_in_pixels_of_the_page():
    """The network sees the core of a line; what is cut is the line, at the page's scale."""
    [line] = find_lines(drawn(straight(50, 100, 350, 100)), 2.0, 3.0)
    left, top = line.quad.min(axis=0)
    right, bottom = line.quad.max(axis=0)

    assert left < 2 * 46
    assert right > 2 * 354
    assert top < 3 * 95
    assert bottom > 3 * 105
    assert 3 * 100 == pytest.approx((top + bottom) / 2, abs=4)
    assert line.bend is None


def test_specks_and_unsure_places_are_no_lines():
    """Too small, or likely text nowhere inside."""
    speck = drawn(straight(50, 50, 51, 50), thickness=1)
    unsure = drawn(straight(50, 100, 350, 100)) * 0.4

    assert [] == find_lines(speck, 1, 1)
    assert [] == find_lines(unsure, 1, 1)


def test_corners_begin_at_the_top_left_of_a_slanting_line():
    """Clockwise from where the text begins."""
    [line] = find_lines(drawn(straight(50, 60, 350, 130)), 1, 1)
    top_left, top_right, bottom_right, bottom_left = line.quad

    assert top_left[0] < top_right[0]
    assert bottom_left[0] < bottom_right[0]
    assert top_left[1] < bottom_left[1]
    assert top_right[1] < bottom_right[1]


def test_a_tall_line_is_laid_on_its_side():
    """A line that runs downwards gives a crop as long as the line, not one letter high."""
    page = np.full((400, 200), 255, np.uint8)
    [line] = find_lines(drawn(straight(100, 50, 100, 350), size=(400, 200)), 1, 1)
    [crop] = cut(page, [line])

    assert is_tall(line)
    assert (CROP_HEIGHT_PX, 3) == (crop.pixels.shape[0], crop.pixels.shape[2])
    assert crop.pixels.shape[1] > 5 * CROP_HEIGHT_PX


def test_a_crop_holds_the_line_level():
    """Dark print on a slanting line ends in the middle rows of its strip."""
    points = straight(50, 60, 350, 130)
    page = np.uint8(255 * (1 - drawn(points)))
    [crop] = cut(page, find_lines(drawn(points), 1, 1))
    rows = crop.pixels[:, 40:-40, 0].mean(axis=1)

    assert rows[20:28].max() < 60
    assert rows[[0, -1]].min() > 200


def test_a_bent_line_is_cut_along_its_bend():
    """Print on crumpled paper: the strip follows it, and is as thin as the print."""
    page = np.uint8(255 * (1 - drawn(wave())))
    [line] = find_lines(drawn(wave()), 1, 1)
    [crop] = cut(page, [line])
    rows = crop.pixels[:, 60:-60, 0].mean(axis=1)

    assert line.bend is not None
    assert rows[21:27].max() < 80
    assert rows[[2, -3]].min() > 200


def test_the_place_of_a_bent_line_is_where_the_print_is():
    """The box's middle, moved by the bend, lies on the line."""
    [line] = find_lines(drawn(wave()), 1, 1)
    assert line.bend is not None
    for along in (0.1, 0.4, 0.75):
        left, right = (line.quad[0] + line.quad[3]) / 2, (line.quad[1] + line.quad[2]) / 2
        x, y = left + (right - left) * along + shift(line.quad, line.bend, along)

        assert 100 + 14 * np.sin(x / 60) == pytest.approx(y, abs=2.5)


@pytest.mark.parametrize("turn", [90, 180])
def test_turning_the_page_turns_its_lines(turn):
    """The quad lies where the turned map has the text, and a turn back gives the line again."""
    likely = drawn(straight(30, 40, 250, 40))
    [line] = find_lines(likely, 1, 1)
    [expected] = find_lines(np.ascontiguousarray(np.rot90(likely, -turn // 90)), 1, 1)

    np.testing.assert_allclose(turned(line, turn, 400, 200).quad, expected.quad, atol=2.5)


def test_a_bend_is_turned_along():
    """Upside down, what sank rises, and the end is the beginning."""
    quad = np.array([[0, 0], [90, 0], [90, 10], [0, 10]], np.float32)
    line = turned(Line(quad, np.array([1.0, 2.0, 5.0], np.float32)), 180, 100, 100)

    assert line.bend is not None
    assert [-5.0, -2.0, -1.0] == line.bend.tolist()
