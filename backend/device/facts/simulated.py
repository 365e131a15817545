"""Simulated machines: the figures of real ones behind the protocols of the real sources.

``check_gpu --as NAME`` shows what would be selected on such a machine, and tests run on them without a GPU.

From public captures of nvidia-smi (utkuozdemir/nvidia_gpu_exporter, internal/captures, MIT: H200, H100 in MIG mode,
RTX 2080 SUPER on Windows), otherwise from data sheets and user reports. Processes and UUIDs are invented.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace

from backend.device.facts.machine import probe, visible_cards
from backend.device.facts.torch_wheels import WHEELS, driver_runs, kernels_run
from backend.device.records import (
    AllocatorStats,
    Card,
    CardSample,
    Driver,
    GPULost,
    MachineFacts,
    Platform,
    Process,
    TorchBuild,
    TorchDevice,
)

_MIB, _GIB = 1 << 20, 1 << 30
_TORCH = "2.13.0"
_DESKTOP = ("avx2",)
_SERVER = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16")
_LINUX = Platform(shm_bytes=16 * _GIB)
_DOCKER = Platform(container="docker", shm_bytes=64 * _MIB)  # Docker's default size
_NO_DRIVER = Driver(fault="the NVIDIA driver's library (NVML) is not installed here")
_ALLOCATOR = AllocatorStats(  # a base-size encoder in bf16 after some batches
    allocated_bytes=438 * _MIB,
    reserved_bytes=1536 * _MIB,
    active_bytes=438 * _MIB,
    peak_allocated_bytes=1210 * _MIB,
    peak_reserved_bytes=1536 * _MIB,
    fraction=1.0,
)
_CPU_BUILD = TorchBuild(f"{_TORCH}+cpu")
__all__ = ["MACHINES", "MachineProfile", "SimulatedDriver", "SimulatedMachine", "SimulatedTorch", "facts", "simulated"]


@dataclass(frozen=True, slots=True)
class MachineProfile:
    """The figures of one machine. A card's memory is in ``cards``, its other sensors are in ``sensors``."""

    description: str  # one line, shown by check_gpu --as list
    host: MachineFacts  # what the host alone tells
    driver: Driver = _NO_DRIVER
    cards: tuple[Card, ...] = ()
    sensors: tuple[CardSample, ...] = ()  # one per card, in the same order
    torch: TorchBuild = _CPU_BUILD
    reserved_bytes: int = 400 * _MIB  # of each card: torch reports this much less in total than NVML
    mps: TorchDevice | None = None
    torch_fault: str = ""  # torch's message when it finds no device
    lost_after: int | None = None  # samples until the card no longer answers
    allocator: AllocatorStats = _ALLOCATOR


def card_uuid(text: str, kind: str = "GPU") -> str:
    """A reproducible UUID in NVML's form."""
    return f"{kind}-{uuid.uuid5(uuid.NAMESPACE_DNS, text)}"


def _host(cores: int, cpu: str, flags: tuple[str, ...], memory_gib: float, platform: Platform = _LINUX) -> MachineFacts:
    total = int(memory_gib * _GIB)
    return MachineFacts(cores, cpu, flags, total, platform=platform, free_memory_bytes=int(total * 0.85))


def _build(cuda: str, machine: str = "x86_64") -> TorchBuild:
    codes = sorted(WHEELS[cuda][machine])
    # Builds for CUDA 12.8 and later have PTX of the newest architecture, for the ones after it.
    newest = [f"compute_{codes[-1]}"] if codes[-1] >= 120 else []
    archs = (*(f"sm_{code}" for code in codes), *newest)
    return TorchBuild(f"{_TORCH}+cu{cuda.replace('.', '')}", cuda, archs=archs)


def _card(name: str, capability: tuple[int, int], total_mib: int, free_mib: int, pci: str = "01:00.0") -> Card:
    bus = f"00000000:{pci}"
    return Card(card_uuid(name), name, 0, bus, total_mib * _MIB, free_mib * _MIB, capability)


