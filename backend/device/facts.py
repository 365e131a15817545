"""What the machine has: usable cores, memory, accelerators. Reads only; decides nothing."""

from __future__ import annotations

import math
import os
import platform
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import psutil
import pynvml  # the module of the maintained package nvidia-ml-py

_CGROUP = Path("/sys/fs/cgroup")
_CPU_FLAGS = (
    "avx2",
    "avx512f",
    "avx512_vnni",
    "avx512_bf16",
    "amx_int8",
    "amx_bf16",
    "avx_vnni",
    "asimddp",
    "i8mm",
    "bf16",
)


class DeviceType(StrEnum):
    """The kinds of device, best first."""

    CUDA = "cuda"
    MPS = "mps"
    CPU = "cpu"


@dataclass(frozen=True, slots=True)
class GPUInfo:
    """One accelerator that this torch build can use."""

    index: int
    name: str
    uuid: str  # "" where the platform gives none (MPS)
    total_bytes: int
    capability: tuple[int, int]  # (0, 0) on MPS
    bf16: bool  # in hardware, not emulated


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """What was found. ``why_no_gpu`` is one sentence when there is no accelerator."""

    cores: int  # usable ones: affinity and cgroup quota counted
    cpu_name: str
    cpu_flags: tuple[str, ...]  # only those that matter for arithmetic
    memory_bytes: int  # of the cgroup where it is limited, else of the machine
    gpus: tuple[GPUInfo, ...] = ()
    gpu_type: DeviceType = DeviceType.CPU
    why_no_gpu: str = ""


def probe(*, look_for_gpu: bool = True, cgroup: Path = _CGROUP) -> MachineFacts:
    """Read the machine. Without ``look_for_gpu`` no accelerator library is touched.

    torch is imported only where an NVIDIA driver or Apple hardware makes a GPU possible: the import costs
    two seconds and 300 MiB that a CPU served by another runtime does not need.
    """
    name, flags = _cpu()
    gpus, kind, why = _accelerators() if look_for_gpu else ((), DeviceType.CPU, "USE_GPU=false or DEVICE=cpu")
    return MachineFacts(
        cores=usable_cores(cgroup),
        cpu_name=name,
        cpu_flags=flags,
        memory_bytes=memory_limit_bytes(cgroup),
        gpus=gpus,
        gpu_type=kind,
        why_no_gpu=why,
    )


def usable_cores(cgroup: Path = _CGROUP) -> int:
    """Cores this process may use: the smaller of its affinity and its cgroup quota (v2 ``cpu.max``, v1 ``cfs``)."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min(affinity, _quota_cores(cgroup))))


def memory_limit_bytes(cgroup: Path = _CGROUP) -> int:
    """Bytes this process may use: the smaller of the machine's memory and the cgroup's limit."""
    total = int(psutil.virtual_memory().total)
    for file in ("memory.max", "memory/memory.limit_in_bytes"):
        text = _read(cgroup / file)
        if text.isdigit():
            return min(total, int(text))
    return total


def resident_bytes() -> int:
    """Resident memory of this process."""
    return int(psutil.Process().memory_info().rss)


def _quota_cores(cgroup: Path) -> float:
    v2 = _read(cgroup / "cpu.max").split()
    if len(v2) == 2 and v2[0].isdigit():
        return int(v2[0]) / int(v2[1])
    quota, period = _read(cgroup / "cpu/cpu.cfs_quota_us"), _read(cgroup / "cpu/cpu.cfs_period_us")
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() else math.inf


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:  # not Linux, or not in a cgroup
        return ""


def _cpu() -> tuple[str, tuple[str, ...]]:
    name, flags = platform.processor() or platform.machine(), set[str]()
    for line in _read(Path("/proc/cpuinfo")).splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            name = value.strip()
        elif key.strip() in ("flags", "Features"):
            flags = set(value.split())
    return name, tuple(flag for flag in _CPU_FLAGS if flag in flags)


def _accelerators() -> tuple[tuple[GPUInfo, ...], DeviceType, str]:
    apple = platform.system() == "Darwin" and platform.machine() == "arm64"
    if not apple and not _nvidia_driver():
        return (), DeviceType.CPU, "no NVIDIA driver answers and this is not Apple silicon"
    import torch  # only where a GPU is possible: see probe()

    if torch.cuda.is_available():
        return tuple(_cuda(index) for index in range(torch.cuda.device_count())), DeviceType.CUDA, ""
    if torch.backends.mps.is_available():
        total = int(torch.mps.recommended_max_memory())
        return (GPUInfo(0, "Apple GPU", "", total, (0, 0), bf16=True),), DeviceType.MPS, ""
    return (
        (),
        DeviceType.CPU,
        f"a GPU is there, but torch {torch.__version__} cannot use it (CPU build, or driver too old)",
    )


def _cuda(index: int) -> GPUInfo:
    import torch  # as in _accelerators

    found = torch.cuda.get_device_properties(index)
    capability = (found.major, found.minor)
    return GPUInfo(index, found.name, str(found.uuid), found.total_memory, capability, bf16=capability >= (8, 0))


def _nvidia_driver() -> bool:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return False
    pynvml.nvmlShutdown()
    return True
