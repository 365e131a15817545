"""Dictionaries on machine, cards and memory with the keys of the GPU guides; sizes in bytes and in GiB."""

from __future__ import annotations

import platform as standard
from typing import Any

from backend.device.facts import host
from backend.device.facts.compute_capability import architecture
from backend.device.plan.placement import Placement, card_of, memory_limit, workers_for
from backend.device.records import AllocatorStats, GPUInfo, MachineFacts, Platform

GIB = 1024**3


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
