"""Memory of a device: the limit for this process, current use, a guard for blocks that allocate, and advice.

And what Python, the C library and torch's caching allocator still hold after a model was dropped, given back.
"""

from __future__ import annotations

import ctypes
import gc
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from backend.device.batch_split import release_frames
from backend.device.default_device import placement
from backend.device.facts.host import free_memory_bytes
from backend.device.facts.torch_source import Torch
from backend.device.faults import FaultKind, classify
from backend.device.memory.memory_table import MemoryTable
from backend.device.records import AllocatorStats, Platform
from backend.errors import DoesNotFit

RESERVE_BYTES = 400 << 20  # for workspaces of libraries and fragmentation, as in ComfyUI (model_management.py)
_CACHED_RATIO_MAX = 0.25  # of the free memory: a larger cache is worth releasing (rule of the same file)
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")
_OPTION = re.compile(r"(?:\[[^\]]*\]|[^,\[])+")  # commas inside brackets belong to the value


@dataclass(frozen=True, slots=True)
class MemoryUsage:
    """Memory in use on a device, at one moment."""

    stats: AllocatorStats  # of this process's allocator
    free_bytes: int | None  # according to the driver, all processes counted; None if unknown
    ceiling_bytes: int = 0  # limit of this process; 0 for none


def allocator_options(existing: str, *, fraction: float | None = None, platform: Platform) -> str:
    """What PYTORCH_ALLOC_CONF should be, before torch is imported; the user's ``existing`` value wins key by key.

    Expandable segments reduce the fragmentation that batches of mixed lengths cause. They are set on native Linux only:
    Windows does not support them, and WSL2's driver maps memory differently. An allocator backend other than the
    native one knows none of these options, so ``existing`` is returned unchanged.
    """
    options = _parse_options(existing)
    if platform.system != "Linux" or options.get("backend", "native") != "native":
        return existing
    defaults = {} if platform.wsl else {"expandable_segments": "True"}
    if fraction is not None and fraction < 1:
        defaults["per_process_memory_fraction"] = f"{fraction:g}"
    return _format_options({**defaults, **options})


def apply_ceiling(device: str, memory_bytes: int) -> str:
    """Limit this process to ``memory_bytes`` on ``device``, before its first allocation; returns a log sentence.

    At the limit torch first empties its cache and retries, then raises OutOfMemoryError without calling the driver, so
    other processes on the device lose nothing. The limit covers torch alone, not the CUDA context (300 to 500 MB); for
    other libraries there is ``lower_ceiling``.

    ``throw_on_cudamalloc_oom`` is set on ROCm only, where an out-of-memory error of the driver aborts the process. The
    option skips emptying the cache, so elsewhere batches that fit would fail beside cached blocks (pytorch#179057).
    """
    kind = device.partition(":")[0]
    if memory_bytes <= 0 or kind not in ("cuda", "mps"):
        return f"no ceiling on {device}"
    import torch  # lazy: a process on a CPU need not import torch

    if kind == "mps":
        fraction = min(1.0, memory_bytes / int(torch.mps.recommended_max_memory()))
        torch.mps.set_per_process_memory_fraction(fraction)
    else:
        fraction = min(1.0, memory_bytes / int(torch.cuda.get_device_properties(device).total_memory))
        with torch.cuda.device(device):  # torch would otherwise leave this device the current one
            torch.cuda.set_per_process_memory_fraction(fraction, device)
        if torch.version.hip:
            _throw_on_driver_oom()
    return f"this process takes at most {format_bytes(memory_bytes)} of {device} ({fraction:.2f} of it)"


def lower_ceiling(device: str, other_bytes: int) -> str:
    """Take what another library may allocate on the device from torch's limit there; returns a log sentence."""
    ceiling_bytes = read_memory_usage(device).ceiling_bytes
    return apply_ceiling(device, max(1, ceiling_bytes - other_bytes)) if ceiling_bytes else f"no ceiling on {device}"


def headroom_bytes(
    stats: AllocatorStats, free_bytes: int | None, ceiling_bytes: int, *, reserve_bytes: int = RESERVE_BYTES
) -> int:
    """Bytes that a batch may take now: free on the device plus torch's cache, within the ceiling, less a reserve.

    From statistics of allocator and driver, never from the card's total: other processes come and go (TGI#651).
    """
    bounds = []
    if free_bytes is not None:
        bounds.append(free_bytes + stats.reserved_bytes - stats.active_bytes)
    if ceiling_bytes > 0:
        bounds.append(ceiling_bytes - stats.allocated_bytes)
    return max(0, min(bounds, default=0) - reserve_bytes)


def read_memory_usage(device: str) -> MemoryUsage:
    """Current memory use of a device. Queries the driver (up to 1 ms): call it once a second, not per batch."""
    stats = Torch().allocator(device)
    kind = device.partition(":")[0]
    if kind == "cuda":
        import torch  # already imported by code that runs on CUDA

        free, total = torch.cuda.mem_get_info(device)
        return MemoryUsage(stats, int(free), 0 if stats.fraction is None else int(stats.fraction * total))
    if kind == "mps":
        import torch  # likewise

        limit = int(torch.mps.recommended_max_memory())
        return MemoryUsage(stats, max(0, limit - stats.reserved_bytes), 0 if stats.fraction is None else limit)
    return MemoryUsage(stats, free_memory_bytes())


