"""From crops and what they say to words on the page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

import numpy as np

from backend.engines.ocr.ctc_words import CropWord, ReadLine
from backend.engines.ocr.curved_lines import shift
from backend.engines.ocr.reading_order import Strip, in_order
from backend.engines.ocr.records import OcrBlocks, OcrWord, PixelBox
from backend.engines.ocr.text_boxes import Crop, Quad

_READABLE = 0.5  # confidence of a line below which it is a picture or a rule; RapidOCR's own threshold
_LONG = 5.0  # widths to heights of a line whose slope tells the page's


def placed(crops: Sequence[Crop], lines: Sequence[ReadLine]) -> OcrBlocks:
    """The words of all readable lines, boxes in pixels of the page, in reading order."""
    readable = [(crop, line) for crop, line in zip(crops, lines, strict=True) if line.confidence >= _READABLE]
    slope = _slope([crop.line.quad for crop, _ in readable])
    return in_order([_strip(crop, line, slope) for crop, line in readable])


def _strip(crop: Crop, line: ReadLine, slope: float) -> Strip:
    words = tuple(OcrWord(word.text, _word_box(crop, word), word.confidence) for word in line.words)
    quad = crop.line.quad
    level = quad - np.stack([np.zeros(4), quad[:, 0] * slope], axis=1)
    return Strip(words, _around(level))


def _word_box(crop: Crop, word: CropWord) -> PixelBox:
    """The upright box around a word of the crop, on the page."""
    quad, bend = crop.line
    top_left, top_right, bottom_right, bottom_left = quad
    ends = [at / crop.pixels.shape[1] for at in (word.left_px, word.right_px)]
    corners = [
        start + (end - start) * along + (0 if bend is None else shift(quad, bend, along))
        for start, end in ((top_left, top_right), (bottom_left, bottom_right))
        for along in ends
    ]
    return _around(np.stack(corners))


def _around(corners: Quad) -> PixelBox:
    left, top = corners.min(axis=0)
    right, bottom = corners.max(axis=0)
    return PixelBox(float(max(left, 0)), float(max(top, 0)), float(right), float(bottom))


def _slope(quads: Sequence[Quad]) -> float:
    """How much the page's lines fall to the right, pixels a pixel; 0 where too few long ones tell."""
    slopes = []
    for quad in quads:
        (across, down), (_, height) = quad[1] - quad[0], quad[3] - quad[0]
        if across > _LONG * max(1.0, float(height)):
            slopes.append(float(down) / float(across))
    slope = median(slopes) if slopes else 0.0
    return slope if math.isfinite(slope) else 0.0
