"""Probes the machine: combines what host, driver and torch report into ``MachineFacts``. Decides nothing.

PURE: which cards CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER make visible to this process, and in which order.

Where torch sees the cards its own numbering counts. This module predicts it where torch cannot start CUDA (a CPU
build, a driver that is too old), and tells cards that are hidden on purpose from faulty ones.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from backend.device.facts.compute_capability import architecture
from backend.device.facts.host import CGROUP, read_host
from backend.device.facts.nvml import Nvml
from backend.device.facts.torch_builds import build_fault
from backend.device.facts.torch_source import Torch
from backend.device.records import (
    Card,
    DeviceType,
    Driver,
    DriverSource,
    GPUInfo,
    MachineFacts,
    TorchDevice,
    TorchSource,
)

_ONE_SLICE = "a process sees one slice of a card; set CUDA_VISIBLE_DEVICES={} to use this one instead"


def probe(
    *,
    look_for_gpu: bool = True,
    cgroup: Path = CGROUP,
    driver: DriverSource | None = None,
    torch_source: TorchSource | None = None,
    visible: str | None = None,
    order: str | None = None,
    host: MachineFacts | None = None,
) -> MachineFacts:
    """Probe the machine. Without ``look_for_gpu`` no accelerator library is used. Never raises for a broken GPU.

    Imports torch only if an NVIDIA driver, another GPU's device file or Apple hardware is there: the import costs two
    seconds and 300 MiB that a CPU service on another runtime does not need. Creates no CUDA context.

    Args:
        driver: the source of cards; by default NVML, closed afterwards. Pass the one that a monitor will use, so that
            NVML is started once: on WSL2 each start leaks memory.
        visible: CUDA_VISIBLE_DEVICES of this process; None when not set.
        order: CUDA_DEVICE_ORDER, the same.
        host: already read, or simulated; read here by default.
    """
    host = host or read_host(cgroup)
    facts = replace(host, why_no_gpu="USE_GPU=false or DEVICE=cpu")
    if not look_for_gpu:
        return facts
    source = driver or Nvml()
    try:
        driver_facts, cards = source.driver(), source.cards()
    finally:
        if driver is None:
            source.close()
    facts = replace(facts, driver=driver_facts)
    apple = host.platform.system == "Darwin" and host.platform.machine == "arm64"
    if not (cards or driver_facts.version or host.gpu_nodes or apple):
        detail = f" ({driver_facts.fault})" if driver_facts.fault else ""
        return replace(facts, why_no_gpu=f"no NVIDIA driver answers and this is not Apple silicon{detail}")
    torch = torch_source or Torch()
    facts = replace(facts, torch=torch.build())
    if apple:
        gpu = torch.mps()
        if gpu is None:
            why = f"torch {facts.torch.version} finds no Metal GPU (macOS older than 14, or a virtual machine)"
            return replace(facts, why_no_gpu=torch.fault() or why)
        return replace(facts, gpus=(_mps_gpu(gpu, host),), gpu_type=DeviceType.MPS, why_no_gpu="")
    return _with_cuda(facts, torch, cards, visible_cards(cards, visible, order))


def _with_cuda(facts: MachineFacts, torch: TorchSource, cards: Sequence[Card], visible: Sequence[Card]) -> MachineFacts:
    devices = torch.devices()
    gpus = _cuda_gpus(devices, cards, visible, facts, torch_fault=torch.fault())
    if any(not gpu.fault for gpu in gpus):
        return replace(facts, gpus=gpus, gpu_type=DeviceType.CUDA, why_no_gpu="")
    return replace(facts, gpus=gpus, why_no_gpu=_why_no_gpu(gpus, cards, facts.driver, torch.fault()))


def _why_no_gpu(gpus: Sequence[GPUInfo], cards: Sequence[Card], driver: Driver, torch_fault: str) -> str:
    if gpus:
        return "; ".join(f"{gpu.name}: {gpu.fault}" for gpu in gpus)
    if cards:
        return f"CUDA_VISIBLE_DEVICES hides every card of this machine ({len(cards)})"
    return "; ".join(filter(None, (driver.fault, torch_fault))) or "the driver is there, but lists no card"


def _cuda_gpus(
    devices: Sequence[TorchDevice],
    cards: Sequence[Card],
    visible: Sequence[Card],
    facts: MachineFacts,
    *,
    torch_fault: str,
) -> tuple[GPUInfo, ...]:
    """The GPUs that torch sees, in its order, then the visible cards that it does not see."""
    pairs = [(device, _card_of(device, cards)) for device in devices]
    matched = [card for _, card in pairs if card]
    boards = {card.parent_uuid for card in matched if card.parent_uuid}
    seen = [_seen_by_torch(device, card, facts) for device, card in pairs]
    not_listed = torch_fault or f"torch {facts.torch.version} does not see it although the driver does"
    unseen = [
        _unseen_by_torch(card, facts, _ONE_SLICE.format(card.uuid) if card.parent_uuid in boards else not_listed)
        for card in visible
        if card not in matched
    ]
    return (*seen, *unseen)


def _card_of(device: TorchDevice, cards: Sequence[Card]) -> Card | None:
    """The driver's card for a torch device, by UUID; a slice also by its card's UUID, which some CUDA versions give."""
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


def _seen_by_torch(device: TorchDevice, card: Card | None, facts: MachineFacts) -> GPUInfo:
    unified = device.integrated or (card is not None and card.unified)
    fault = (card.fault if card else "") or build_fault(device.capability, facts.driver, facts.torch, facts.platform)
    free = card.free_bytes if card else None
    if unified and free is None:
        free = facts.free_memory_bytes
    return GPUInfo(
        index=device.index,
        name=device.name,
        uuid=card.uuid if card else device.uuid,
        total_bytes=device.total_bytes,
        capability=device.capability,
        bf16=architecture(device.capability).bf16 or bool(facts.torch.hip),
        free_bytes=None if free is None else min(free, device.total_bytes),  # NVML reports slightly more than CUDA
        unified=unified,
        mig=card.mig if card else "",
        driver_model=card.driver_model if card else "",
        fault=fault,
    )


def _unseen_by_torch(card: Card, facts: MachineFacts, fault: str) -> GPUInfo:
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
        fault=card.fault or build_fault(capability, facts.driver, facts.torch, facts.platform) or fault,
    )


def _mps_gpu(device: TorchDevice, host: MachineFacts) -> GPUInfo:
    free = device.total_bytes if host.free_memory_bytes is None else min(device.total_bytes, host.free_memory_bytes)
    # This torch needs macOS 14 or newer, where Metal has bfloat16.
    return GPUInfo(0, device.name, device.uuid, device.total_bytes, (0, 0), bf16=True, free_bytes=free, unified=True)


def visible_cards(cards: Sequence[Card], visible: str | None = None, order: str | None = None) -> tuple[Card, ...]:
    """The cards visible to this process, in CUDA's order; the slices of a card stay together.

    As in the driver, a list ends at its first unknown or ambiguous entry, and a repeated entry empties it.

    Args:
        cards: all cards, in PCI order.
        visible: CUDA_VISIBLE_DEVICES: indices, or unique beginnings of "GPU-…" or "MIG-…"; None when not set.
        order: CUDA_DEVICE_ORDER; anything but "PCI_BUS_ID" is the default, FASTEST_FIRST.

    Source: CUDA programming guide, "CUDA Environment Variables"; torch/cuda/__init__.py, _parse_visible_devices.
    """
    boards = _boards(cards, order)
    if visible is None:
        return tuple(card for board in boards for card in board)
    find_board = _by_uuid if visible.strip().startswith(("GPU-", "MIG-")) else _by_index
    selected: list[list[Card]] = []
    for entry in visible.split(","):
        board = find_board(boards, entry.strip())
        if board is None:
            break
        if board in selected:
            return ()
        selected.append(board)
    return tuple(card for board in selected for card in board)


def _boards(cards: Sequence[Card], order: str | None) -> list[list[Card]]:
    """The slices of each card (or the card itself), in CUDA's order."""
    by_board: dict[object, list[Card]] = {}
    for card in cards:
        by_board.setdefault(card.parent_uuid or card.uuid or card.pci_index, []).append(card)
    boards = list(by_board.values())
    if order == "PCI_BUS_ID" or not boards:
        return boards
    # FASTEST_FIRST: the driver moves the card that it estimates to be the fastest to the front. Its estimate is not
    # documented; the newest architecture, then most memory, agrees with it for the usual mixes.
    fastest = max(
        boards, key=lambda board: (board[0].capability or (0, 0), sum(card.total_bytes or 0 for card in board))
    )
    return [fastest, *(board for board in boards if board is not fastest)]


def _by_index(boards: list[list[Card]], entry: str) -> list[Card] | None:
    number = re.match(r"\+?\d+", entry)  # as strtoul: "1gpu2" is 1, "-1" and "none" match no card
    index = int(number.group()) if number else -1
    return boards[index] if 0 <= index < len(boards) else None


def _by_uuid(boards: list[list[Card]], entry: str) -> list[Card] | None:
    if not entry.startswith(("GPU-", "MIG-")):
        return None
    prefix = entry.removeprefix("MIG-") if entry.startswith("MIG-GPU-") else entry  # MIG-GPU-…/gi/ci: before R470
    prefix = prefix.partition("/")[0]
    slices = [[card] for board in boards for card in board if card.mig and card.uuid.startswith(prefix)]
    whole_cards = [board for board in boards if (board[0].parent_uuid or board[0].uuid).startswith(prefix)]
    matches = slices or whole_cards
    return matches[0] if len(matches) == 1 else None
