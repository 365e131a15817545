"""The memory of a device: its ceiling, what is free under it, a guard around work, and advice with numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from backend.device.batch_split import release_frames
from backend.device.default_device import placement
from backend.device.facts.host import free_memory_bytes
from backend.device.facts.torch_source import Torch
from backend.device.faults import FaultKind, classify
from backend.device.memory.memory_table import MemoryTable
from backend.device.memory.release import release
from backend.device.records import AllocatorStats, Platform, Process
from backend.errors import DoesNotFit

RESERVE_BYTES = 400 << 20  # for libraries' workspaces and fragments, as ComfyUI keeps (model_management.py)
_CACHED_RATIO_MAX = 0.25  # of what is free: above it a cache is worth giving back (the same file's rule)
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")
_OPTION = re.compile(r"(?:\[[^\]]*\]|[^,\[])+")  # commas inside brackets belong to the value


@dataclass(frozen=True, slots=True)
class Books:
    """What a device's memory looks like now."""

    stats: AllocatorStats  # of this process's allocator
    free_bytes: int | None  # at the driver, every process counted; None where nobody tells
    ceiling_bytes: int = 0  # of this process; 0 for none


def allocator_options(existing: str, *, fraction: float | None = None, platform: Platform) -> str:
    """What PYTORCH_ALLOC_CONF should be, before torch is imported; the user's ``existing`` value wins key by key.

    Expandable segments cure the fragmentation that mixed lengths cause, on native Linux only: Windows has none, and
    WSL2's driver maps memory in its own ways. Another backend than the native one gets no option of ours: it knows
    none of them.
    """
    options = _options(existing)
    if platform.system != "Linux" or options.get("backend", "native") != "native":
        return existing
    ours = {} if platform.wsl else {"expandable_segments": "True"}
    if fraction is not None and fraction < 1:
        ours["per_process_memory_fraction"] = f"{fraction:g}"
    return _text({**ours, **options})


def apply_ceiling(device: str, memory_bytes: int) -> str:
    """Hold this process under ``memory_bytes`` on ``device``, before its first allocation; says what was done.

    Over the ceiling torch first gives its own cache back and tries again, then raises OutOfMemoryError without asking
    the driver: a miss takes nothing from the device's other users. It covers torch alone, not the context (300 to
    500 MB), ONNX Runtime or other libraries.

    ``throw_on_cudamalloc_oom`` is set on ROCm only, where the driver's own out-of-memory aborts the process: it skips
    giving the cache back, so that elsewhere a cache of other lengths would make batches fail that fit (pytorch#179057).
    """
    kind = device.partition(":")[0]
    if memory_bytes <= 0 or kind not in ("cuda", "mps"):
        return f"no ceiling on {device}"
    import torch  # a CPU never comes here and must not pay for the import

    if kind == "mps":
        fraction = min(1.0, memory_bytes / int(torch.mps.recommended_max_memory()))
        torch.mps.set_per_process_memory_fraction(fraction)
    else:
        fraction = min(1.0, memory_bytes / int(torch.cuda.get_device_properties(device).total_memory))
        with torch.cuda.device(device):  # torch would leave this device the current one
            torch.cuda.set_per_process_memory_fraction(fraction, device)
        if torch.version.hip:
            _refuse_before_the_driver(torch)
    return f"this process takes at most {readable(memory_bytes)} of {device} ({fraction:.2f} of it)"


def headroom_bytes(
    stats: AllocatorStats, free_bytes: int | None, ceiling_bytes: int, *, reserve_bytes: int = RESERVE_BYTES
) -> int:
    """What a batch may take now: free at the driver and in torch's cache, under the ceiling, less a reserve.

    By the allocator's books and the driver's, never by the card's total: neighbours come and go (TGI#651).
    """
    bounds = []
    if free_bytes is not None:
        bounds.append(free_bytes + stats.reserved_bytes - stats.active_bytes)
    if ceiling_bytes > 0:
        bounds.append(ceiling_bytes - stats.allocated_bytes)
    return max(0, min(bounds, default=0) - reserve_bytes)


def read_books(device: str) -> Books:
    """The device's memory now. Reads the driver, which costs up to a millisecond: once a second, not once a batch."""
    stats = Torch().allocator(device)
    kind = device.partition(":")[0]
    if kind == "cuda":
        import torch  # whoever runs on CUDA has imported it already

        free, total = torch.cuda.mem_get_info(device)
        return Books(stats, int(free), 0 if stats.fraction is None else int(stats.fraction * total))
    if kind == "mps":
        import torch  # likewise on MPS

        limit = int(torch.mps.recommended_max_memory())
        return Books(stats, max(0, limit - stats.reserved_bytes), 0 if stats.fraction is None else limit)
    return Books(stats, free_memory_bytes())


