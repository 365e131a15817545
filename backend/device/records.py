"""Records and protocols of the device package: what a machine has, and where that is read. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class GPULost(Exception):
    """The driver no longer answers for this card: it fell off the bus, or the driver was unloaded."""


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
    free_bytes: int | None = None  # when probed, every process counted; None where no source reports it
    unified: bool = False  # its memory is the machine's (GB10, Jetson, Apple)
    mig: str = ""  # profile of the slice, e.g. "1g.18gb"; "" for a whole card
    driver_model: str = ""  # "WDDM", "TCC" or "MCDM" on Windows
    fault: str = ""  # why this process cannot compute on it, as one sentence; "" when it can


@dataclass(frozen=True, slots=True)
class Driver:
    """NVIDIA's driver, as NVML reports it."""

    version: str = ""  # "" when no driver answers
    cuda: tuple[int, int] = (0, 0)  # the newest CUDA it can run
    fault: str = ""  # why there is none, or what is wrong with it


@dataclass(frozen=True, slots=True)
class TorchBuild:
    """The installed torch, read without touching a device."""

    version: str = ""  # "" when torch is not imported: a CPU service does not need it
    cuda: str = ""  # "13.0"; "" for a CPU build
    hip: str = ""
    archs: tuple[str, ...] = ()  # ("sm_75", …, "compute_120"): architectures that it has kernels for


@dataclass(frozen=True, slots=True)
class Platform:
    """Operating system, processor architecture and container of this process."""

    system: str = "Linux"  # "Linux", "Windows" or "Darwin"
    machine: str = "x86_64"  # or "aarch64", "arm64", …
    wsl: bool = False
    container: str = ""  # "docker", "podman", "kubernetes" or another; "" outside one
    shm_bytes: int | None = None  # size of /dev/shm; None where there is none
    c_compiler: bool = True  # with Python's headers: what torch.compile needs on a card

    @property
    def label(self) -> str:
        """For display: "WSL2", "Windows", "macOS" or "Linux", with the container if any."""
        name = "WSL2" if self.wsl else {"Darwin": "macOS"}.get(self.system, self.system)
        return f"{name} ({self.container})" if self.container else name


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """What ``probe`` found on this machine."""

    cores: int  # usable ones, after affinity and cgroup quota
    cpu_name: str
    cpu_flags: tuple[str, ...]  # only those that matter for arithmetic
    memory_bytes: int  # the cgroup's limit if there is one, else the machine's memory
    gpus: tuple[GPUInfo, ...] = ()  # unusable ones too (see ``GPUInfo.fault``)
    gpu_type: DeviceType = DeviceType.CPU  # of the usable ones
    why_no_gpu: str = ""  # one sentence when no accelerator is usable
    platform: Platform = Platform()
    driver: Driver = Driver()
    torch: TorchBuild = TorchBuild()
    free_memory_bytes: int | None = None  # of the machine or cgroup, when probed
    gpu_nodes: tuple[str, ...] = ()  # device files of GPUs that NVML may not know: Jetson, AMD, …

    @property
    def usable(self) -> tuple[GPUInfo, ...]:
        """The accelerators that this process can compute on."""
        return tuple(gpu for gpu in self.gpus if not gpu.fault)


@dataclass(frozen=True, slots=True)
class Card:
    """One card or MIG slice as the driver lists it, visible to this process or not."""

    uuid: str  # "GPU-…" or "MIG-…"
    name: str
    pci_index: int  # position in PCI bus order, as in nvidia-smi; a slice has its parent's
    pci_bus_id: str = ""  # "00000000:01:00.0"; a slice has its parent's
    total_bytes: int | None = None
    free_bytes: int | None = None
    capability: tuple[int, int] | None = None
    driver_model: str = ""  # "WDDM", "TCC" or "MCDM" on Windows
    mig: str = ""  # profile of the slice, e.g. "1g.18gb"; "" for a whole card
    parent_uuid: str = ""  # of the card that a slice belongs to
    unified: bool = False  # has no memory of its own: the figures are the machine's
    ecc: bool | None = None  # whether error-correcting memory is on
    fault: str = ""  # why the driver cannot use it, as one sentence


Process = tuple[int, str, int | None]  # pid, name ("" where hidden), bytes on the card (None where hidden: WDDM, WSL2)