@contextmanager
def gpu_memory_guard(
    need_bytes: int | None = None, device: str = "auto", *, read_usage: Callable[[str], MemoryUsage] = read_memory_usage
) -> Iterator[None]:
    """Guard a block that allocates device memory; on a CPU only ``need_bytes`` is checked.

    Empties torch's cache when the block runs out of memory (the error propagates) and, at the end, when the cache
    holds more than a quarter of the free memory. Emptying it after every batch costs more than it gains.

    Args:
        need_bytes: memory that the block will take; None skips the check.
        read_usage: returns the current memory use of a device.

    Raises: DoesNotFit before the block runs, when less than ``need_bytes`` is free.
    """
    target = placement(device).device
    if need_bytes is not None:
        _check_fit(target, need_bytes, read_usage)
    try:
        yield
    except Exception as error:
        if classify(error).kind is FaultKind.OUT_OF_MEMORY:
            release_frames(error)  # tensors held by the traceback's frames cannot be freed
            release(target)
        raise
    if not target.startswith("cpu") and _has_large_cache(read_usage(target)):
        release(target)


def cleanup_gpu_memory(device: str = "auto") -> int:
    """Free unused memory; returns the bytes that torch gave back to the driver.

    Call it after an out-of-memory error, after unloading a model or between two trainings, not after every batch.
    """
    target = placement(device).device
    before = Torch().allocator(target).reserved_bytes
    release(target)
    return max(0, before - Torch().allocator(target).reserved_bytes)


def advice(table: MemoryTable, length: int, count: int, free_bytes: int) -> str:
    """One sentence: what a batch of ``count`` x ``length`` tokens needs, what is free, and what would fit."""
    needed, free = table.peak_bytes(length, count), format_bytes(free_bytes)
    batch = f"a batch of {count} x {length} tokens" if count > 1 else f"one item of {length} tokens"
    if needed is None:
        text = f"{batch} is longer than anything measured ({table.lengths[-1]} tokens); {free} is free"
    else:
        text = f"{batch} needs {format_bytes(needed)}, {free} is free"
    fitting = table.max_count(length, free_bytes)
    remedies = [f"{fitting} fit"] if needed is not None and 1 <= fitting < count else []
    shorter = [bucket for bucket in table.lengths if bucket < length and table.max_count(bucket, free_bytes) >= count]
    if shorter and (needed is None or needed > free_bytes):
        remedies.append(f"shorten to {shorter[-1]} tokens")
    return f"{text}: {'; or '.join(remedies)}" if remedies else text


def format_bytes(count_bytes: int) -> str:
    """Bytes with a unit, such as "1.9 GiB"."""
    size, unit = float(count_bytes), 0
    while abs(size) >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.1f} {_UNITS[unit]}" if unit else f"{count_bytes} bytes"


def _check_fit(device: str, need_bytes: int, read_usage: Callable[[str], MemoryUsage]) -> None:
    now = read_usage(device)
    available = headroom_bytes(now.stats, now.free_bytes, now.ceiling_bytes, reserve_bytes=0)
    if need_bytes <= available or (now.free_bytes is None and not now.ceiling_bytes):  # unknown: let the block try
        return
    ceiling = f" under this process's ceiling of {format_bytes(now.ceiling_bytes)}" if now.ceiling_bytes else ""
    raise DoesNotFit(
        f"{format_bytes(need_bytes)} are needed on {device}, {format_bytes(available)} are free{ceiling}: "
        "run less at once, unload a model, or raise GPU_MEMORY_FRACTION"
    )


def _has_large_cache(now: MemoryUsage) -> bool:
    cached = now.stats.reserved_bytes - now.stats.active_bytes
    return now.free_bytes is not None and cached > _CACHED_RATIO_MAX * (now.free_bytes + cached)


def _throw_on_driver_oom() -> None:
    from torch._C import _accelerator_getAllocatorSettings as read  # until torch offers them publicly
    from torch._C import _accelerator_setAllocatorSettings as write

    with suppress(RuntimeError, ValueError):  # a build that refuses it: the limit alone applies
        write(
            _format_options({"throw_on_cudamalloc_oom": "True", **_parse_options(read())})
        )  # what is left out is reset


def _parse_options(text: str) -> dict[str, str]:
    pairs = (part.strip().partition(":") for part in _OPTION.findall(text))
    return {key.strip(): value.strip() for key, _, value in pairs if key.strip()}


def _format_options(options: dict[str, str]) -> str:
    return ",".join(f"{key}:{value}" for key, value in options.items())


def release(device: str) -> None:
    """Free unreferenced memory to the system and to other processes on the device. Thread-safe.

    For rare events such as an unload or an out-of-memory error. Not after each batch: garbage collection then costs
    more than it gains (FastVideo#606).
    """
    gc.collect()
    torch = sys.modules.get("torch")  # never imported: nothing to release
    kind = device.partition(":")[0]
    if torch is not None and kind == "cuda":
        with torch.cuda.device(device):
            torch.cuda.empty_cache()
    elif torch is not None and kind == "mps":
        torch.mps.empty_cache()
    trim_heap()


def trim_heap() -> None:
    """Have glibc return freed pages; otherwise 200 MiB of weights stay resident after an unload. Thread-safe."""
    if sys.platform != "linux":
        return
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # absent in musl
    if trim is not None:
        trim(0)
