"""Settings of the GPU manager, validated at creation and at every assignment; and reports of devices."""

from __future__ import annotations

import platform as standard
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backend.device import default_device
from backend.device.choice.saved_choice import ChoiceFile
from backend.device.choice.selection import FORMS
from backend.device.facts import host
from backend.device.facts.compute_capability import architecture
from backend.device.plan.attention import check_flash_attention
from backend.device.plan.placement import Placement, card_of, memory_limit, workers_for
from backend.device.records import AllocatorStats, GPUInfo, MachineFacts, Platform
from backend.errors import BadSettings

_DEVICE = re.compile(r"auto|cpu|mps|cuda(:all|:\d+(,cuda:\d+)*)?")
_UNSET: Any = object()
GIB = 1024**3


@dataclass(slots=True)
class GPUConfig:
    """Settings of a program. What is None is chosen from the machine.

    Fields may be assigned later (``config.pin_memory = True``): the manager reads them at each use. An invalid value
    raises and leaves the old one.

    Raises: BadSettings with all faults together.
    """

    device: str = "auto"  # as DEVICE: "auto", "cpu", "mps", "cuda", "cuda:1", "cuda:all", "cuda:0,cuda:1"
    device_ids: Sequence[int] | None = None  # cards by their number in this process; the first one computes
    memory_fraction: float | None = None  # of a card's whole memory, above 0 up to 1; None: 90 % of what is free
    enable_mixed_precision: bool = True  # where the device has bf16 or fp16 of its own
    enable_gradient_checkpointing: bool = False  # recompute activations in the backward pass
    enable_data_parallel: bool = False  # nn.DataParallel over device_ids: one process, slower than distributed
    enable_distributed: bool = False  # DistributedDataParallel; start one process a card with torchrun
    pin_memory: bool | None = None  # of the data loader
    num_workers: int | None = None  # of the data loader
    prefetch_factor: int | None = None  # batches ahead, for each worker
    persistent_workers: bool | None = None  # kept between epochs
    empty_cache_interval: int = 0  # in steps; 0: never. Emptying costs time and frees nothing torch needs
    cudnn_benchmark: bool = False  # benchmarks kernels for each new shape: for constant shapes only
    allow_tf32: bool | None = None  # float32 products with 10 bits of mantissa; None leaves torch's own setting
    choice_file: Path | None = None  # of ``config``; None: where check_gpu --choose saves the card, in STATE_DIR

    def __post_init__(self) -> None:
        self._check()

    def __setattr__(self, name: str, value: Any) -> None:
        """Assign and validate; an invalid value raises and the old one stays."""
        old = getattr(self, name, _UNSET)
        object.__setattr__(self, name, value)
        if old is _UNSET:  # in __init__: __post_init__ checks all fields together
            return
        try:
            self._check()
        except BadSettings:
            object.__setattr__(self, name, old)
            raise

    @property
    def wanted(self) -> str:
        """The requested devices in the syntax of DEVICE; ``device_ids`` are CUDA cards."""
        if self.device_ids is None:
            return self.device
        return ",".join(f"cuda:{index}" for index in self.device_ids)

    @property
    def config(self) -> dict[str, Any]:
        """The saved choice: ``selected_gpu_id`` (the card's current number, None if it is gone) and more."""
        saved = ChoiceFile(self.choice_file).load() if self.choice_file else default_device.saved_choice()
        if saved is None:
            return {"selected_gpu_id": None}
        index = next((gpu.index for gpu in default_device.machine_facts().gpus if saved.is_for(gpu)), None)
        return {"selected_gpu_id": index, "uuid": saved.uuid, "name": saved.name, "chosen_at": saved.chosen_at}

    @staticmethod
    def detect_platform() -> dict[str, Any]:
        """Same as `detect_platform`."""
        return detect_platform()

    @staticmethod
    def check_flash_attention() -> dict[str, Any]:
        """Same as ``attention.check_flash_attention``."""
        return dict(check_flash_attention())

    @staticmethod
    def get_gpu_info() -> list[dict[str, Any]]:
        """Every card of this machine, usable or not."""
        facts = default_device.machine_facts()
        return [card_dict(facts, gpu) for gpu in facts.gpus]

    def _check(self) -> None:
        if faults := [*_device_faults(self), *_number_faults(self)]:
            raise BadSettings(faults)


def _device_faults(config: GPUConfig) -> Iterator[str]:
    if not _DEVICE.fullmatch(str(config.device)):
        yield f"device={config.device!r} is not a device; use {FORMS}"
    ids = config.device_ids
    if ids is not None:
        if not ids or len(set(ids)) < len(ids) or any(not _is_count(index) for index in ids):
            yield f"device_ids={ids!r}: different card numbers from 0 up, for example [0, 1]"
        if config.device not in ("auto", "cuda"):
            yield f"device_ids={ids!r} contradicts device={config.device!r}; leave one of them out"
    if config.enable_data_parallel and config.enable_distributed:
        yield "enable_data_parallel contradicts enable_distributed; distributed is the faster one"


