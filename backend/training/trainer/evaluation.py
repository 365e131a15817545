"""A task's evaluation, run in the precision of the training and within its memory."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from backend.device.memory.release import release
from backend.errors import DoesNotFit
from backend.training.records import Task
from backend.training.trainer.oom_retry import attempt
from backend.training.trainer.precision import Numerics


@torch.no_grad()
def measured(task: Task, numerics: Numerics, device: str) -> dict[str, float]:
    """The task's own evaluation. Raises: DoesNotFit when memory runs out twice, the second time with an empty cache."""
    found: list[Mapping[str, float]] = []

    def measure() -> None:
        with numerics.context():
            found.append(task.evaluate(task.model))

    task.model.eval()
    for _ in range(2):
        fault = attempt(measure)
        if fault is None:
            return dict(found[0])
        release(device)
    raise DoesNotFit(f"the evaluation needs more memory than {device} has, with its cache given back too")
