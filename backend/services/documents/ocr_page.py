"""From what an engine read in pixels to a page of the word model. Pure."""

from __future__ import annotations

import numpy as np

from backend.documents.pages import POINTS_PER_INCH, Box, Page, RawWord, make_page
from backend.documents.parsing.records import Raster
from backend.documents.parsing.text_source import ChosenSource
from backend.engines.ocr.records import OcrResult, PixelBox


def page_of(raster: Raster, read: OcrResult, number: int, kind: str, chosen: ChosenSource) -> Page:
    """The page as it was read.

    Args:
        raster: what the engine was given; its scale turns pixels into page units.
        read: its boxes are in pixels after its turn.
        kind: of the file; a PDF's page units are points, an image's its own pixels.
    """
    width, height, scale_x, scale_y = raster.width, raster.height, raster.scale_x, raster.scale_y
    if read.rotation % 180:
        width, height, scale_x, scale_y = height, width, scale_y, scale_x
    blocks = [
        [[RawWord(word.text, _box(word.box, scale_x, scale_y), word.confidence) for word in line] for line in block]
        for block in read.blocks
    ]
    why = "; ".join(part for part in (chosen.why, read.why, raster.why, raster.incomplete) if part)
    return make_page(
        blocks,
        number=number,
        width=width,
        height=height,
        units_per_inch=_units_per_inch(raster, kind),
        rotation=read.rotation,
        source="ocr",
        why=why,
        engine=read.engine,
        confidence=read.confidence,
    )


def _box(box: PixelBox, scale_x: float, scale_y: float) -> Box:
    return Box(box.left / scale_x, box.top / scale_y, box.right / scale_x, box.bottom / scale_y)


def _units_per_inch(raster: Raster, kind: str) -> float:
    if kind == "pdf" or raster.dpi is None:
        return POINTS_PER_INCH
    return float(np.float64(raster.dpi) / max(raster.scale_x, raster.scale_y))