@dataclass(frozen=True, slots=True)
class CardSample:
    """The sensors of one card at one time. None means that this card or platform does not report it, never zero.

    A MIG slice has memory and processes of its own; what the board measures (temperature, power, clocks,
    throttling, errors) is its parent's, as in DCGM.
    """

    used_bytes: int | None = None  # every process counted
    free_bytes: int | None = None
    total_bytes: int | None = None
    utilization_ratio: float | None = None  # share of the last second or less in which some kernel ran
    bandwidth_ratio: float | None = None  # share of the time in which memory was read or written; not how full it is
    temperature_celsius: float | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    energy_joules: float | None = None  # since the driver was loaded
    clocks_hz: tuple[tuple[str, int], ...] | None = None  # domain "graphics", "sm", "memory" or "video", hertz
    throttle: tuple[str, ...] | None = None  # reasons in force now, e.g. "sw_power_cap"; () when not throttled
    ecc_errors: int | None = None  # uncorrected, since the driver was loaded
    pcie_replays: int | None = None  # since the driver was loaded
    xid_errors: tuple[tuple[int, int], ...] | None = None  # (xid, count) since the first sample; () for none yet
    processes: tuple[Process, ...] | None = None  # of every user, largest first


@dataclass(frozen=True, slots=True)
class TorchDevice:
    """One accelerator as torch numbers it, from its properties alone (no CUDA context is created)."""

    index: int
    name: str
    uuid: str  # normalized to "GPU-…"; "" where torch gives none
    total_bytes: int
    capability: tuple[int, int]  # (0, 0) on MPS
    pci_bus_id: str = ""  # as NVML writes it; "" where torch gives none
    integrated: bool = False  # its memory is the machine's


@dataclass(frozen=True, slots=True)
class AllocatorStats:
    """Statistics of torch's allocator on one device; zeros where torch has none (CPU)."""

    allocated_bytes: int = 0  # in live tensors
    reserved_bytes: int = 0  # taken from the driver
    active_bytes: int = 0  # in blocks that are in use; reserved - active is free for new tensors
    peak_allocated_bytes: int = 0
    peak_reserved_bytes: int = 0
    retries: int = 0  # times it emptied its cache to serve an allocation: a sign that out-of-memory is near
    ooms: int = 0
    rejections: int = 0  # refused by this process's own memory limit, without asking the driver
    fraction: float | None = None  # of the card's memory that this process may take; None where torch has no limit


class DriverSource(Protocol):
    """Reads cards and their sensors from the driver, without creating CUDA contexts. Thread-safe."""

    def driver(self) -> Driver:
        """The driver's version, or why none answers. Never raises."""
        ...

    def cards(self) -> tuple[Card, ...]:
        """Every card in PCI order, MIG slices instead of their card; () without a driver. Never raises."""
        ...

    def sample(self, uuid: str) -> CardSample:
        """The sensors now. Raises: GPULost when the card or the driver no longer answers; later calls may succeed."""
        ...

    def processes(self, uuid: str) -> tuple[Process, ...]:
        """The processes with memory on the card, largest first. Raises: GPULost as ``sample``."""
        ...

    def close(self) -> None:
        """Release the driver; the next call initialises it again."""
        ...


class TorchSource(Protocol):
    """Reads devices from torch, which it imports on the first call. A missing GPU raises nothing."""

    def build(self) -> TorchBuild:
        """The installed torch; an empty version when it cannot be imported."""
        ...

    def devices(self) -> tuple[TorchDevice, ...]:
        """CUDA (or ROCm) devices as this process numbers them; () when torch can use none."""
        ...

    def mps(self) -> TorchDevice | None:
        """Apple's GPU, or None."""
        ...

    def fault(self) -> str:
        """Why ``devices`` found none, as torch's warning or error in one sentence; "" without one."""
        ...

    def try_kernel(self, device: str) -> str:
        """Run one small kernel on "cuda:0", "mps" or "cpu" and check its result: "" or the error as one sentence.

        Creates a context on that device: call it for selected devices only.
        """
        ...

    def allocator(self, device: str) -> AllocatorStats:
        """The allocator's statistics for "cuda:0", "mps" or "cpu"; creates no context."""
        ...
