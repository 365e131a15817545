"""What the device can do at most: the rate of matrix products."""

from typing import Any

import torch

from benchmarks.gpu_check.context import Context
from benchmarks.gpu_check.device_timing import matrix_flop_per_s

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def measure(context: Context) -> dict[str, Any]:
    """The square product's rate in each dtype."""
    rates = {name: matrix_flop_per_s(context.device, dtype) / 1e12 for name, dtype in _DTYPES.items()}
    return {"matrix_tflop_per_s": rates}
