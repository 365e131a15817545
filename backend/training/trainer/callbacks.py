"""What a run tells of itself: StepEvents for its observers, and the interventions that its result keeps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from backend.device.facts.torch_source import Torch
from backend.training.records import Observer, StepEvent
from backend.training.trainer.setup import Parts
from backend.training.trainer.train_step import Update

_INTERVENTIONS = ("out_of_memory", "thrash", "precision")
Kind = Literal["start", "step", "evaluation", "checkpoint", "out_of_memory", "thrash", "precision", "stop", "end"]


class Telling:
    """Makes events out of where the run is.

    Args:
        observers: none on ranks other than 0.
    """

    def __init__(self, parts: Parts, observers: Sequence[Observer]) -> None:
        self._parts, self._observers = parts, observers
        self.interventions: list[StepEvent] = []

    def tell(self, kind: Kind, values: Mapping[str, Any] | None = None, message: str = "") -> None:
        """Tell everyone."""
        parts = self._parts
        event = StepEvent(kind, parts.standing.steps, parts.batches.progress, dict(values or {}), message)
        if kind in _INTERVENTIONS:
            self.interventions.append(event)
        for observer in self._observers:
            observer.see(event)

    def step(self, update: Update, learning_rate: float, tokens: int, device: str) -> None:
        """An effective batch went by. A skipped one (float16) says so; what is not finite is left out."""
        parts = self._parts
        scaler = parts.numerics.scaler
        values: dict[str, Any] = {
            "loss": update.total / update.weight,
            "learning_rate": learning_rate,
            "grad_norm": update.grad_norm if math.isfinite(update.grad_norm) else None,
            "micro_batch": parts.micro.limit,
            "tokens": tokens,
            "scale": None if scaler is None else scaler.get_scale(),
            "skipped": None if update.applied else True,
            "memory_bytes": Torch().allocator(device).allocated_bytes or None,
        }
        self.tell("step", {name: value for name, value in values.items() if value is not None})
