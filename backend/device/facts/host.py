"""Reads what the host gives this process: cores, memory, CPU, platform. Uses files and psutil, no GPU library."""

from __future__ import annotations

import math
import os
import platform as standard
import shutil
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psutil

from backend.device.facts import amx
from backend.device.records import DeviceType, MachineFacts, Platform

CGROUP = Path("/sys/fs/cgroup")
ROOT = Path("/")
_PROCESS_GROUPS = Path("/proc/self/cgroup")
_CPU_FLAGS = (
    "avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16", "avx_vnni", "asimddp", "i8mm", "bf16",
)  # fmt: skip
# Container runtimes: name in a cgroup path or /run/systemd/container -> usual name; the first match counts.
_RUNTIMES = {
    "kubepods": "kubernetes", "docker": "docker", "libpod": "podman", "podman": "podman", "containerd": "containerd",
    "lxc": "lxc", "systemd-nspawn": "systemd-nspawn",
}  # fmt: skip
# Device files of GPUs that work without NVML: a container with NVIDIA_DRIVER_CAPABILITIES=compute but not "utility", a
# Jetson, an AMD card. WSL2's /dev/dxg exists for cards of every vendor and proves nothing.
_GPU_NODES = ("dev/nvidiactl", "dev/nvhost-gpu", "dev/kfd")
Which = Callable[[str], str | None]  # name of a program -> its path, as shutil.which


def read_host(cgroup: Path = CGROUP, root: Path = ROOT) -> MachineFacts:
    """Read the machine without its accelerators. ``root`` replaces "/" in tests."""
    name, flags = cpu(root)
    return MachineFacts(
        cores=usable_cores(cgroup),
        cpu_name=name,
        cpu_flags=flags,
        memory_bytes=memory_limit_bytes(cgroup),
        free_memory_bytes=free_memory_bytes(cgroup),
        platform=platform(root),
        gpu_nodes=tuple(f"/{node}" for node in _GPU_NODES if (root / node).exists()),
    )


def usable_cores(cgroup: Path = CGROUP, process_groups: Path = _PROCESS_GROUPS) -> int:
    """Cores this process may use: the smaller of its affinity and its cgroup quota (v2 ``cpu.max``, v1 ``cfs``).

    Args:
        process_groups: the file that lists this process's cgroups; their limits and those of their parents apply.
    """
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min(affinity, _quota_cores(cgroup, process_groups))))


def memory_limit_bytes(cgroup: Path = CGROUP, process_groups: Path = _PROCESS_GROUPS) -> int:
    """Bytes this process may use: the smaller of the machine's memory and the cgroup's limit."""
    limits = [limit for _, limit in _memory_groups(cgroup, process_groups)]
    return min(int(psutil.virtual_memory().total), *limits, 1 << 63)


def container_share_bytes(cgroup: Path = CGROUP) -> int | None:
    """Four fifths of what a control group leaves this process, as parsers and uploads need the rest; None without one.

    A group whose limit is the machine's memory, or more, is none.
    """
    limit = memory_limit_bytes(cgroup)
    return limit * 4 // 5 if limit < psutil.virtual_memory().total else None


def free_memory_bytes(cgroup: Path = CGROUP, process_groups: Path = _PROCESS_GROUPS) -> int:
    """Bytes this process can still take: the least that the machine has available and each cgroup has left.

    Reclaimable page cache counts as free, as in the kernel's own MemAvailable.
    """
    free = int(psutil.virtual_memory().available)
    for folder, limit in _memory_groups(cgroup, process_groups):
        used = _number(folder / "memory.current") or _number(folder / "memory.usage_in_bytes")
        cache = _statistic(folder / "memory.stat", "total_inactive_file", "inactive_file")
        free = min(free, max(0, limit - (used or 0) + cache))
    return free


def resident_bytes() -> int:
    """Resident memory (RSS) of this process."""
    return int(psutil.Process().memory_info().rss)


def cpu(root: Path = ROOT) -> tuple[str, tuple[str, ...]]:
    """The processor's name and those of its flags that matter for arithmetic, in a fixed order.

    Without those that oneDNN is kept from using.
    """
    name, flags = standard.processor() or standard.machine(), set[str]()
    for line in read(root / "proc/cpuinfo").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            name = value.strip()
        elif key.strip() in ("flags", "Features"):
            flags = set(value.split())
    flags -= amx.flags_beyond_limit()
    return name, tuple(flag for flag in _CPU_FLAGS if flag in flags)


