"""Training with each option and with those for speed together: benchmarks/training.py on the device."""

from typing import Any

from benchmarks.gpu_check.context import Context
from benchmarks.training import (
    COMPILED,
    ON_CARD,
    PICTURE_OPTIONS,
    PICTURES_ON_CARD,
    SMALL,
    SMALL_PICTURES,
    Pictures,
)
from benchmarks.training import measure as measure_options


def measure(context: Context) -> dict[str, Any]:
    """A row for each option: seconds of a step, memory, loss; ``pictures``: the same of a ResNet."""
    workload, pictures = (SMALL, SMALL_PICTURES) if context.is_small else (ON_CARD, PICTURES_ON_CARD)
    without = COMPILED if context.is_small else ()
    result = measure_options(context.device, workload, without=without, keep=context.keep)
    result["pictures"] = measure_options(context.device, pictures, task=Pictures, options=PICTURE_OPTIONS)
    return result
