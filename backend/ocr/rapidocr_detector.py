"""The engine that detects the text lines of a page and its rotation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from backend.lanes.engine import BatchLimits, UnlimitedBatches
from backend.ocr.rapidocr_models import RapidOcrModels
from backend.ocr.rapidocr_sessions import Numbers
from backend.ocr.records import DETECT
from backend.ocr.text_boxes import CROP_HEIGHT_PX, Crop, LineShape, Pixels, crop_lines, find_lines, is_tall, rotate_line

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
