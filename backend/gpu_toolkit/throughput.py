"""Measures a model's throughput, latency and peak memory on a device."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from backend.device import default_device
from backend.device.memory import trial_run

GIB = 1024**3
_MIN_BATCHES = 3  # fewer give no meaningful percentiles


def profile_model(
    model: nn.Module,
    input_shape: Sequence[int],
    batch_size: int = 1,
    *,
    device: str | torch.device = "auto",
    make_inputs: trial_run.MakeInputs | None = None,
    batches: int = 30,
    warmup: int = 3,
    limit_s: float = 10.0,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Any]:
    """Time ``model`` as in serving: evaluation mode, no gradients, batches of ``batch_size`` synthetic samples.

    The model's device, mode, gradients and statistics are restored. Compilation, kernel choice and first allocations
    happen in the warm-up and are not timed; on CUDA every batch is timed by events on the device.

    Args:
        input_shape: one sample, without the batch: (64, 469) features, (3, 224, 224) pixels, (128,) tokens.
        make_inputs: makes the inputs of a batch, for models with other inputs.
        batches: timed at most; fewer (at least 3) when ``limit_s`` seconds are over.
        clock: seconds; not used on CUDA.

    Returns:
        ``throughput_samples_per_sec``, ``throughput_tokens_per_sec`` (None where the input is not token ids),
        ``latency_s`` with ``mean``, ``p50``, ``p95``, ``min`` and ``max`` of a batch in seconds, ``batches`` timed,
        ``peak_memory_bytes`` and ``peak_memory_gb`` (weights included; None where the allocator has no statistics),
        ``weights_bytes``, ``flops_per_sample`` (matrix products, convolutions and attention) and
        ``flops_per_sec`` reached, ``batch_size``, ``device`` and ``dtype``.

    Raises: ValueError for sizes below one, DeviceUnavailable, and whatever the model itself raises.
    """
    if batch_size < 1 or batches < 1 or warmup < 0:
        raise ValueError(f"batch_size {batch_size}, batches {batches}, warmup {warmup}: at least 1, 1 and 0")
    target = default_device.torch_device(device)
    with trial_run.restored_state(model):
        model.eval().to(target)
        inputs = (make_inputs or trial_run.synthetic_inputs(model, input_shape))(batch_size)
        flops = _flops(model, inputs)  # the first warm-up
        for _ in range(warmup):
            trial_run.forward(model, inputs)
        seconds, peak_bytes = _timed(lambda: trial_run.forward(model, inputs), target, batches, limit_s, clock)
        used_device, dtype = trial_run.device_and_dtype(model)
    rate = batch_size * len(seconds) / max(sum(seconds), 1e-9)  # a coarse clock may give 0
    tokens = int(input_shape[0]) if trial_run.takes_tokens(model) and len(input_shape) == 1 else None
    return {
        "batch_size": batch_size,
        "batches": len(seconds),
        "device": str(used_device),
        "dtype": str(dtype).removeprefix("torch."),
        "throughput_samples_per_sec": rate,
        "throughput_tokens_per_sec": rate * tokens if tokens else None,
        "latency_s": spread(seconds),
        "peak_memory_bytes": peak_bytes,
        "peak_memory_gb": None if peak_bytes is None else peak_bytes / GIB,
        "weights_bytes": trial_run.weights_bytes(model),
        "flops_per_sample": flops // batch_size,
        "flops_per_sec": flops / batch_size * rate,
    }


def spread(seconds: Sequence[float]) -> dict[str, float]:
    """Mean, median, 95th percentile (nearest rank), minimum and maximum of at least one duration, in seconds."""
    ordered = sorted(seconds)
    rank = -(-95 * len(ordered) // 100)  # rounded up
    return {
        "mean": statistics.fmean(ordered),
        "p50": statistics.median(ordered),
        "p95": ordered[rank - 1],
        "min": ordered[0],
        "max": ordered[-1],
    }


def _timed(
    run: Callable[[], None], device: torch.device, batches: int, limit_s: float, clock: Callable[[], float]
) -> tuple[list[float], int | None]:
    """Seconds of each batch, and the peak memory on the device; None where it is not counted."""
    if device.type != "cuda":
        return _by_clock(run, _synchronize(device), batches, limit_s, clock), None
    with torch.cuda.device(device):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        seconds = _by_events(run, batches, limit_s)
        return seconds, torch.cuda.max_memory_allocated()


def _by_clock(
    run: Callable[[], None], synchronize: Callable[[], None], batches: int, limit_s: float, clock: Callable[[], float]
) -> list[float]:
    seconds: list[float] = []
    synchronize()
    while len(seconds) < batches and (len(seconds) < _MIN_BATCHES or sum(seconds) < limit_s):
        begin = clock()
        run()
        synchronize()
        seconds.append(clock() - begin)
    return seconds


def _by_events(run: Callable[[], None], batches: int, limit_s: float) -> list[float]:
    seconds: list[float] = []
    while len(seconds) < batches and (len(seconds) < _MIN_BATCHES or sum(seconds) < limit_s):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        begin.record()
        run()
        end.record()
        end.synchronize()
        seconds.append(begin.elapsed_time(end) / 1000)  # elapsed_time is in milliseconds
    return seconds


def _synchronize(device: torch.device) -> Callable[[], None]:
    return torch.mps.synchronize if device.type == "mps" else lambda: None


def _flops(model: nn.Module, inputs: Any) -> int:
    with FlopCounterMode(display=False) as counter:
        trial_run.forward(model, inputs)
    return int(counter.get_total_flops())
