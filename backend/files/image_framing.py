"""How a page becomes the input of an image model, as data. Knows neither Pillow nor torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Framing:
    """How a page of any size is brought to a model's size: resized, then cropped about its centre."""

    resample: int  # Pillow's number of the filter: 2 bilinear, 3 bicubic, …
    resize: tuple[int, int] | None  # height and width_px, whatever the page's shape; None: by its shorter side
    shortest_px: int = 0  # of the shorter side, the other in proportion; only without ``resize``
    crop: tuple[int, int] | None = None  # height and width_px; where the page is smaller, black is put around it

    @property
    def size(self) -> tuple[int, int]:
        """Height and width_px of every result."""
        size = self.crop or self.resize
        assert size is not None, "read_preprocessing refuses framings whose results differ in size"
        return size

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Framing:
        """The framing whose fields came through JSON, with lists for tuples."""
        sides = {name: fields[name] and (int(fields[name][0]), int(fields[name][1])) for name in ("resize", "crop")}
        return cls(int(fields["resample"]), sides["resize"], int(fields["shortest_px"]), sides["crop"])

    def resized(self, height: int, width_px: int) -> tuple[int, int]:
        """The size that a page is resized to, as transformers computes it."""
        if self.resize is not None:
            return self.resize
        shorter, longer = sorted((height, width_px))
        longer_px = int(self.shortest_px * longer / shorter)
        return (longer_px, self.shortest_px) if width_px <= height else (self.shortest_px, longer_px)


@dataclass(frozen=True, slots=True)
class Preprocessing:
    """All that happens to a page before the model; ``framing`` in a worker process, the rest on the device."""

    framing: Framing
    scale: float  # of values from 0 to 255
    mean: tuple[float, float, float]  # of each channel, after scaling
    std: tuple[float, float, float]