def _slice(board: Card, number: int, profile: str, total_mib: int, free_mib: int) -> Card:
    return replace(
        board,
        uuid=card_uuid(f"{board.name}/{number}", "MIG"),
        name=f"{board.name} MIG {profile}",
        total_bytes=total_mib * _MIB,
        free_bytes=free_mib * _MIB,
        mig=profile,
        parent_uuid=board.uuid,
    )


def _idle(celsius: float, watts: float, limit_watts: float | None, mhz: tuple[int, int, int, int]) -> CardSample:
    """The sensors of an idle card; ``mhz`` are the clocks of graphics, sm, memory and video."""
    domains = ("graphics", "sm", "memory", "video")
    return CardSample(
        utilization_ratio=0.0,
        bandwidth_ratio=0.0,
        temperature_celsius=celsius,
        power_watts=watts,
        power_limit_watts=limit_watts,
        energy_joules=1_000_000.0,
        clocks_hz=tuple((domain, value * 1_000_000) for domain, value in zip(domains, mhz, strict=True)),
        throttle=(),
        pcie_replays=0,
        xid_errors=(),
        processes=(),
    )


_LAPTOP = _card("NVIDIA GeForce RTX 4070 Laptop GPU", (8, 9), 8188, 7402)
_RTX_4090 = replace(_card("NVIDIA GeForce RTX 4090", (8, 9), 24564, 14801), pci_index=0)
_RTX_PRO = replace(
    _card("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", (12, 0), 97887, 97181, "41:00.0"), pci_index=1, ecc=True
)
_H200 = replace(_card("NVIDIA H200", (9, 0), 143771, 143156, "83:00.0"), ecc=True)
_H100 = replace(_card("NVIDIA H100 80GB HBM3", (9, 0), 81559, 81500, "00:09.0"), ecc=True)
_SLICES = (
    _slice(_H100, 0, "3g.40gb", 40448, 40423),
    _slice(_H100, 1, "2g.20gb", 20096, 20079),
    _slice(_H100, 2, "1g.10gb", 9984, 9975),
    _slice(_H100, 3, "1g.10gb", 9984, 9975),
)
_T4 = replace(_card("Tesla T4", (7, 5), 15360, 14914, "00:1E.0"), ecc=True)
_V100 = replace(_card("Tesla V100-SXM2-16GB", (7, 0), 16384, 16144, "00:1E.0"), ecc=True)
_GB10 = replace(_card("NVIDIA GB10", (12, 1), 122_570, 104_200, "0F:01.0"), unified=True)
_RTX_4080 = _card("NVIDIA GeForce RTX 4080", (8, 9), 16376, 14902)
_RTX_2080 = replace(_card("NVIDIA GeForce RTX 2080 SUPER", (7, 5), 8192, 7286, "0C:00.0"), driver_model="WDDM")
_L4 = replace(_card("NVIDIA L4", (8, 9), 23034, 22563, "00:03.0"), ecc=True)
_RTX_3090 = _card("NVIDIA GeForce RTX 3090", (8, 6), 24576, 23898)
_A100 = replace(_card("NVIDIA A100-SXM4-40GB", (8, 0), 40960, 40536, "00:04.0"), ecc=True)
_RTX_5090 = _card("NVIDIA GeForce RTX 5090", (12, 0), 32607, 31742)

_OTHER_PROCESS = (4711, "python3", 9000 * _MIB)  # another user's training run
_MIG_SENSORS = replace(  # slices have no utilization
    _idle(42, 98, 700, (1980, 1980, 2619, 1545)), utilization_ratio=None, bandwidth_ratio=None, ecc_errors=0
)

