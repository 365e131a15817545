"""Transforms of pages and images: the positions of their corners."""

import pytest

from backend.files.searchable_pdf import image_matrix, upright_to_page


@pytest.mark.parametrize(
    ("rotate", "corner", "right_of_it", "below_it"),
    [
        pytest.param(0, (10, 220), (110, 220), (10, 20), id="upright"),
        pytest.param(90, (10, 20), (10, 220), (110, 20), id="turned-right"),
        pytest.param(180, (110, 20), (10, 20), (110, 220), id="upside-down"),
        pytest.param(270, (110, 220), (110, 20), (10, 220), id="turned-left"),
    ],
)
def test_the_top_left_of_the_upright_page(rotate, corner, right_of_it, below_it):
    """On a page visible from (10, 20) to (110, 220) with /Rotate."""
    width, height = (100, 200) if rotate % 180 == 0 else (200, 100)
    matrix = upright_to_page((10, 20, 110, 220), rotate, width, height)

    assert corner == pytest.approx(matrix.on_point(0, 0))
    assert right_of_it == pytest.approx(matrix.on_point(width, 0))
    assert below_it == pytest.approx(matrix.on_point(0, height))


@pytest.mark.parametrize(
    ("exif", "first_row_and_column"),
    [
        *((1, "top left"), (2, "top right"), (3, "bottom right"), (4, "bottom left")),
        *((5, "left top"), (6, "right top"), (7, "right bottom"), (8, "left bottom")),
    ],
)
def test_exif_orientations(exif, first_row_and_column):
    """The first row and column appear where Exif 2.32 defines."""
    row, column = first_row_and_column.split()
    sides = {"top": (1, 1.0), "bottom": (1, 0.0), "left": (0, 0.0), "right": (0, 1.0)}
    matrix = image_matrix(exif, 1, 1)

    for side, points in ((row, [(0, 1), (1, 1)]), (column, [(0, 1), (0, 0)])):  # PDF's unit square: row 0 is y = 1
        axis, value = sides[side]
        assert [value, value] == pytest.approx([matrix.on_point(*point)[axis] for point in points])
