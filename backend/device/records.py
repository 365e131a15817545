"""The records and protocols of this floor: what a machine has and what its sources answer. Nothing is read here."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class GPULost(Exception):
    """The driver no longer answers for this card: it fell off the bus, or the driver went away."""


class DeviceType(StrEnum):
    """The kinds of device, best first."""

    CUDA = "cuda"
    MPS = "mps"
    CPU = "cpu"


@dataclass(frozen=True, slots=True)
class GPUInfo:
    """One accelerator of this machine that this process may see."""

    index: int  # torch's number, which "cuda:N" means in this process; -1 where torch does not see it
    name: str
    uuid: str  # "GPU-…" or "MIG-…" as NVML writes it; "" where the platform gives none (MPS)
    total_bytes: int
    capability: tuple[int, int]  # (0, 0) on MPS
    bf16: bool  # in hardware, not emulated
    free_bytes: int | None = None  # at the survey, every process counted; None where nobody tells
    unified: bool = False  # its memory is the machine's (GB10, Jetson, Apple)
    mig: str = ""  # profile of the slice, e.g. "1g.18gb"; "" for a whole card
    driver_model: str = ""  # "WDDM", "TCC" or "MCDM" on Windows
    fault: str = ""  # why this process cannot compute on it, as one sentence; "" when it can


@dataclass(frozen=True, slots=True)
class Driver:
    """NVIDIA's driver, as NVML tells."""

    version: str = ""  # "" where no driver answers
    cuda: tuple[int, int] = (0, 0)  # the newest CUDA it can run
    fault: str = ""  # why there is none, or what is wrong with it


@dataclass(frozen=True, slots=True)
class TorchBuild:
    """The installed torch, read without touching a device."""

    version: str = ""  # "" while torch was not imported: a CPU service does not need it
    cuda: str = ""  # "13.0"; "" for a CPU build
    hip: str = ""
    archs: tuple[str, ...] = ()  # ("sm_75", …, "compute_120"): what it carries kernels for


@dataclass(frozen=True, slots=True)
class Platform:
    """The ground it all stands on."""

    system: str = "Linux"  # "Linux", "Windows" or "Darwin"
    machine: str = "x86_64"  # or "aarch64", "arm64", …
    wsl: bool = False
    container: str = ""  # "docker", "podman", "kubernetes" or another; "" outside one
    shm_bytes: int | None = None  # size of /dev/shm; None where there is none

    @property
    def label(self) -> str:
        """One word for people: "WSL2", "Windows", "macOS" or "Linux", and the container if any."""
        name = "WSL2" if self.wsl else {"Darwin": "macOS"}.get(self.system, self.system)
        return f"{name} ({self.container})" if self.container else name


@dataclass(frozen=True, slots=True)
class Host:
    """The machine without its accelerators, as this process may use it."""

    cores: int  # usable ones: affinity and cgroup quota counted
    cpu_name: str
    cpu_flags: tuple[str, ...]  # only those that matter for arithmetic
    memory_bytes: int  # of the cgroup where it is limited, else of the machine
    free_memory_bytes: int | None  # of the machine or cgroup, at the survey
    platform: Platform = Platform()
    gpu_nodes: tuple[str, ...] = ()  # device files of a GPU that NVML may not know: Jetson, AMD, …


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """What was found. ``why_no_gpu`` is one sentence when no accelerator is usable."""

    cores: int  # usable ones: affinity and cgroup quota counted
    cpu_name: str
    cpu_flags: tuple[str, ...]  # only those that matter for arithmetic
    memory_bytes: int  # of the cgroup where it is limited, else of the machine
    gpus: tuple[GPUInfo, ...] = ()  # usable ones and others (see ``GPUInfo.fault``)
    gpu_type: DeviceType = DeviceType.CPU  # of the usable ones
    why_no_gpu: str = ""
    platform: Platform = Platform()
    driver: Driver = Driver()
    torch: TorchBuild = TorchBuild()
    free_memory_bytes: int | None = None  # of the machine or cgroup, at the survey

    @property
    def usable(self) -> tuple[GPUInfo, ...]:
        """The accelerators that this process can compute on."""
        return tuple(gpu for gpu in self.gpus if not gpu.fault)


@dataclass(frozen=True, slots=True)
class Card:
    """One card, or one MIG slice, as the driver tells; this process may see it or not."""

    uuid: str  # "GPU-…" or "MIG-…"
    name: str
    pci_index: int  # place in PCI bus order, as nvidia-smi counts; a slice has its parent's
    pci_bus_id: str = ""  # "00000000:01:00.0"; a slice has its parent's
    total_bytes: int | None = None
    free_bytes: int | None = None
    capability: tuple[int, int] | None = None
    driver_model: str = ""  # "WDDM", "TCC" or "MCDM" on Windows
    mig: str = ""  # profile of the slice, e.g. "1g.18gb"; "" for a whole card
    parent_uuid: str = ""  # of the card that a slice belongs to
    unified: bool = False  # has no memory of its own: the numbers are the machine's
    ecc: bool | None = None  # error-correcting memory is on
    fault: str = ""  # what the driver holds against it, as one sentence


