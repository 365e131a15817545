"""From maps of text probabilities to boxes and level crops."""

import cv2
import numpy as np
import pytest

from backend.ocr.text_boxes import CROP_HEIGHT_PX, LineShape, bend_offset, crop_lines, find_lines, is_tall, rotate_line


def drawn(*lines: np.ndarray, thickness: int = 8, size: tuple[int, int] = (200, 400)) -> np.ndarray:
    """A map with lines (points of x and y) of probability 1."""
    probabilities = np.zeros(size, np.float32)
    for points in lines:
        cv2.polylines(
            probabilities, [np.round(points).astype(np.int32)], isClosed=False, color=1.0, thickness=thickness
        )
    return probabilities


def straight(left: float, top: float, right: float, bottom: float) -> np.ndarray:
    return np.array([[left, top], [right, bottom]])


def wave() -> np.ndarray:
    x = np.linspace(40, 360, 60)
    return np.stack([x, 100 + 14 * np.sin(x / 60)], axis=1)


def test_a_box_is_grown_and_in_pixels_of_the_page():
    """The network sees the core of a line; the box is that of the line, at the scale of the page."""
    [line] = find_lines(drawn(straight(50, 100, 350, 100)), 2.0, 3.0)
    left, top = line.quad.min(axis=0)
    right, bottom = line.quad.max(axis=0)

    assert left < 2 * 46
    assert right > 2 * 354
    assert top < 3 * 95
    assert bottom > 3 * 105
    assert 3 * 100 == pytest.approx((top + bottom) / 2, abs=4)
    assert line.bend is None


def test_specks_and_low_probabilities_are_no_lines():
    speck = drawn(straight(50, 50, 51, 50), thickness=1)
    unsure = drawn(straight(50, 100, 350, 100)) * 0.4

    assert [] == find_lines(speck, 1, 1)
    assert [] == find_lines(unsure, 1, 1)


def test_corners_of_a_slanting_line():
    [line] = find_lines(drawn(straight(50, 60, 350, 130)), 1, 1)
    top_left, top_right, bottom_right, bottom_left = line.quad

    assert top_left[0] < top_right[0]
    assert bottom_left[0] < bottom_right[0]
    assert top_left[1] < bottom_left[1]
    assert top_right[1] < bottom_right[1]


def test_a_tall_line_is_rotated():
    """A line that runs downwards gives a crop as long as the line."""
    page = np.full((400, 200), 255, np.uint8)
    [line] = find_lines(drawn(straight(100, 50, 100, 350), size=(400, 200)), 1, 1)
    [crop] = crop_lines(page, [line])

    assert is_tall(line)
    assert (CROP_HEIGHT_PX, 3) == (crop.pixels.shape[0], crop.pixels.shape[2])
    assert crop.pixels.shape[1] > 5 * CROP_HEIGHT_PX


def test_a_crop_is_level():
    """The print of a slanting line is in the middle rows of its crop."""
    points = straight(50, 60, 350, 130)
    page = np.uint8(255 * (1 - drawn(points)))
    [crop] = crop_lines(page, find_lines(drawn(points), 1, 1))
    rows = crop.pixels[:, 40:-40, 0].mean(axis=1)

    assert rows[20:28].max() < 60
    assert rows[[0, -1]].min() > 200


def test_a_curved_line_is_cropped_along_its_bend():
    page = np.uint8(255 * (1 - drawn(wave())))
    [line] = find_lines(drawn(wave()), 1, 1)
    [crop] = crop_lines(page, [line])
    rows = crop.pixels[:, 60:-60, 0].mean(axis=1)

    assert line.bend is not None
    assert rows[21:27].max() < 80
    assert rows[[2, -3]].min() > 200


def test_the_offset_of_a_curved_line():
    """The middle of the box, moved by the offset, lies on the line."""
    [line] = find_lines(drawn(wave()), 1, 1)
    assert line.bend is not None
    for along in (0.1, 0.4, 0.75):
        left, right = (line.quad[0] + line.quad[3]) / 2, (line.quad[1] + line.quad[2]) / 2
        x, y = left + (right - left) * along + bend_offset(line.quad, line.bend, along)

        assert 100 + 14 * np.sin(x / 60) == pytest.approx(y, abs=2.5)


@pytest.mark.parametrize("degrees", [90, 180])
def test_lines_of_a_rotated_page(degrees):
    """They lie where the rotated map has the text."""
    probabilities = drawn(straight(30, 40, 250, 40))
    [line] = find_lines(probabilities, 1, 1)
    [expected] = find_lines(np.ascontiguousarray(np.rot90(probabilities, -degrees // 90)), 1, 1)

    np.testing.assert_allclose(rotate_line(line, degrees, 400, 200).quad, expected.quad, atol=2.5)


def test_a_bend_is_rotated():
    quad = np.array([[0, 0], [90, 0], [90, 10], [0, 10]], np.float32)
    line = rotate_line(LineShape(quad, np.array([1.0, 2.0, 5.0], np.float32)), 180, 100, 100)

    assert [-5.0, -2.0, -1.0] == line.bend.tolist()