def _number_faults(config: GPUConfig) -> Iterator[str]:
    fraction = config.memory_fraction
    if fraction is not None and not 0 < fraction <= 1:
        yield f"memory_fraction={fraction!r}: must be above 0 and at most 1, for example 0.9"
    if config.num_workers is not None and not _is_count(config.num_workers):
        yield f"num_workers={config.num_workers!r}: a whole number from 0 up"
    if config.prefetch_factor is not None and (not _is_count(config.prefetch_factor) or config.prefetch_factor < 1):
        yield f"prefetch_factor={config.prefetch_factor!r}: a whole number from 1 up"
    if not _is_count(config.empty_cache_interval):
        yield f"empty_cache_interval={config.empty_cache_interval!r}: steps from 0 (never) up"
    if config.num_workers == 0 and (config.prefetch_factor is not None or config.persistent_workers):
        yield "num_workers=0 leaves nobody for prefetch_factor or persistent_workers; raise it or leave them out"


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def detect_platform() -> dict[str, Any]:
    """The operating system and container of this process; does not look for a GPU."""
    return platform_dict(host.platform())


def platform_dict(platform: Platform) -> dict[str, Any]:
    """``system``, ``label``, ``is_wsl``, ``is_windows``, ``is_linux``, ``is_macos``, ``is_container``, ``container``,
    ``machine``, ``python``, ``shm_bytes`` and ``advice`` (a sentence, or "").
    """  # noqa: D205  # one list
    advice = ""
    if platform.wsl:
        advice = "WSL2 moves GPU memory to the host without telling, so at most 80 % of a card is used"
    elif platform.system == "Windows":
        advice = "under WSL2 there is more: growing allocator segments, GPU containers and most prebuilt kernels"
    return {
        "system": platform.system,
        "label": platform.label,
        "is_wsl": platform.wsl,
        "is_windows": platform.system == "Windows",
        "is_linux": platform.system == "Linux",
        "is_macos": platform.system == "Darwin",
        "is_container": bool(platform.container),
        "container": platform.container,
        "machine": platform.machine,
        "python": standard.python_version(),
        "shm_bytes": platform.shm_bytes,
        "advice": advice,
    }


def card_dict(facts: MachineFacts, gpu: GPUInfo) -> dict[str, Any]:
    """One card: identity, generation, memory, how many processes fit on it, and why it is unusable or ""."""
    generation = architecture(gpu.capability) if gpu.capability != (0, 0) else None
    return {
        "id": gpu.index,
        "name": gpu.name,
        "uuid": gpu.uuid,
        "architecture": f"{generation.name} ({generation.sm})" if generation else "Apple",
        "compute_capability": ".".join(map(str, gpu.capability)) if generation else "",
        "total_memory": gpu.total_bytes,
        "memory_gb": gpu.total_bytes / GIB,
        "free_memory": gpu.free_bytes,
        "suggested_workers": 0 if gpu.fault else workers_for(memory_limit(facts, gpu)),
        "bf16": gpu.bf16,
        "unified_memory": gpu.unified,
        "mig_profile": gpu.mig,
        "fault": gpu.fault,
    }


def device_dict(facts: MachineFacts, placement: Placement) -> dict[str, Any]:
    """The fields of ``card_dict`` for the device a placement names, and ``device``, ``type``, ``device_name``,
    ``gpu_count`` (usable ones), ``dtypes`` worth trying, ``memory_ceiling`` in bytes and ``why``. Same keys on a CPU.
    """  # noqa: D205  # one list
    gpu = card_of(facts, placement)
    info = card_dict(facts, gpu) if gpu else _cpu_dict(facts, placement)
    return {
        **info,
        "device": placement.device,
        "type": placement.type.value,
        "device_name": info["name"],
        "gpu_count": len(facts.usable),
        "dtypes": placement.dtypes,
        "memory_ceiling": placement.memory_bytes,
        "why": placement.why,
    }


def memory_dict(stats: AllocatorStats, free_bytes: int, total_bytes: int) -> dict[str, float]:
    """Memory of torch and of the device: each amount as ``…_bytes`` and ``…_gb``, and the ``used_ratio``.

    Args:
        stats: of this process's allocator.
        free_bytes: on the device, all processes counted.
    """
    used_bytes = total_bytes - free_bytes
    amounts = {
        "allocated": stats.allocated_bytes,
        "reserved": stats.reserved_bytes,
        "cached": stats.reserved_bytes - stats.allocated_bytes,
        "peak_allocated": stats.peak_allocated_bytes,
        "used": used_bytes,
        "free": free_bytes,
        "total": total_bytes,
    }
    return {
        **{f"{name}_bytes": amount for name, amount in amounts.items()},
        **{f"{name}_gb": amount / GIB for name, amount in amounts.items()},
        "used_ratio": used_bytes / total_bytes if total_bytes else 0.0,
    }


def _cpu_dict(facts: MachineFacts, placement: Placement) -> dict[str, Any]:
    return {
        "id": None,
        "name": facts.cpu_name,
        "uuid": "",
        "architecture": facts.platform.machine,
        "compute_capability": "",
        "total_memory": facts.memory_bytes,
        "memory_gb": facts.memory_bytes / GIB,
        "free_memory": facts.free_memory_bytes,
        "suggested_workers": placement.workers,
        "bf16": "bf16" in placement.dtypes,
        "unified_memory": False,
        "mig_profile": "",
        "fault": "",
    }
