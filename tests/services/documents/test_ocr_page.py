"""From pixels to page units, whatever way the page lay and however finely it was drawn."""

from __future__ import annotations

import numpy as np
import pytest

from backend.documents.pages import Box
from backend.documents.parsing.records import Raster
from backend.documents.parsing.text_source import ChosenSource
from backend.engines.ocr.records import OcrResult, OcrWord, PixelBox
from backend.services.documents.ocr_page import page_of

CHOSEN = ChosenSource("ocr", "it has no text of its own")


def raster(**changes: object) -> Raster:
    fields = {"width": 100.0, "height": 200.0, "scale_x": 2.0, "scale_y": 4.0, "dpi": 300.0, "why": "drawn so"}
    return Raster(np.zeros((800, 200), np.uint8), **(fields | changes))  # type: ignore[arg-type]


def result(rotation: int = 0) -> OcrResult:
    word = OcrWord("word", PixelBox(20, 40, 60, 80), 0.5)
    return OcrResult((((word,),),), rotation, 0.7, "engine 1", "because", ("deskew",))


@pytest.mark.parametrize(
    ("rotation", "size", "box"),
    [
        (0, (100, 200), Box(10, 10, 30, 20)),
        (90, (200, 100), Box(5, 20, 15, 40)),
        (180, (100, 200), Box(10, 10, 30, 20)),
    ],
)
def test_boxes_follow_the_turn(rotation: int, size: tuple[float, float], box: Box) -> None:
    """Scales of the two axes change places with the axes."""
    page = page_of(raster(), result(rotation), 3, "png", CHOSEN)

    assert (*size, rotation, 3) == (page.width, page.height, page.rotation, page.number)
    assert box == page.words[0].box


@pytest.mark.parametrize(
    ("kind", "dpi", "expected"),
    [
        pytest.param("pdf", 300.0, 72.0, id="points"),
        pytest.param("png", 300.0, 75.0, id="own-pixels"),
        pytest.param("png", None, 72.0, id="unknown"),
    ],
)
def test_units_per_inch(kind: str, dpi: float | None, expected: float) -> None:
    """Of a page's units, not of what it was drawn with."""
    assert expected == page_of(raster(dpi=dpi), result(), 1, kind, CHOSEN).units_per_inch


def test_the_reasons_stand_together() -> None:
    """Why OCR, why so, how finely, and what is missing."""
    page = page_of(raster(incomplete="the file is cut off"), result(), 1, "pdf", CHOSEN)

    assert "it has no text of its own; because; drawn so; the file is cut off" == page.why
    assert ("engine 1", 0.7, "ocr") == (page.engine, page.confidence, page.source)
