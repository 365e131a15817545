"""Training with each option and with those for speed together: benchmarks/training.py on the device."""

from typing import Any

from benchmarks.gpu_check.context import Context
from benchmarks.training import COMPILED, ON_CARD, SMALL
from benchmarks.training import measure as measure_options


def measure(context: Context) -> dict[str, Any]:
    """A row for each option: seconds of a step, memory, loss."""
    workload, without = (SMALL, COMPILED) if context.is_small else (ON_CARD, ())
    return measure_options(context.device, workload, without=without, keep=context.keep)
