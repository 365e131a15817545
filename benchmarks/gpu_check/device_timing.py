"""Times work on a device: how long the device takes for it, and how long the host needs to queue it."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

MATRIX_SIDE = 8192  # large enough that a card reaches its rate: 788 TFLOP/s of bf16 on an H200
_SMALL_SIDE = 256


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one call, means over ``runs``."""

    device_s: float
    host_s: float  # until the call returned; on a CPU the same


def timed(call: Callable[[], object], device: str, *, runs: int = 20, warm_up: int = 3) -> Timing:
    """Seconds of a call on a warm device, measured over ``runs`` calls in a row."""
    if not device.startswith("cuda"):
        runs, warm_up = 2, 1  # a CPU is looked at to see that a part runs
    for _ in range(warm_up):
        call()
    wait(device)
    started_s = time.perf_counter()
    for _ in range(runs):
        call()
    host_s = time.perf_counter() - started_s
    wait(device)
    return Timing((time.perf_counter() - started_s) / runs, host_s / runs)


def wait(device: str) -> None:
    """Until the device has nothing left to do."""
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


def matrix_flop_per_s(device: str, dtype: torch.dtype, *, side: int | None = None) -> float:
    """The device's rate for a square product of random numbers: the median of three measurements."""
    side = side or (MATRIX_SIDE if device.startswith("cuda") else _SMALL_SIDE)
    left, right = random(side, side, device=device, dtype=dtype), random(side, side, device=device, dtype=dtype)
    rates = [2 * side**3 / timed(lambda: left @ right, device, runs=10).device_s for _ in range(3)]
    return statistics.median(rates)


def random(*shape: int, device: str, dtype: torch.dtype) -> Tensor:
    """Normally distributed numbers: a product of zeros runs faster than any real one."""
    return torch.randn(*shape, device=device).to(dtype)
