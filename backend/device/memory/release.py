"""Giving memory back after a model was dropped: Python keeps, the C library keeps, the device's allocator keeps."""

from __future__ import annotations

import ctypes
import gc
import sys


def release(device: str) -> None:
    """Return what nothing refers to any more, to the system and to the device's other users. Any thread.

    Seconds-rare work, after an unload or an out-of-memory event; never after a batch, where the scan costs more
    than it brings (FastVideo#606).
    """
    gc.collect()
    torch = sys.modules.get("torch")  # nothing to release where it was never imported
    kind = device.partition(":")[0]
    if torch is not None and kind == "cuda":
        with torch.cuda.device(device):
            torch.cuda.empty_cache()
    elif torch is not None and kind == "mps":
        torch.mps.empty_cache()
    trim_heap()


def trim_heap() -> None:
    """Let glibc give freed pages back: without it 200 MiB of weights stay resident after an unload. Any thread."""
    if sys.platform != "linux":
        return
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # musl has none
    if trim is not None:
        trim(0)
