"""The engine that tells the classes of pages from their pictures: one image classifier, batches of pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from backend.errors import FinanciaError, InferenceFailed
from backend.images.loading import ImageClassifier
from backend.lanes.engine import BatchLimits, UnlimitedBatches

TASK = "images"  # the engine's name, and a label of its metrics
Logits = NDArray[np.float32]


class ClassifierSource(Protocol):
    """Gives the engine its model, once a batch; loads it again where it was unloaded."""

    @property
    def padding_cost(self) -> float: ...

    def get(self) -> ImageClassifier: ...


@dataclass(frozen=True, slots=True, eq=False)
class RunningBatch:
    """Pages under way, with the model that has them."""

    classifier: ImageClassifier
    pixels: NDArray[np.uint8]  # (batch, height, width_px, 3)
    logits: Any = None


def no_fallback(_page: NDArray[np.uint8]) -> Logits | None:
    """Of a model that is served in float32 already."""
    return None


@dataclass(frozen=True, slots=True)
class ImageEngine:
    """One model on one device. Payload: pixels (height, width_px, 3) uint8; result: logits (labels) float32.

    A page whose result is not finite is computed again by ``recompute``, so that NaN never leaves.
    """

    source: ClassifierSource
    budget: int  # of a batch, in the cost that the service gives a page
    batch_limits: BatchLimits = field(default_factory=UnlimitedBatches)
    recompute: Callable[[NDArray[np.uint8]], Logits | None] = no_fallback  # the logits of one page in float32
    name: str = TASK
    launch_cost: int = 0

    @property
    def padding_cost(self) -> float:
        return self.source.padding_cost

    def on(self, device_index: int) -> ImageEngine:  # noqa: ARG002 - this engine has one device only
        return self

    def prepare(self, payloads: Sequence[NDArray[np.uint8]]) -> RunningBatch:
        """Stack the pages; the model is loaded here if it was unloaded. Raises: Unavailable."""
        return RunningBatch(self.source.get(), np.stack(payloads))

    def forward(self, prepared: RunningBatch) -> RunningBatch:
        logits = prepared.classifier.forward(prepared.pixels)
        return RunningBatch(prepared.classifier, prepared.pixels, logits)

    def finish(self, output: RunningBatch) -> Sequence[Logits | FinanciaError]:
        """One row of logits a page."""
        rows = output.classifier.numbers(output.logits)
        return [
            row if np.isfinite(row).all() else self._again(page) for row, page in zip(rows, output.pixels, strict=True)
        ]

    def _again(self, page: NDArray[np.uint8]) -> Logits | FinanciaError:
        row = self.recompute(page)
        if row is not None and np.isfinite(row).all():
            return row
        return InferenceFailed(
            "the image model's output for this page is not a finite number in float32; its weights are at fault"
        )