MACHINES: Mapping[str, MachineProfile] = {
    "rtx-4070-laptop": MachineProfile(
        "a laptop with 8 GB of Ada, a desktop on it",
        _host(16, "13th Gen Intel(R) Core(TM) i7-13620H", (*_DESKTOP, "avx_vnni"), 31),
        Driver("580.95.05", (13, 0)),
        (_LAPTOP,),
        (replace(_idle(47, 8.4, None, (210, 210, 405, 555)), processes=((2314, "Xorg", 412 * _MIB),)),),
        _build("13.0"),
        reserved_bytes=220 * _MIB,
    ),
    "ada-and-blackwell": MachineProfile(
        "a workstation with two unlike cards; CUDA's numbers are not nvidia-smi's, and the first has a co-tenant",
        _host(64, "AMD Ryzen Threadripper 7970X 32-Cores", ("avx2", "avx512f", "avx512_vnni", "avx512_bf16"), 251),
        Driver("580.95.05", (13, 0)),
        (_RTX_4090, _RTX_PRO),
        (
            replace(
                _idle(71, 412, 450, (2730, 2730, 10501, 2070)),
                utilization_ratio=0.97,
                bandwidth_ratio=0.41,
                throttle=("sw_power_cap",),
                processes=(_OTHER_PROCESS,),
            ),
            replace(_idle(33, 14, 600, (180, 180, 405, 600)), ecc_errors=0),
        ),
        _build("13.0"),
    ),
    "h200": MachineProfile(
        "one H200 in a container, as clouds rent it",
        _host(16, "Intel(R) Xeon(R) Platinum 8468", _SERVER, 128, _DOCKER),
        Driver("580.173.02", (13, 0)),
        (_H200,),
        (replace(_idle(37, 85.16, 700, (345, 345, 3201, 765)), ecc_errors=0, pcie_replays=4),),
        _build("13.0"),
        reserved_bytes=590 * _MIB,
    ),
    "h100-mig": MachineProfile(
        "an H100 cut into four MIG slices, in Kubernetes",
        _host(20, "Intel(R) Xeon(R) Platinum 8480+", _SERVER, 98, replace(_DOCKER, container="kubernetes")),
        Driver("590.48.01", (13, 1)),
        _SLICES,
        (_MIG_SENSORS,) * 4,
        _build("12.6"),
        reserved_bytes=0,
    ),
    "t4": MachineProfile(
        "a T4 of the cloud: tensor cores for fp16, none for bf16",
        _host(4, "Intel(R) Xeon(R) CPU @ 2.20GHz", ("avx2", "avx512f"), 15.6),
        Driver("570.172.08", (12, 8)),
        (_T4,),
        (replace(_idle(51, 10.2, 70, (300, 300, 405, 540)), ecc_errors=0),),
        _build("12.6"),
    ),
    "v100": MachineProfile(
        "a V100: only builds for CUDA 12.6 still run on it",
        _host(8, "Intel(R) Xeon(R) CPU E5-2686 v4 @ 2.30GHz", _DESKTOP, 61),
        Driver("535.247.01", (12, 2)),
        (_V100,),
        (replace(_idle(38, 24, 300, (135, 135, 877, 555)), ecc_errors=0),),
        _build("12.6"),
    ),
    "gb10": MachineProfile(
        "a DGX Spark: card and machine share one memory",
        _host(20, "Cortex-X925", ("asimddp", "i8mm", "bf16"), 119.7, replace(_LINUX, machine="aarch64")),
        Driver("580.95.05", (13, 0)),
        (_GB10,),
        (replace(_idle(44, 11.5, None, (208, 208, 0, 0)), clocks_hz=(("graphics", 208_000_000), ("sm", 208_000_000))),),
        _build("13.0", "aarch64"),
        reserved_bytes=0,
    ),
    "apple-m3": MachineProfile(
        "a MacBook: Metal instead of CUDA",
        _host(8, "Apple M3", (), 24, Platform("Darwin", "arm64")),
        torch=TorchBuild(_TORCH),
        mps=TorchDevice(0, "Apple M3", "", int(17.76 * _GIB), (0, 0), integrated=True),
    ),
    "wsl2": MachineProfile(
        "Linux on Windows: the driver hides processes and keeps memory for the desktop",
        _host(12, "AMD Ryzen 7 7800X3D 8-Core Processor", (*_DESKTOP, "avx512f"), 31, replace(_LINUX, wsl=True)),
        Driver("581.29", (13, 0)),
        (_RTX_4080,),
        (replace(_idle(39, 22, 320, (210, 210, 405, 1185)), xid_errors=None, processes=None),),
        _build("13.0"),
        reserved_bytes=0,
    ),
    "windows-wddm": MachineProfile(
        "a Windows desktop, whose driver model hides what each process takes",
        _host(12, "AMD64 Family 25 Model 33", (), 32, Platform("Windows", "AMD64")),
        Driver("591.86", (13, 1)),
        (_RTX_2080,),
        (
            replace(
                _idle(40, 38.92, 250, (300, 300, 405, 540)),
                xid_errors=None,
                processes=((2056, "dwm.exe", None), (12332, "explorer.exe", None)),
            ),
        ),
        _build("12.6"),
        reserved_bytes=0,
    ),
    "no-gpu": MachineProfile(
        "a container on a CPU", _host(2, "AMD EPYC", ("avx2", "avx512f", "avx512_vnni", "avx512_bf16"), 23.5, _DOCKER)
    ),
    "vanishing": MachineProfile(
        "a card that falls off the bus after three readings",
        _host(8, "AMD EPYC 7R13 Processor", _DESKTOP, 31),
        Driver("570.172.08", (12, 8)),
        (_L4,),
        (replace(_idle(62, 68.9, 72, (1980, 1980, 6251, 1755)), utilization_ratio=1.0, ecc_errors=0),),
        _build("12.6"),
        lost_after=3,
    ),
    "cpu-build": MachineProfile(
        "a good card, and a torch that was installed without CUDA",
        _host(12, "AMD Ryzen 9 5900X 12-Core Processor", _DESKTOP, 62),
        Driver("570.172.08", (12, 8)),
        (_RTX_3090,),
        (_idle(36, 25, 350, (210, 210, 405, 555)),),
    ),
    "old-driver": MachineProfile(
        "a good card under a driver from before CUDA 12",
        _host(12, "Intel(R) Xeon(R) CPU @ 2.20GHz", ("avx2", "avx512f"), 83),
        Driver("470.256.02", (11, 4)),
        (_A100,),
        (replace(_idle(31, 46, 400, (210, 210, 1215, 585)), ecc_errors=0),),
        _build("12.6"),
        torch_fault="CUDA initialization: The NVIDIA driver on your system is too old (found version 11040)",
    ),
    "new-card-old-build": MachineProfile(
        "a card newer than the code that torch carries: torch lists it, and its first kernel fails",
        _host(24, "Intel(R) Core(TM) Ultra 9 285K", (*_DESKTOP, "avx_vnni"), 62),
        Driver("570.172.08", (12, 8)),
        (_RTX_5090,),
        (_idle(34, 18, 575, (180, 180, 405, 600)),),
        _build("12.6"),
    ),
}


