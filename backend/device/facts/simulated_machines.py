"""The figures of the simulated machines: names, sizes, driver versions and sensors as such machines report them.

From public captures of nvidia-smi (utkuozdemir/nvidia_gpu_exporter, internal/captures, MIT: H200, H100 in MIG mode,
RTX 2080 SUPER on Windows), otherwise from data sheets and user reports. Processes and UUIDs are invented.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace

from backend.device.facts.torch_wheels import WHEELS
from backend.device.records import AllocatorStats, Card, CardSample, Driver, Host, Platform, TorchBuild, TorchDevice

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


@dataclass(frozen=True, slots=True)
class MachineProfile:
    """The figures of one machine. A card's memory is in ``cards``, its other sensors are in ``sensors``."""

    description: str  # one line, shown by check_gpu --as list
    host: Host
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


def _host(cores: int, cpu: str, flags: tuple[str, ...], memory_gib: float, platform: Platform = _LINUX) -> Host:
    total = int(memory_gib * _GIB)
    return Host(cores, cpu, flags, total, int(total * 0.85), platform)


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
    _card("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", (12, 0), 97887, 97181, "41:00.0"),
    pci_index=1,
    ecc=True,
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
        "a container on a CPU",
        _host(2, "AMD EPYC", ("avx2", "avx512f", "avx512_vnni", "avx512_bf16"), 23.5, _DOCKER),
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