Process = tuple[int, str, int | None]  # pid, name ("" where hidden), bytes on the card (None where hidden: WDDM, WSL2)


@dataclass(frozen=True, slots=True)
class CardSample:
    """One reading of one card. None means that this card or platform does not tell, never zero.

    A MIG slice has memory and processes of its own; what the board measures (temperature, power, clocks,
    throttling, errors) is its parent's, as DCGM reports it too.
    """

    used_bytes: int | None = None  # every process counted
    free_bytes: int | None = None
    total_bytes: int | None = None
    utilization_ratio: float | None = None  # share of the last second or less in which some kernel ran
    bandwidth_ratio: float | None = None  # share in which memory was read or written; not how full it is
    temperature_celsius: float | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    energy_joules: float | None = None  # since the driver was loaded
    clocks_hz: tuple[tuple[str, int], ...] | None = None  # domain "graphics", "sm", "memory" or "video", hertz
    throttle: tuple[str, ...] | None = None  # reasons at work now, e.g. "sw_power_cap"; () runs freely
    ecc_errors: int | None = None  # uncorrected, since the driver was loaded
    pcie_replays: int | None = None  # since the driver was loaded
    xid_errors: tuple[tuple[int, int], ...] | None = None  # (xid, count) since we listen; () none yet
    processes: tuple[Process, ...] | None = None  # of every user, largest first


@dataclass(frozen=True, slots=True)
class TorchDevice:
    """One accelerator as torch numbers it, read from its properties alone (no context is opened)."""

    index: int
    name: str
    uuid: str  # "GPU-…" form whatever torch wrote; "" where it gives none
    total_bytes: int
    capability: tuple[int, int]  # (0, 0) on MPS
    pci_bus_id: str = ""  # as NVML writes it; "" where torch does not tell
    integrated: bool = False  # its memory is the machine's


@dataclass(frozen=True, slots=True)
class AllocatorStats:
    """torch's allocator on one device; zeros where it keeps no books (CPU), None where the number has no meaning."""

    allocated_bytes: int = 0  # in live tensors
    reserved_bytes: int = 0  # taken from the driver
    active_bytes: int = 0  # in blocks that cannot be handed out now; reserved - active can
    peak_allocated_bytes: int = 0
    peak_reserved_bytes: int = 0
    retries: int = 0  # times it emptied its cache to go on: the sign before an out-of-memory
    ooms: int = 0
    rejections: int = 0  # refused by our own ceiling, the driver not asked
    fraction: float | None = None  # of the card's memory that this process may take; None where torch keeps no ceiling


class DriverSource(Protocol):
    """The driver's side: cards and readings, without opening a context on any of them. Safe from every thread."""

    def driver(self) -> Driver:
        """The driver, or why there is none. Never raises."""
        ...

    def cards(self) -> tuple[Card, ...]:
        """Every card in PCI order, MIG slices in place of their card. Never raises: no driver, no cards."""
        ...

    def sample(self, uuid: str) -> CardSample:
        """One reading. Raises: GPULost when the card or the driver no longer answers; later calls may succeed."""
        ...

    def processes(self, uuid: str) -> tuple[Process, ...]:
        """Who holds memory on it, largest first. Raises: GPULost as ``sample``."""
        ...

    def close(self) -> None:
        """Let go of the driver; the next call takes hold of it again."""
        ...


class TorchSource(Protocol):
    """torch's side; imports torch on the first call. Never raises for want of a GPU."""

    def build(self) -> TorchBuild:
        """What is installed; an empty version where torch cannot be imported."""
        ...

    def devices(self) -> tuple[TorchDevice, ...]:
        """CUDA (or ROCm) devices as this process numbers them; none where torch cannot use one."""
        ...

    def mps(self) -> TorchDevice | None:
        """Apple's GPU, or None."""
        ...

    def fault(self) -> str:
        """What torch said when ``devices`` found none, as one sentence; "" when it said nothing."""
        ...

    def try_kernel(self, device: str) -> str:
        """Run one small real kernel on "cuda:0", "mps" or "cpu": "" or what went wrong, as one sentence.

        Opens a context on that device: call it for the chosen ones only.
        """
        ...

    def allocator(self, device: str) -> AllocatorStats:
        """The allocator's books of "cuda:0", "mps" or "cpu"; opens no context."""
        ...
