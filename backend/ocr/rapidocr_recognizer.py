"""The engine that recognises text lines, in batches across pages and requests, and the words it finds on a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from backend.lanes.engine import BatchLimits, UnlimitedBatches
from backend.ocr.rapidocr_detector import normalized
from backend.ocr.rapidocr_models import RapidOcrModels
from backend.ocr.rapidocr_sessions import Numbers
from backend.ocr.reading_order import TextLine, in_order
from backend.ocr.records import RECOGNIZE, OcrBlocks, OcrWord, PixelBox
from backend.ocr.text_boxes import CROP_HEIGHT_PX, Crop, Pixels, Quad, bend_offset, middle_of

COLUMN_PX = 8  # pixels of the crop that one column of the recogniser's output stands for
_BLANK = 0
_MARGIN = 0.25  # columns added to a word's box on either side: capitals and m are wider than the average letter
# The recogniser loses spaces between Latin words (RapidOCR #723), but its columns show most of them. Word recall on
# receipts: 0.860 as decoded, 0.895 with this; Spanish print 0.893 either way.
_SPACE_PROBABILITY = 0.2
_FAINT_SPACE_PROBABILITY = 0.02  # enough where the letters are also this far apart:
_WIDE_GAP = 1.6  # times the median distance of the line's letters


class _Letter(NamedTuple):
    text: str
    column: float
    confidence: float


class CropWord(NamedTuple):
    """A word on the crop of its line."""

    text: str
    left_px: float
    right_px: float
    confidence: float  # mean of its letters', 0..1


@dataclass(frozen=True, slots=True)
class RecognizedLine:
    """The words of one crop."""

    words: tuple[CropWord, ...]
    confidence: float  # mean of all letters', 0..1; 0 without any


def decode_line(probabilities: NDArray[np.float32], characters: Sequence[str], width_px: int) -> RecognizedLine:
    """The words of one crop.

    Shapes: probabilities (columns, characters) from 0 to 1; the first character is CTC's blank, the last the space.
    """
    letters = _letters(probabilities, characters)
    printed = [letter for letter in letters if letter.text != " "]
    if not printed:
        return RecognizedLine((), 0.0)
    words = _words(letters, probabilities[:, -1], width_px)
    return RecognizedLine(tuple(words), sum(letter.confidence for letter in printed) / len(printed))


def page_confidence(lines: Sequence[RecognizedLine]) -> float | None:
    """Mean over the letters of all lines, 0..1; None without any."""
    weights = [sum(len(word.text) for word in line.words) for line in lines]
    total = sum(weights)
    if not total:
        return None
    return sum(line.confidence * weight for line, weight in zip(lines, weights, strict=True)) / total


def _letters(probabilities: NDArray[np.float32], characters: Sequence[str]) -> list[_Letter]:
    best = probabilities.argmax(axis=1)
    confidences = probabilities[np.arange(len(best)), best]
    starts = np.flatnonzero(np.diff(best, prepend=-1))
    letters = []
    for start, end in zip(starts, [*starts[1:], len(best)], strict=True):
        if best[start] != _BLANK:
            letters.append(_Letter(characters[best[start]], (start + end - 1) / 2, float(confidences[start:end].max())))
    return letters


def _words(letters: list[_Letter], spaces: NDArray[np.float32], width_px: int) -> list[CropWord]:
    spacing = _median_spacing(letters)
    groups: list[list[_Letter]] = [[]]
    for letter in letters:
        if letter.text == " ":
            groups.append([])
            continue
        if groups[-1] and _is_apart(groups[-1][-1], letter, spaces, spacing):
            groups.append([])
        groups[-1].append(letter)
    return [_word(group, spacing, width_px) for group in groups if group]


def _is_apart(before: _Letter, after: _Letter, spaces: NDArray[np.float32], spacing: float) -> bool:
    space = float(spaces[int(before.column) + 1 : int(after.column)].max(initial=0))
    return space > _SPACE_PROBABILITY or (
        space > _FAINT_SPACE_PROBABILITY and after.column - before.column > _WIDE_GAP * spacing
    )


def _median_spacing(letters: list[_Letter]) -> float:
    distances = [
        after.column - before.column for before, after in pairwise(letters) if " " not in (before.text, after.text)
    ]
    return float(np.median(distances)) if distances else 1.0


def _word(letters: list[_Letter], spacing: float, width_px: int) -> CropWord:
    """The word of these letters.

    Its box reaches half a letter spacing and a margin beyond the middles of the first and the last letter.
    """
    half = spacing / 2 + _MARGIN
    left = max(0.0, (letters[0].column + 0.5 - half) * COLUMN_PX)
    right = min(float(width_px), (letters[-1].column + 0.5 + half) * COLUMN_PX)
    text = "".join(letter.text for letter in letters)
    return CropWord(text, min(left, right), right, sum(letter.confidence for letter in letters) / len(letters))


_BUCKETS_PX = (320, 400, 480, 640, 800, 960, 1120, 1280, 1440, 1600, 1920, 2240, 2560, 3200)
# A batch gains nothing on a CPU (a crop of 320 px takes 17 ms in OpenVINO and 18 in ONNX Runtime, whether one, four or
# eight run), and short batches free the lane.
_CPU_BUDGET_PX = 2560
_GPU_BUDGET_PX = 32_768
_MIN_LINE_CONFIDENCE = 0.5  # below, a line is a picture or a rule; RapidOCR's own threshold


class RecognitionEngine:
    """An `Engine`: a crop (48, width_px, 3) uint8 -> RecognizedLine; its cost is ``bucket_px`` of its width."""

    name = RECOGNIZE
    padding_cost = 1.0
    launch_cost = 0

    def __init__(self, models: RapidOcrModels, *, latin: bool, on_gpu: bool) -> None:
        """``latin``: only the characters of Latin print, which is faster and takes none for a Chinese one."""
        self._models, self._latin = models, latin
        self.budget = _GPU_BUDGET_PX if on_gpu else _CPU_BUDGET_PX
        self.batch_limits: BatchLimits = UnlimitedBatches()

    def on(self, device_index: int) -> RecognitionEngine:  # noqa: ARG002 - sessions of one device serve all lanes
        return self

    def prepare(self, payloads: Sequence[Pixels]) -> tuple[Numbers, list[int]]:
        """(batch, 3, 48, bucket): each crop at the left, padded with gray."""
        width = bucket_px(max(crop.shape[1] for crop in payloads))
        batch = np.zeros((len(payloads), 3, CROP_HEIGHT_PX, width), np.float32)
        for row, crop in zip(batch, payloads, strict=True):
            row[:, :, : crop.shape[1]] = normalized(crop)
        return batch, [crop.shape[1] for crop in payloads]

    def forward(self, prepared: tuple[Numbers, list[int]]) -> tuple[Numbers, list[int]]:
        """(batch, columns, characters): the probability of each character in each column of eight pixels."""
        batch, widths = prepared
        return self._models.run("recognize", batch, latin=self._latin), widths

    def finish(self, output: tuple[Numbers, list[int]]) -> list[RecognizedLine]:
        probabilities, widths = output
        characters = self._models.characters(latin=self._latin)
        return [decode_line(row, characters, width_px) for row, width_px in zip(probabilities, widths, strict=True)]


def bucket_px(width_px: int) -> int:
    """The width that a crop is padded to: one of a few, so that a GPU sees few shapes."""
    return next((bucket for bucket in _BUCKETS_PX if width_px <= bucket), _BUCKETS_PX[-1])


def words_on_page(crops: Sequence[Crop], lines: Sequence[RecognizedLine]) -> OcrBlocks:
    """The words of all legible lines in reading order, boxes in pixels of the page."""
    legible = [(crop, line) for crop, line in zip(crops, lines, strict=True) if line.confidence >= _MIN_LINE_CONFIDENCE]
    return in_order([_text_line(crop, line) for crop, line in legible])


def _text_line(crop: Crop, line: RecognizedLine) -> TextLine:
    words = tuple(OcrWord(word.text, _word_box(crop, word), word.confidence) for word in line.words)
    height = float(np.linalg.norm(crop.line.quad[3] - crop.line.quad[0]))
    return TextLine(words, middle_of(crop.line).astype(np.float64), height)


def _word_box(crop: Crop, word: CropWord) -> PixelBox:
    """The upright box around a word of the crop, on the page."""
    quad, bend = crop.line
    top_left, top_right, bottom_right, bottom_left = quad
    ends = [x / crop.pixels.shape[1] for x in (word.left_px, word.right_px)]
    corners = [
        start + (end - start) * along + (0 if bend is None else bend_offset(quad, bend, along))
        for start, end in ((top_left, top_right), (bottom_left, bottom_right))
        for along in ends
    ]
    return _box_around(np.stack(corners))


def _box_around(corners: Quad) -> PixelBox:
    left, top = corners.min(axis=0)
    right, bottom = corners.max(axis=0)
    return PixelBox(float(max(left, 0)), float(max(top, 0)), float(right), float(bottom))
