"""What the machine has, put together from its sources. Reads only; decides nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from backend.device.facts.compute_capability import architecture
from backend.device.facts.host import CGROUP, memory_limit_bytes, read_host, resident_bytes, usable_cores
from backend.device.facts.nvml import Nvml
from backend.device.facts.torch_builds import build_fault
from backend.device.facts.torch_source import Torch
from backend.device.facts.visibility import visible_cards
from backend.device.records import (
    AllocatorStats,
    Card,
    CardSample,
    DeviceType,
    Driver,
    DriverSource,
    GPUInfo,
    GPULost,
    Host,
    MachineFacts,
    Platform,
    Process,
    TorchBuild,
    TorchDevice,
    TorchSource,
)

__all__ = [
    "AllocatorStats",
    "Card",
    "CardSample",
    "DeviceType",
    "Driver",
    "DriverSource",
    "GPUInfo",
    "GPULost",
    "Host",
    "MachineFacts",
    "Platform",
    "Process",
    "TorchBuild",
    "TorchDevice",
    "TorchSource",
    "memory_limit_bytes",
    "probe",
    "resident_bytes",
    "usable_cores",
]

_ONE_SLICE = "a process sees one slice of a card; set CUDA_VISIBLE_DEVICES={} to use this one instead"


def probe(
    *,
    look_for_gpu: bool = True,
    cgroup: Path = CGROUP,
    driver: DriverSource | None = None,
    torch_source: TorchSource | None = None,
    visible: str | None = None,
    order: str | None = None,
    host: Host | None = None,
) -> MachineFacts:
    """Read the machine. Without ``look_for_gpu`` no accelerator library is touched. Never raises for a broken GPU.

    torch is imported only where an NVIDIA driver, another GPU's device file or Apple hardware makes a GPU possible:
    the import costs two seconds and 300 MiB that a CPU served by another runtime does not need. No CUDA context is
    opened on any card.

    Args:
        driver: where cards are read; NVML by default, let go of again. Hand in the one that a monitor will use,
            so that NVML is started once: on WSL2 each start leaks a little.
        visible: CUDA_VISIBLE_DEVICES as this process got it; None when not set.
        order: CUDA_DEVICE_ORDER, the same.
        host: read already, or of another machine; read here by default.
    """
    host = host or read_host(cgroup)
    found = MachineFacts(
        cores=host.cores,
        cpu_name=host.cpu_name,
        cpu_flags=host.cpu_flags,
        memory_bytes=host.memory_bytes,
        free_memory_bytes=host.free_memory_bytes,
        platform=host.platform,
        why_no_gpu="USE_GPU=false or DEVICE=cpu",
    )
    if not look_for_gpu:
        return found
    source = driver or Nvml()
    try:
        told, cards = source.driver(), source.cards()
    finally:
        if driver is None:
            source.close()
    found = replace(found, driver=told)
    apple = host.platform.system == "Darwin" and host.platform.machine == "arm64"
    if not (cards or told.version or host.gpu_nodes or apple):
        detail = f" ({told.fault})" if told.fault else ""
        return replace(found, why_no_gpu=f"no NVIDIA driver answers and this is not Apple silicon{detail}")
    torch = torch_source or Torch()
    found = replace(found, torch=torch.build())
    if apple:
        gpu = torch.mps()
        if gpu is None:
            why = f"torch {found.torch.version} finds no Metal GPU (macOS older than 14, or a virtual machine)"
            return replace(found, why_no_gpu=torch.fault() or why)
        return replace(found, gpus=(_mps(gpu, host),), gpu_type=DeviceType.MPS, why_no_gpu="")
    return _with_cuda(found, torch, cards, visible_cards(cards, visible, order))


def _with_cuda(found: MachineFacts, torch: TorchSource, cards: Sequence[Card], visible: Sequence[Card]) -> MachineFacts:
    devices = torch.devices()
    gpus = _cuda(devices, cards, visible, found, complaint=torch.fault())
    if any(not gpu.fault for gpu in gpus):
        return replace(found, gpus=gpus, gpu_type=DeviceType.CUDA, why_no_gpu="")
    return replace(found, gpus=gpus, why_no_gpu=_why_none(gpus, cards, found.driver, torch.fault()))


def _why_none(gpus: Sequence[GPUInfo], cards: Sequence[Card], driver: Driver, complaint: str) -> str:
    if gpus:
        return "; ".join(f"{gpu.name}: {gpu.fault}" for gpu in gpus)
    if cards:
        return f"CUDA_VISIBLE_DEVICES hides every card of this machine ({len(cards)})"
    return "; ".join(filter(None, (driver.fault, complaint))) or "the driver is there, but lists no card"


def _cuda(
    devices: Sequence[TorchDevice],
    cards: Sequence[Card],
    visible: Sequence[Card],
    found: MachineFacts,
    *,
    complaint: str,
) -> tuple[GPUInfo, ...]:
    """What torch sees, in its order, and then the cards that it should see and does not."""
    pairs = [(device, _card_of(device, cards)) for device in devices]
    seen = [card for _, card in pairs if card]
    boards = {card.parent_uuid for card in seen if card.parent_uuid}
    usable = [_seen(device, card, found) for device, card in pairs]
    not_listed = complaint or f"torch {found.torch.version} does not see it although the driver does"
    others = [
        _unseen(card, found, _ONE_SLICE.format(card.uuid) if card.parent_uuid in boards else not_listed)
        for card in visible
        if card not in seen
    ]
    return (*usable, *others)


def _card_of(device: TorchDevice, cards: Sequence[Card]) -> Card | None:
    """The driver's card of a torch device: by UUID; a slice also by its card's, which some CUDA versions give."""
    bare = device.uuid[4:]
    for card in cards:
        if bare and card.uuid[4:] == bare:
            return card
    same_board = [
        card
        for card in cards
        if (bare and card.parent_uuid[4:] == bare)
        or (not bare and device.pci_bus_id and card.pci_bus_id.lower() == device.pci_bus_id.lower())
    ]
    return min(same_board, key=lambda card: abs((card.total_bytes or 0) - device.total_bytes), default=None)


def _seen(device: TorchDevice, card: Card | None, found: MachineFacts) -> GPUInfo:
    unified = device.integrated or (card is not None and card.unified)
    fault = (card.fault if card else "") or build_fault(device.capability, found.driver, found.torch, found.platform)
    free = card.free_bytes if card else None
    if unified and free is None:
        free = found.free_memory_bytes
    return GPUInfo(
        index=device.index,
        name=device.name,
        uuid=card.uuid if card else device.uuid,
        total_bytes=device.total_bytes,
        capability=device.capability,
        bf16=architecture(device.capability).bf16 or bool(found.torch.hip),
        free_bytes=None if free is None else min(free, device.total_bytes),  # NVML counts some more than CUDA does
        unified=unified,
        mig=card.mig if card else "",
        driver_model=card.driver_model if card else "",
        fault=fault,
    )


def _unseen(card: Card, found: MachineFacts, fault: str) -> GPUInfo:
    capability = card.capability or (0, 0)
    return GPUInfo(
        index=-1,
        name=card.name,
        uuid=card.uuid,
        total_bytes=card.total_bytes or 0,
        capability=capability,
        bf16=architecture(capability).bf16,
        free_bytes=card.free_bytes,
        unified=card.unified,
        mig=card.mig,
        driver_model=card.driver_model,
        fault=card.fault or build_fault(capability, found.driver, found.torch, found.platform) or fault,
    )


def _mps(device: TorchDevice, host: Host) -> GPUInfo:
    free = device.total_bytes if host.free_memory_bytes is None else min(device.total_bytes, host.free_memory_bytes)
    # This torch asks for macOS 14 or newer, where Metal has bfloat16.
    return GPUInfo(0, device.name, device.uuid, device.total_bytes, (0, 0), bf16=True, free_bytes=free, unified=True)