@dataclass(frozen=True, slots=True)
class SimulatedMachine:
    """One simulated machine: its profile, and sources that record the calls."""

    name: str
    profile: MachineProfile
    driver_source: SimulatedDriver
    torch_source: SimulatedTorch


class SimulatedDriver:
    """A ``DriverSource`` that answers from a profile; setting ``lost`` makes the cards disappear or come back."""

    def __init__(self, profile: MachineProfile) -> None:
        self._profile = profile
        self._lock = threading.Lock()
        self.samples = 0  # taken so far
        self.lost = False

    def driver(self) -> Driver:
        """See ``DriverSource``."""
        return self._profile.driver

    def cards(self) -> tuple[Card, ...]:
        """See ``DriverSource``."""
        return self._profile.cards

    def sample(self, uuid: str) -> CardSample:
        """The card's idle sensors; energy grows with each call. Raises: GPULost after ``lost_after`` samples."""
        with self._lock:
            card, sensors = self._find(uuid)
            self.samples += 1
            consumed = (sensors.power_watts or 0.0) * self.samples  # as if sampled once a second
        used = None
        if card.total_bytes is not None and card.free_bytes is not None:
            used = card.total_bytes - card.free_bytes
        energy = None if sensors.energy_joules is None else sensors.energy_joules + consumed
        return replace(
            sensors, used_bytes=used, free_bytes=card.free_bytes, total_bytes=card.total_bytes, energy_joules=energy
        )

    def processes(self, uuid: str) -> tuple[Process, ...]:
        """The card's processes. Raises: GPULost as ``sample``."""
        with self._lock:
            return self._find(uuid)[1].processes or ()

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def _find(self, uuid: str) -> tuple[Card, CardSample]:
        limit = self._profile.lost_after
        if limit is not None and self.samples == limit:
            self.lost = True
            self.samples += 1  # only once: a card that a test brings back stays
        if self.lost:
            raise GPULost("GPU is lost")
        for card, sensors in zip(self._profile.cards, self._profile.sensors, strict=True):
            if card.uuid == uuid:
                return card, sensors
        raise GPULost(f"the driver lists no card {uuid}")


