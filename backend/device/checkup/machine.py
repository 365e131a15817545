"""PURE: what a check-up says of the ground: platform, memory, driver, torch."""

from __future__ import annotations

from collections.abc import Iterator

from backend.device.checkup.findings import Extras, Row, Status
from backend.device.choice.selection import gib, wants_gpu
from backend.device.records import DeviceType, MachineFacts, Platform

_MEMORY_MIN_BYTES = 3 * 2**29  # the bundled service at work: under 1 GiB resident (DESIGN §15), and room for requests
_SHM_MIN_BYTES = 2**30  # Docker's 64 MiB ends DataLoader workers with a bus error (pytorch#5040)
_DRIVER_CUDA_MIN = (12, 0)  # any driver of CUDA 12 runs the oldest build of torch, cu126 (minor-version compatibility)
_ABSENT = "not installed"  # device/nvml.py of a machine without a driver; every other fault is of one that is there
_MEND_DRIVER = "Make `nvidia-smi` answer first, on the host and then in the container."


def machine_rows(facts: MachineFacts, extras: Extras) -> Iterator[Row]:
    """Everything but the cards and what was chosen."""
    yield _platform(facts.platform)
    yield Row("processor", Status.OK, _processor(facts))
    yield _memory(facts)
    if facts.platform.shm_bytes is not None:
        yield _shared_memory(facts.platform.shm_bytes)
    yield _driver(facts, extras)
    yield _torch(facts)


def _platform(platform: Platform) -> Row:
    where = f"{platform.label} on {platform.machine}"
    if platform.system == "Windows":
        return Row(
            "platform",
            Status.WARN,
            where,
            "The service runs on Linux, macOS and WSL2. Under WSL2 the same card does the same work.",
            "wsl --install",
            "windows",
        )
    if platform.wsl:
        note = "the ceiling leaves 2 GiB free and memory is not pinned, because Windows shares both"
        return Row("platform", Status.OK, f"{where}: {note}", anchor="wsl2")
    return Row("platform", Status.OK, where)


def _processor(facts: MachineFacts) -> str:
    flags = f" ({', '.join(facts.cpu_flags)})" if facts.cpu_flags else ""
    return f"{facts.cpu_name or 'unknown'}, {facts.cores} usable core{'s' * (facts.cores != 1)}{flags}"


def _memory(facts: MachineFacts) -> Row:
    free = facts.free_memory_bytes
    what = gib(facts.memory_bytes) + (f", {gib(free)} free" if free is not None else "")
    if min(facts.memory_bytes, free if free is not None else facts.memory_bytes) >= _MEMORY_MIN_BYTES:
        return Row("memory", Status.OK, what)
    return Row(
        "memory",
        Status.WARN,
        f"{what}: the service with the bundled model wants {gib(_MEMORY_MIN_BYTES)}",
        "Raise the container's memory limit, or end what holds the memory.",
        anchor="memory-of-the-machine",
    )


def _shared_memory(shm_bytes: int) -> Row:
    what = f"{_size(shm_bytes)} in /dev/shm"
    if shm_bytes >= _SHM_MIN_BYTES:
        return Row("shared memory", Status.OK, what)
    return Row(
        "shared memory",
        Status.OK,  # the service itself uses none
        f"{what}: enough to serve; training wants {gib(_SHM_MIN_BYTES)} for its data",
        "Start a container for training with more; in compose: shm_size.",
        "docker run --shm-size=2g ...",
        "shared-memory",
    )


def _size(size_bytes: int) -> str:
    return gib(size_bytes) if size_bytes >= 2**30 else f"{size_bytes // 2**20} MiB"


def _driver(facts: MachineFacts, extras: Extras) -> Row:
    driver = facts.driver
    if not wants_gpu(extras.wishes):
        return Row("driver", Status.OK, "not asked for a GPU: USE_GPU=false or DEVICE=cpu")
    if not driver.version:
        return _no_driver(facts)
    cuda = f", runs CUDA up to {driver.cuda[0]}.{driver.cuda[1]}" if driver.cuda > (0, 0) else ""
    what = f"NVIDIA {driver.version}{cuda}"
    if driver.fault:
        return Row("driver", Status.WARN, f"{what}: {driver.fault}", _MEND_DRIVER, anchor="cuda-not-available")
    if (0, 0) < driver.cuda < _DRIVER_CUDA_MIN:
        wanted = ".".join(map(str, _DRIVER_CUDA_MIN))
        fix = "Install the newest driver for this card from https://www.nvidia.com/drivers."
        what = f"{what}: no torch of today runs on a driver of before CUDA {wanted}"
        return Row("driver", Status.WARN, what, fix, anchor="driver-too-old")
    if not facts.gpus:
        hidden = extras.visible is not None  # on purpose, as far as we can know
        fix = "" if hidden else "See whether `nvidia-smi` lists a card."
        what = f"{what}; {facts.why_no_gpu}"
        return Row("driver", Status.OK if hidden else Status.WARN, what, fix, anchor="cuda-not-available")
    return Row("driver", Status.OK, what)


def _no_driver(facts: MachineFacts) -> Row:
    if facts.gpu_type is DeviceType.MPS:
        return Row("driver", Status.OK, "none needed: Apple's GPU comes with the system")
    if facts.driver.fault and _ABSENT not in facts.driver.fault:
        return Row("driver", Status.WARN, facts.driver.fault, _MEND_DRIVER, anchor="cuda-not-available")
    what = "no NVIDIA driver is installed here"
    if facts.platform.container:
        fix = "If the host has an NVIDIA card, hand it in; the host needs the NVIDIA Container Toolkit."
        return Row("driver", Status.OK, what, fix, "docker run --gpus all ...", "container")
    return Row("driver", Status.OK, what, anchor="cuda-not-available")


def _torch(facts: MachineFacts) -> Row:
    build = facts.torch
    if not build.version:
        return Row("torch", Status.OK, "not imported: nothing on this machine needs it to be")
    if facts.gpu_type is DeviceType.MPS:
        kind = "with Metal"
    else:
        kind = (
            f"built for CUDA {build.cuda}"
            if build.cuda
            else f"built for ROCm {build.hip}"
            if build.hip
            else "CPU build"
        )
    archs = f", kernels for {_range(build.archs)}" if build.archs else ""
    return Row("torch", Status.OK, f"{build.version}, {kind}{archs}")


def _range(archs: tuple[str, ...]) -> str:
    return archs[0] if len(archs) == 1 else f"{archs[0]} to {archs[-1]}"
