"""What classifying pages by their pictures needs of an image model: its engine, the lanes, and what is known of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from backend.device.plan.placement import Placement
from backend.images.model_files import ImageModelSpec
from backend.lanes.batcher import Batcher
from backend.lanes.engine import Engine
from backend.models.autotune import Choice
from backend.models.encoder_source import UnloadableEncoder


@dataclass(frozen=True, slots=True)
class LoadedImageModel:
    """An image classifier that is in memory, or comes back with its next batch."""

    spec: ImageModelSpec
    choice: Choice
    placement: Placement  # the first device's
    engine: Engine  # payload: pixels (height, width_px, 3) uint8; result: logits (labels) float32
    page_cost: int  # of a page in the queue
    residents: Sequence[UnloadableEncoder[Any]]  # in memory, one a device
    created_s: float  # Unix time of loading

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def names(self) -> tuple[str, ...]:
        """What a request may call it; the one in answers first."""
        return tuple(dict.fromkeys((self.name, self.name.rpartition("/")[2])))

    @property
    def is_loaded(self) -> bool:
        return any(resident.is_loaded for resident in self.residents)

    def report(self, lanes: str) -> dict[str, Any]:
        """Every choice made for it, with its reasons."""
        spec = self.spec
        return {
            "model": self.name,
            "names": self.names,
            "architecture": spec.architecture,
            "source": spec.source,
            "revision": spec.revision,
            "sha256": spec.sha256,
            "fingerprint": spec.fingerprint,
            "labels": spec.labels,
            "multi_label": spec.multi_label,
            "preprocessing": asdict(spec.preprocessing),
            "device": self.placement.device,
            "lanes": lanes,
            "page_cost": self.page_cost,
            "is_loaded": self.is_loaded,
            "choice": asdict(self.choice),
        }


@dataclass(frozen=True, slots=True)
class ImageEngines:
    """An image model on the lanes that run it."""

    model: LoadedImageModel
    lanes: Batcher
    where: str  # "page lanes" or "model lanes"
