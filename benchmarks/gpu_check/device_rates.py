"""What the device can do at most: matrix products, and what the host pays for copies and for asking about memory."""

import statistics
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from benchmarks.gpu_check.context import Context, Rows
from benchmarks.gpu_check.device_timing import matrix_flop_per_s, random, timed, wait

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
# (width, outputs) of the products of an encoder of MiniLM's size, then of a base encoder
_PRODUCTS = ((384, 1152), (384, 1536), (1536, 384), (768, 2304), (768, 768), (768, 3072), (3072, 768))
_COPIES_KIB = (32, 64, 96, 128, 512)


def measure(context: Context) -> dict[str, Any]:
    """The square product's rate in each dtype, an encoder's products, and host costs on a card."""
    device = context.device
    rows = 64 if context.is_small else 32768
    result: dict[str, Any] = {
        "matrix_tflop_per_s": {name: matrix_flop_per_s(device, dtype) / 1e12 for name, dtype in _DTYPES.items()},
        "rows": rows,
    }
    context.keep(result)
    result["products"] = list(_products(device, rows))
    if context.is_cuda:
        context.keep(result)
        result["host"] = {"memory_stats_us": _stats_us(device), "free_memory_us": _free_us(device)}
        result["copies"] = _copies(device)
    return result


def _products(device: str, rows: int) -> Iterator[dict[str, Any]]:
    for width, outputs in _PRODUCTS:
        left = random(rows, width, device=device, dtype=torch.bfloat16)
        right = random(outputs, width, device=device, dtype=torch.bfloat16)
        seconds = timed(partial(torch.nn.functional.linear, left, right), device).device_s
        yield {"width": width, "outputs": outputs, "tflop_per_s": 2 * rows * width * outputs / seconds / 1e12}


def _stats_us(device: str) -> float:
    return 1e6 * timed(lambda: torch.cuda.memory_stats(device), device, runs=50).host_s


def _free_us(device: str) -> float:
    return 1e6 * timed(lambda: torch.cuda.mem_get_info(device), device, runs=50).host_s


def _copies(device: str) -> Rows:
    """How long the host waits to copy something behind 28 ms of work, from pageable and from pinned memory."""
    work = random(8192, 8192, device=device, dtype=torch.bfloat16)
    rows = []
    for kib in _COPIES_KIB:
        for pinned in (False, True):
            source = torch.zeros(kib * 1024, dtype=torch.uint8, pin_memory=pinned)
            times = [_copy_s(source, work, device) for _ in range(3)]
            rows.append({"kib": kib, "pinned": pinned, "host_ms": 1e3 * statistics.median(times)})
    return rows


def _copy_s(source: torch.Tensor, work: torch.Tensor, device: str) -> float:
    wait(device)
    for _ in range(20):
        _ = work @ work
    started_s = time.perf_counter()
    source.to(device, non_blocking=True)
    took_s = time.perf_counter() - started_s
    wait(device)
    return took_s
