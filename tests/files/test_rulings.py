"""The lines that a PDF page draws, with real workers."""

import pytest

from backend.files.file_readers import FileReaders
from backend.files.pages import Ruling
from tests.files.pdfs import pdf, text


def rulings(readers: FileReaders, *contents: bytes, rotate: int = 0) -> list[tuple[int, ...]]:
    """Rounded, of a page of 300 x 200 points."""
    with readers.open(pdf(b"\n".join(contents), rotate=rotate)) as file:
        return sorted(tuple(round(end) for end in ruling) for ruling in readers.page_text(file, 1).rulings)


@pytest.mark.parametrize(
    ("drawing", "expected"),
    [
        pytest.param(b"20 150 m 120 150 l S", [(20, 50, 120, 50)], id="stroke"),
        pytest.param(b"20 150 100 0.5 re f", [(20, 50, 120, 50)], id="thin-rectangle"),
        pytest.param(b"0.9 g 20 150 100 20 re f",
                     [(20, 30, 20, 50), (20, 30, 120, 30), (20, 50, 120, 50), (120, 30, 120, 50)], id="filled-cell"),
        pytest.param(b"q 2 0 0 2 10 0 cm 10 50 m 10 90 l S Q", [(30, 20, 30, 100)], id="scaled"),
        pytest.param(b"1 g 20 150 100 20 re f", [], id="white"),
        pytest.param(b"20 20 m 120 150 l S", [], id="slanting"),
        pytest.param(b"20 20 m 60 90 90 90 120 20 c S", [], id="curve"),
        pytest.param(b"0.9 g 0 0 300 200 re f", [], id="background"),
        pytest.param(b"20 150 m 120 150 l n", [], id="not-drawn"),
    ],
)  # fmt: skip
def test_what_is_a_ruling(readers: FileReaders, drawing: bytes, expected: list[tuple[int, ...]]) -> None:
    """Level and upright strokes, thin rectangles and the edges of filled ones, from the page's upper left corner."""
    assert expected == rulings(readers, drawing)


def test_rulings_turn_with_the_page(readers: FileReaders) -> None:
    """They are where a viewer shows them, and where the words are on a page whose text lies on its side."""
    stroke = b"20 150 m 120 150 l S"

    assert [(150, 20, 150, 120)] == rulings(readers, stroke, rotate=90)
    assert [(150, 20, 150, 120)] == rulings(readers, stroke, text(b"sideways", 50, 50, matrix=b"0 1 -1 0"))


def test_a_drawing_has_none(readers: FileReaders) -> None:
    """Of tens of thousands of lines, a map or a plot, none is a border."""
    assert [] == rulings(readers, *(b"%g 10 m %g 190 l S" % (x / 100, x / 100) for x in range(20_000)))


def test_a_page_keeps_its_rulings(readers: FileReaders) -> None:
    """The page made of a text layer has them."""
    with readers.open(pdf(text(b"words") + b"20 150 m 120 150 l S")) as file:
        page = readers.page_text(file, 1).page(1, "why")

    assert (Ruling(20, 50, 120, 50),) == page.rulings