class SimulatedTorch:
    """A ``TorchSource`` that numbers a profile's cards as CUDA would; ``tried`` records what would create contexts."""

    def __init__(self, profile: MachineProfile, visible: str | None = None, order: str | None = None) -> None:
        self._profile = profile
        self._visible = visible_cards(profile.cards, visible, order)
        self.tried: list[str] = []  # devices that ``try_kernel`` was called for, in order

    def build(self) -> TorchBuild:
        """See ``TorchSource``."""
        return self._profile.torch

    def devices(self) -> tuple[TorchDevice, ...]:
        """The visible cards, of a MIG card only the first slice; () when this build cannot start CUDA."""
        if not self._starts_cuda():
            return ()
        cards = self._visible[:1] if self._visible and self._visible[0].mig else self._visible
        return tuple(self._device(index, card) for index, card in enumerate(cards))

    def mps(self) -> TorchDevice | None:
        """See ``TorchSource``."""
        return self._profile.mps

    def fault(self) -> str:
        """See ``TorchSource``."""
        return self._profile.torch_fault

    def try_kernel(self, device: str) -> str:
        """The error of the first kernel on this machine."""
        self.tried.append(device)
        kind, _, index = device.partition(":")
        if kind == "cpu" or (kind == "mps" and self._profile.mps is not None):
            return ""
        devices = self.devices() if kind == "cuda" else ()
        number = int(index or 0)
        if number >= len(devices):
            return "CUDA error: invalid device ordinal" if devices else f"torch has no device {device}"
        if not kernels_run(devices[number].capability, self._profile.torch.archs):
            return "CUDA error: no kernel image is available for execution on the device"
        return ""

    def allocator(self, device: str) -> AllocatorStats:
        """The profile's statistics on a GPU, zeros on a CPU."""
        return AllocatorStats() if device == "cpu" else self._profile.allocator

    def _starts_cuda(self) -> bool:
        """Whether the build has CUDA and the driver runs it; its kernels may still not fit the card."""
        cuda = self._profile.torch.cuda
        return bool(cuda) and driver_runs(self._profile.driver.cuda, cuda)

    def _device(self, index: int, card: Card) -> TorchDevice:
        return TorchDevice(
            index=index,
            name=card.name,
            uuid=f"GPU-{card.uuid[4:]}",  # torch writes no prefix, and ``Torch`` adds this one to slices as well
            total_bytes=(card.total_bytes or 0) - self._profile.reserved_bytes,
            capability=card.capability or (0, 0),
            pci_bus_id=card.pci_bus_id,
            integrated=card.unified,
        )


def simulated(name: str, *, visible: str | None = None, order: str | None = None) -> SimulatedMachine:
    """A new machine; ``visible`` and ``order`` are its CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER.

    Raises: KeyError with the names of all machines.
    """
    if name not in MACHINES:
        raise KeyError(f"no simulated machine is called {name!r}; there are {', '.join(MACHINES)}")
    profile = MACHINES[name]
    return SimulatedMachine(name, profile, SimulatedDriver(profile), SimulatedTorch(profile, visible, order))


def facts(name: str, *, visible: str | None = None, order: str | None = None) -> MachineFacts:
    """What ``probe`` finds on that machine. Raises: KeyError with the names of all machines."""
    machine = simulated(name, visible=visible, order=order)
    return probe(
        driver=machine.driver_source,
        torch_source=machine.torch_source,
        visible=visible,
        order=order,
        host=machine.profile.host,
    )
