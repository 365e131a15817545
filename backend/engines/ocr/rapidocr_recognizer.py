"""The engine that reads lines: crops of all pages and requests share its batches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from backend.engines.engine import BatchLimits, UnlimitedBatches
from backend.engines.ocr.ctc_words import ReadLine, read_line
from backend.engines.ocr.rapidocr_detector import normalized
from backend.engines.ocr.rapidocr_models import Numbers, RapidModels
from backend.engines.ocr.tasks import RECOGNIZE
from backend.engines.ocr.text_boxes import CROP_HEIGHT_PX, Pixels

_BUCKETS_PX = (320, 400, 480, 640, 800, 960, 1120, 1280, 1440, 1600, 1920, 2240, 2560, 3200)
_CPU_BUDGET_PX = 2560  # a batch gains nothing on a CPU (20.8 ms a crop of 320, one or four): short ones free the lane
_GPU_BUDGET_PX = 32_768


class RecognizeEngine:
    """ml.engine.Engine: a crop (48, width_px, 3) uint8 -> ReadLine; its cost is ``bucket_px`` of its width."""

    name = RECOGNIZE
    padding_cost = 1.0

    def __init__(self, models: RapidModels, *, latin: bool, on_gpu: bool) -> None:
        """``latin``: with the characters of Latin print alone, which is faster and mistakes none for a Chinese one."""
        self._models, self._latin = models, latin
        self.budget = _GPU_BUDGET_PX if on_gpu else _CPU_BUDGET_PX
        self.batch_limits: BatchLimits = UnlimitedBatches()

    def on(self, device_index: int) -> RecognizeEngine:  # noqa: ARG002 - sessions of one device serve all lanes
        """Itself."""
        return self

    def prepare(self, payloads: Sequence[Pixels]) -> tuple[Numbers, list[int]]:
        """(batch, 3, 48, bucket): each crop from the left, gray after it."""
        width = bucket_px(max(crop.shape[1] for crop in payloads))
        batch = np.zeros((len(payloads), 3, CROP_HEIGHT_PX, width), np.float32)
        for row, crop in zip(batch, payloads, strict=True):
            row[:, :, : crop.shape[1]] = normalized(crop)
        return batch, [crop.shape[1] for crop in payloads]

    def forward(self, prepared: tuple[Numbers, list[int]]) -> tuple[Numbers, list[int]]:
        """(batch, columns, characters): how likely each character is in each column of eight pixels."""
        batch, widths = prepared
        return self._models.run("recognize", batch, latin=self._latin), widths

    def finish(self, output: tuple[Numbers, list[int]]) -> list[ReadLine]:
        """The words of each crop."""
        likely, widths = output
        characters = self._models.characters(latin=self._latin)
        return [read_line(row, characters, width_px) for row, width_px in zip(likely, widths, strict=True)]


def bucket_px(width_px: int) -> int:
    """The width that a crop is padded to: few distinct ones, so that a GPU meets few shapes."""
    return next((bucket for bucket in _BUCKETS_PX if width_px <= bucket), _BUCKETS_PX[-1])
