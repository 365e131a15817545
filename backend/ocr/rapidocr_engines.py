"""RapidOCR's engines: one detects the text lines of a page and its rotation, one recognises lines.

Lines are recognised in batches across pages and requests; the words of a page are put together from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from backend.lanes.engine import BatchLimits, UnlimitedBatches
from backend.ocr.rapidocr_models import RapidOcrModels
from backend.ocr.rapidocr_sessions import Numbers
from backend.ocr.reading_order import TextLine, in_order
from backend.ocr.records import DETECT, RECOGNIZE, OcrBlocks, OcrWord, PixelBox
from backend.ocr.text_boxes import (
    CROP_HEIGHT_PX,
    Crop,
    LineShape,
    Pixels,
    Quad,
    bend_offset,
    crop_lines,
    find_lines,
    is_tall,
    middle_of,
    rotate_line,
)

_MAX_LONG_SIDE_PX = 1600  # of the page's long side, scaled for the network
_MIN_SHORT_SIDE_PX = 736  # of its short side, as in RapidOCR: the network was trained on large letters
_MAX_STRIP_PX = 3200  # of the long side of a narrow strip
_STEP_PX = 32  # the network halves five times
_UPRIGHT_WIDTH_PX = 192
_VOTING_LINES = 9  # longest lines, whose orientation decides for the page
_UPSIDE_DOWN_PROBABILITY = 0.9


@dataclass(frozen=True, slots=True)
class DetectedPage:
    """The text lines of a page."""

    rotation: int  # degrees clockwise to the upright page
    lines: tuple[Crop, ...]  # corners in pixels of the upright page


class _Prepared(NamedTuple):
    page: Pixels
    network_input: Numbers  # (1, 3, height, width_px)


class DetectionEngine:
    """An `Engine`: a page's pixels (height, width_px[, 3]) uint8 -> DetectedPage. One page a batch."""

    name = DETECT
    budget = 1
    padding_cost = 1.0
    launch_cost = 0

    def __init__(self, models: RapidOcrModels) -> None:
        self._models = models
        self.batch_limits: BatchLimits = UnlimitedBatches()

    def on(self, device_index: int) -> DetectionEngine:  # noqa: ARG002 - sessions of one device serve all lanes
        return self

    def prepare(self, payloads: Sequence[Pixels]) -> list[_Prepared]:
        """Each page at the resolution of the network."""
        return [_Prepared(page, _network_input(page)) for page in payloads]

    def forward(self, prepared: list[_Prepared]) -> list[tuple[Pixels, NDArray[np.float32]]]:
        """A map of text probabilities for each page; one page at a time, as sizes differ."""
        return [(item.page, self._models.run("detect", item.network_input)[0, 0]) for item in prepared]

    def finish(self, output: list[tuple[Pixels, NDArray[np.float32]]]) -> list[DetectedPage]:
        """Boxes, rotation and crops."""
        return [self._detected(page, probabilities) for page, probabilities in output]

    def _detected(self, page: Pixels, probabilities: NDArray[np.float32]) -> DetectedPage:
        height, width_px = page.shape[:2]
        lines = find_lines(probabilities, width_px / probabilities.shape[1], height / probabilities.shape[0])
        rotation = 0
        if lines and sum(map(is_tall, lines)) > len(lines) / 2:
            rotation, page, lines = 90, *_rotate(page, lines, 90)
        crops = crop_lines(page, lines)
        if self._is_upside_down([crop for crop, line in zip(crops, lines, strict=True) if not is_tall(line)]):
            rotation, page, lines = rotation + 180, *_rotate(page, lines, 180)
            crops = crop_lines(page, lines)
        return DetectedPage(rotation, tuple(crops))

    def _is_upside_down(self, crops: list[Crop]) -> bool:
        longest = sorted((crop.pixels for crop in crops), key=lambda pixels: -pixels.shape[1])[:_VOTING_LINES]
        if not longest:
            return False
        batch = np.stack([_upright_input(pixels) for pixels in longest])
        upside_down = self._models.run("upright", batch)[:, 1]
        return bool((upside_down > _UPSIDE_DOWN_PROBABILITY).mean() > 1 / 2)


def normalized(pixels: Pixels) -> Numbers:
    """(height, width_px, 3) RGB -> (3, height, width_px) from -1 to 1, BGR as the networks were trained."""
    return ((pixels[..., ::-1].astype(np.float32) / 127.5) - 1).transpose(2, 0, 1)


def _network_input(page: Pixels) -> Numbers:
    import cv2  # lazily: only pages need it

    height, width = page.shape[:2]
    longest, shortest = max(height, width), min(height, width)
    scale = min(_MAX_STRIP_PX / longest, max(min(1.0, _MAX_LONG_SIDE_PX / longest), _MIN_SHORT_SIDE_PX / shortest))
    size = [max(_STEP_PX, round(side * scale / _STEP_PX) * _STEP_PX) for side in (width, height)]
    way = cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
    small = np.asarray(cv2.resize(page, (size[0], size[1]), interpolation=way), np.uint8)
    return normalized(small if small.ndim == 3 else np.repeat(small[..., None], 3, axis=2))[None]


def _upright_input(pixels: Pixels) -> Numbers:
    """(3, 48, 192): the start of a line; shorter lines are padded with gray."""
    padded = np.zeros((3, CROP_HEIGHT_PX, _UPRIGHT_WIDTH_PX), np.float32)
    start = normalized(pixels[:, :_UPRIGHT_WIDTH_PX])
    padded[:, :, : start.shape[2]] = start
    return padded


def _rotate(page: Pixels, lines: list[LineShape], degrees: int) -> tuple[Pixels, list[LineShape]]:
    height, width_px = page.shape[:2]
    upright = np.ascontiguousarray(np.rot90(page, k=-degrees // 90))
    return upright, [rotate_line(line, degrees, width_px, height) for line in lines]


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