def platform(root: Path = ROOT) -> Platform:
    """The operating system, processor architecture, WSL and container."""
    return Platform(
        system=standard.system() or "unknown",
        machine=standard.machine() or "unknown",
        wsl=_is_wsl(root),
        container=_container(root),
        shm_bytes=_shm_bytes(root),
        c_compiler=not compiler_fault(DeviceType.CUDA),
    )


def read(file: Path) -> str:
    """The text of a small file; "" when it is missing or not readable."""
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:  # not Linux, not in a cgroup, or no permission
        return ""


def _is_wsl(root: Path) -> bool:
    # A container on WSL2 has the kernel's version, but not always the interop entry.
    kernel = read(root / "proc/version").lower()
    return "microsoft" in kernel or (root / "proc/sys/fs/binfmt_misc/WSLInterop").exists()


def _container(root: Path) -> str:
    if (root / "var/run/secrets/kubernetes.io/serviceaccount").exists():
        return "kubernetes"
    if (root / ".dockerenv").exists():
        return "docker"
    if (root / "run/.containerenv").exists():
        return "podman"
    text = read(root / "proc/1/cgroup") + read(root / "proc/self/cgroup") + read(root / "run/systemd/container")
    return next((name for sign, name in _RUNTIMES.items() if sign in text), "")


def _shm_bytes(root: Path) -> int | None:
    try:
        return shutil.disk_usage(root / "dev/shm").total
    except OSError:  # macOS and Windows have none
        return None


def _quota_cores(cgroup: Path, process_groups: Path) -> float:
    quotas = [math.inf]
    for folder in _groups(cgroup, "", process_groups):
        v2 = read(folder / "cpu.max").split()
        if len(v2) == 2 and v2[0].isdigit() and v2[1].isdigit():
            quotas.append(int(v2[0]) / int(v2[1]))
    for folder in _groups(cgroup, "cpu", process_groups):
        quota, period = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
        if quota is not None and period:
            quotas.append(quota / period)
    return min(quotas)


def _memory_groups(cgroup: Path, process_groups: Path) -> list[tuple[Path, int]]:
    """Every cgroup folder with a memory limit, and the limit in bytes."""
    limits = [(folder, _number(folder / "memory.max")) for folder in _groups(cgroup, "", process_groups)]
    limits += [
        (folder, _number(folder / "memory.limit_in_bytes")) for folder in _groups(cgroup, "memory", process_groups)
    ]
    return [(folder, limit) for folder, limit in limits if limit is not None]


def _groups(cgroup: Path, controller: str, process_groups: Path) -> Iterator[Path]:
    """The process's folder for a controller ("" is v2's only one) and its parents, up to the mount.

    In a container the mount usually is the process's own group; a systemd service is deeper in the tree.
    """
    for line in read(process_groups).splitlines():
        _, _, entry = line.partition(":")
        controllers, _, path = entry.partition(":")
        if controller in controllers.split(",") and ".." not in path:
            folder = cgroup / controller / path.lstrip("/")
            while folder != cgroup / controller:
                yield folder
                folder = folder.parent
    yield cgroup / controller


def _number(file: Path) -> int | None:
    text = read(file)
    return int(text) if text.isdigit() else None  # "max" and "-1" are no limit


def _statistic(file: Path, *names: str) -> int:
    values = dict(line.split(" ", 1) for line in read(file).splitlines() if " " in line)
    return next((int(values[name]) for name in names if values.get(name, "").isdigit()), 0)


def compiler_fault(
    kind: DeviceType = DeviceType.CUDA,
    *,
    environ: Mapping[str, str] | None = None,
    which: Which = shutil.which,
    include: Path | None = None,
) -> str:
    """Why torch.compile cannot work on such a device, as one sentence; "" when nothing is missing.

    On a card Triton builds the launcher of its kernels in C, with ``CC``, gcc or clang and Python.h
    (triton/runtime/build.py); on a CPU Inductor builds C++, with ``CXX`` or g++ (torch/_inductor/cpp_builder.py).

    Args:
        environ, which, include: this process's, unless a test gives others.
    """
    environ = os.environ if environ is None else environ
    variable, names = ("CXX", ("g++", "clang++")) if kind is DeviceType.CPU else ("CC", ("gcc", "clang"))
    wanted = environ.get(variable, "")
    if not any(which(name) for name in ([wanted] if wanted else names)):
        found = f"{variable}={wanted} is not a program" if wanted else f"neither {' nor '.join(names)} is installed"
        return f"torch.compile builds its kernels with a compiler, and {found} (apt-get install {names[0]} libc6-dev)"
    headers = include or Path(sysconfig.get_paths()["include"])
    if kind is not DeviceType.CPU and not (headers / "Python.h").is_file():
        return f"torch.compile builds against Python's headers, and {headers.name} lacks Python.h (python3-dev)"
    return ""