@contextmanager
def gpu_memory_guard(
    need_bytes: int | None = None, device: str = "auto", *, books: Callable[[str], Books] = read_books
) -> Iterator[None]:
    """Run a block that needs device memory; on a CPU it is only the check.

    Gives torch's cache back when the block ran out of memory (the error goes on) and, at the end, when the cache
    holds more than a quarter of what is free: rarely, for emptying it after every batch costs more than it brings.

    Args:
        need_bytes: what the block will take; None to find out by trying.

    Raises: DoesNotFit before the block runs, when less than ``need_bytes`` is there.
    """
    where = placement(device).device
    if need_bytes is not None:
        _admit(where, need_bytes, books)
    try:
        yield
    except Exception as error:
        if classify(error).kind is FaultKind.OUT_OF_MEMORY:
            release_frames(error)  # what the block's frames hold cannot be given back
            release(where)
        raise
    if not where.startswith("cpu") and _hoards(books(where)):
        release(where)


def cleanup_gpu_memory(device: str = "auto") -> int:
    """Give back what nothing uses any more; the bytes that torch returned to the driver. For rare moments.

    After an out-of-memory error, on unloading a model, between two trainings; not after every batch.
    """
    where = placement(device).device
    before = Torch().allocator(where).reserved_bytes
    release(where)
    return max(0, before - Torch().allocator(where).reserved_bytes)


def advice(
    table: MemoryTable,
    length: int,
    count: int,
    free_bytes: int,
    *,
    processes: Sequence[Process] = (),
    own_pid: int = 0,
) -> str:
    """What a batch of ``count`` x ``length`` tokens needs, what is free, and what would fit, in one sentence."""
    needs = table.peak_bytes(length, count)
    what = f"a batch of {count} x {length} tokens" if count > 1 else f"one item of {length} tokens"
    if needs is None:
        text = f"{what} is longer than anything measured ({table.lengths[-1]} tokens); {readable(free_bytes)} is free"
    else:
        text = f"{what} needs {readable(needs)}, {readable(free_bytes)} is free"
    ways = [f"{most} fit"] if needs is not None and 1 <= (most := table.most(length, free_bytes)) < count else []
    shorter = [each for each in table.lengths if each < length and table.most(each, free_bytes) >= count]
    if shorter and (needs is None or needs > free_bytes):
        ways.append(f"shorten to {shorter[-1]} tokens")
    others = [one for one in processes if one[0] != own_pid and one[2]]
    if others and (needs is None or needs > free_bytes):
        pid, name, held = max(others, key=lambda one: one[2] or 0)
        ways.append(f"stop PID {pid}{f' ({name})' if name else ''}, which holds {readable(held or 0)}")
    return f"{text}: {'; or '.join(ways)}" if ways else text


def readable(count_bytes: int) -> str:
    """Bytes for people: "1.9 GiB"."""
    size, unit = float(count_bytes), 0
    while abs(size) >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.1f} {_UNITS[unit]}" if unit else f"{count_bytes} bytes"


def _admit(device: str, need_bytes: int, books: Callable[[str], Books]) -> None:
    now = books(device)
    room = headroom_bytes(now.stats, now.free_bytes, now.ceiling_bytes, reserve_bytes=0)
    if need_bytes <= room or (now.free_bytes is None and not now.ceiling_bytes):  # nobody knows: find out by trying
        return
    ceiling = f" under this process's ceiling of {readable(now.ceiling_bytes)}" if now.ceiling_bytes else ""
    raise DoesNotFit(
        f"{readable(need_bytes)} are needed on {device}, {readable(room)} are free{ceiling}: "
        "run less at once, unload a model, or raise GPU_MEMORY_FRACTION"
    )


def _hoards(now: Books) -> bool:
    cached = now.stats.reserved_bytes - now.stats.active_bytes
    return now.free_bytes is not None and cached > _CACHED_RATIO_MAX * (now.free_bytes + cached)


def _refuse_before_the_driver(torch: object) -> None:
    # until torch offers this publicly; a torch that does not know it keeps the plain ceiling
    private = getattr(torch, "_C", None)
    read = getattr(private, "_accelerator_getAllocatorSettings", None)
    write = getattr(private, "_accelerator_setAllocatorSettings", None)
    if read is None or write is None:
        return
    try:
        write(_text({"throw_on_cudamalloc_oom": "True", **_options(read())}))  # what is not said again is reset
    except (RuntimeError, ValueError):
        return


def _options(text: str) -> dict[str, str]:
    pairs = (part.strip().partition(":") for part in _OPTION.findall(text))
    return {key.strip(): value.strip() for key, _, value in pairs if key.strip()}


def _text(options: dict[str, str]) -> str:
    return ",".join(f"{key}:{value}" for key, value in options.items())
