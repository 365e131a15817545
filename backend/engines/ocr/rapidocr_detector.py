"""The engine that finds the lines of a page, and which way up it stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from backend.engines.engine import BatchLimits, UnlimitedBatches
from backend.engines.ocr.rapidocr_models import Numbers, RapidModels
from backend.engines.ocr.tasks import DETECT
from backend.engines.ocr.text_boxes import CROP_HEIGHT_PX, Crop, Line, Pixels, cut, find_lines, is_tall, turned

_LONGEST_PX = 1600  # the page's long side as the network sees it
_SHORTEST_PX = 736  # its short side at least, as RapidOCR has it: it learnt large letters
_STRIP_PX = 3200  # but the long side of a strip no longer than this
_STEP_PX = 32  # the network halves five times
_UPRIGHT_WIDTH_PX = 192
_ASKED = 9  # lines asked which way up they stand; the longest ones
_SURE_UPSIDE_DOWN = 0.9


@dataclass(frozen=True, slots=True)
class DetectedPage:
    """Where the lines of a page are."""

    rotation: int  # degrees clockwise that the page was turned by to stand upright
    lines: tuple[Crop, ...]  # corners in pixels of the turned page


class _Prepared(NamedTuple):
    page: Pixels
    network_input: Numbers  # (1, 3, height, width_px)


class DetectEngine:
    """ml.engine.Engine: a page's pixels (height, width_px[, 3]) uint8 -> DetectedPage. One page a batch."""

    name = DETECT
    budget = 1
    padding_cost = 1.0

    def __init__(self, models: RapidModels) -> None:
        self._models = models
        self.batch_limits: BatchLimits = UnlimitedBatches()

    def on(self, device_index: int) -> DetectEngine:  # noqa: ARG002 - sessions of one device serve all lanes
        """Itself."""
        return self

    def prepare(self, payloads: Sequence[Pixels]) -> list[_Prepared]:
        """Each page at the network's resolution."""
        return [_Prepared(page, _network_input(page)) for page in payloads]

    def forward(self, prepared: list[_Prepared]) -> list[tuple[Pixels, NDArray[np.float32]]]:
        """How likely each pixel is text, a page at a time: sizes differ."""
        return [(one.page, self._models.run("detect", one.network_input)[0, 0]) for one in prepared]

    def finish(self, output: list[tuple[Pixels, NDArray[np.float32]]]) -> list[DetectedPage]:
        """Boxes, the way up, crops."""
        return [self._detected(page, likely) for page, likely in output]

    def _detected(self, page: Pixels, likely: NDArray[np.float32]) -> DetectedPage:
        height, width_px = page.shape[:2]
        lines = find_lines(likely, width_px / likely.shape[1], height / likely.shape[0])
        rotation = 0
        if lines and sum(map(is_tall, lines)) > len(lines) / 2:
            rotation, page, lines = 90, *_turned(page, lines, 90)
        crops = cut(page, lines)
        if self._is_upside_down([crop for crop, line in zip(crops, lines, strict=True) if not is_tall(line)]):
            rotation, page, lines = rotation + 180, *_turned(page, lines, 180)
            crops = cut(page, lines)
        return DetectedPage(rotation, tuple(crops))

    def _is_upside_down(self, crops: list[Crop]) -> bool:
        longest = sorted((crop.pixels for crop in crops), key=lambda pixels: -pixels.shape[1])[:_ASKED]
        if not longest:
            return False
        asked = np.stack([_upright_input(pixels) for pixels in longest])
        upside_down = self._models.run("upright", asked)[:, 1]
        return bool((upside_down > _SURE_UPSIDE_DOWN).mean() > 1 / 2)


def normalized(pixels: Pixels) -> Numbers:
    """(height, width_px, 3) RGB -> (3, height, width_px) from -1 to 1, blue first as the networks learnt."""
    return ((pixels[..., ::-1].astype(np.float32) / 127.5) - 1).transpose(2, 0, 1)


def _network_input(page: Pixels) -> Numbers:
    import cv2  # not before a page is read

    height, width = page.shape[:2]
    longest, shortest = max(height, width), min(height, width)
    scale = min(_STRIP_PX / longest, max(min(1.0, _LONGEST_PX / longest), _SHORTEST_PX / shortest))
    size = [max(_STEP_PX, round(side * scale / _STEP_PX) * _STEP_PX) for side in (width, height)]
    way = cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
    small = np.asarray(cv2.resize(page, (size[0], size[1]), interpolation=way), np.uint8)
    return normalized(small if small.ndim == 3 else np.repeat(small[..., None], 3, axis=2))[None]


def _upright_input(pixels: Pixels) -> Numbers:
    """(3, 48, 192): the line's beginning; what is shorter ends in gray."""
    padded = np.zeros((3, CROP_HEIGHT_PX, _UPRIGHT_WIDTH_PX), np.float32)
    start = normalized(pixels[:, :_UPRIGHT_WIDTH_PX])
    padded[:, :, : start.shape[2]] = start
    return padded


def _turned(page: Pixels, lines: list[Line], turn: int) -> tuple[Pixels, list[Line]]:
    height, width_px = page.shape[:2]
    upright = np.ascontiguousarray(np.rot90(page, k=-turn // 90))
    return upright, [turned(line, turn, width_px, height) for line in lines]
