"""Takes a snapshot of every card and every device in use. Keeps no history and raises no alerts."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from backend.device.facts.host import free_memory_bytes, resident_bytes
from backend.device.memory.device_memory import headroom_bytes
from backend.device.plan.placement import Placement
from backend.device.records import (
    AllocatorStats,
    CardSample,
    DeviceType,
    DriverSource,
    GPUInfo,
    GPULost,
    MachineFacts,
    TorchSource,
)
from backend.device.watch.history import Sample
from backend.telemetry import log_event

_log = logging.getLogger(__name__)
_UNREAD = CardSample()  # all None

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class HostMemory:
    """Memory of this process, and free memory of the machine (or cgroup)."""

    resident_bytes: int
    free_bytes: int | None


@dataclass(frozen=True, slots=True)
class CardSnapshot:
    """One card, as the driver reports it."""

    gpu: GPUInfo
    sample: CardSample = _UNREAD  # all None without a driver
    lost: str = ""  # why it did not answer; "" if it did or there is no driver


@dataclass(frozen=True, slots=True)
class DeviceSnapshot:
    """One device that this process computes on: a card, Apple's GPU or the CPU."""

    placement: Placement
    card: CardSnapshot | None = None  # None on a CPU
    used_bytes: int | None = None  # by all processes; on a CPU and on Apple by this process
    free_bytes: int | None = None
    total_bytes: int | None = None
    headroom_bytes: int | None = None  # what this process can still take
    allocator: AllocatorStats | None = None  # None on a CPU or without a torch source

    @property
    def lost(self) -> str:
        """Why its card did not answer; "" if it did."""
        return self.card.lost if self.card else ""

    def sample(self, at_s: float) -> Sample:
        """The numbers that the history keeps."""
        card = self.card.sample if self.card else _UNREAD
        return Sample(
            at_s,
            self.headroom_bytes,
            self.used_bytes,
            self.allocator.retries if self.allocator else 0,
            card.utilization_ratio,
            card.temperature_celsius,
            card.power_watts,
            self.lost,
        )


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All cards and devices at one moment."""

    at_s: float
    cards: tuple[CardSnapshot, ...]
    devices: tuple[DeviceSnapshot, ...]

    @property
    def lost(self) -> int:
        """The number of cards that did not answer."""
        return sum(bool(card.lost) for card in self.cards)


def host_memory() -> HostMemory:
    """Memory of process and machine from the operating system."""
    return HostMemory(resident_bytes(), free_memory_bytes())


class Sampler:
    """Queries driver and torch. One thread at a time. A lost card is logged once and queried again each time."""

    def __init__(
        self,
        facts: MachineFacts,
        placements: Sequence[Placement],
        *,
        driver: DriverSource | None,
        torch_source: TorchSource | None,
        host: Callable[[], HostMemory],
        clock: Clock,
    ) -> None:
        self._facts, self._placements, self._clock = facts, tuple(placements), clock
        self._driver, self._torch, self._host = driver, torch_source, host
        self._lost: set[str] = set()

    def snapshot(self) -> Snapshot:
        """Query every visible card once, and the allocator of every device in use."""
        cards = tuple(self._card(gpu) for gpu in self._facts.gpus)
        return Snapshot(self._clock(), cards, tuple(self._device(placement, cards) for placement in self._placements))

    def _card(self, gpu: GPUInfo) -> CardSnapshot:
        if self._driver is None or not gpu.uuid:
            return CardSnapshot(gpu)
        try:
            sample = self._driver.sample(gpu.uuid)
        except GPULost as error:
            if gpu.uuid not in self._lost:
                self._lost.add(gpu.uuid)
                log_event(_log, logging.WARNING, "a GPU no longer answers", gpu=gpu.uuid, name=gpu.name, reason=error)
            return CardSnapshot(gpu, lost=str(error) or f"{gpu.name} no longer answers")
        if gpu.uuid in self._lost:
            self._lost.discard(gpu.uuid)
            log_event(_log, logging.INFO, "a GPU answers again", gpu=gpu.uuid, name=gpu.name)
        return CardSnapshot(gpu, sample)

    def _device(self, placement: Placement, cards: Sequence[CardSnapshot]) -> DeviceSnapshot:
        if placement.type is DeviceType.CPU:
            return _on_cpu(placement, self._facts.memory_bytes, self._host())
        card = next((card for card in cards if is_on(placement, card.gpu)), None)
        allocator = self._torch.allocator(placement.device) if self._torch else None
        if placement.type is DeviceType.MPS:
            return _on_apple(placement, card, allocator, self._host().free_bytes)
        return _on_card(placement, card, allocator, self._host)


def is_on(placement: Placement, gpu: GPUInfo) -> bool:
    """Whether the placement's device is this accelerator: by UUID, else by torch's index."""
    if placement.type is DeviceType.CPU:
        return False
    if placement.uuid:
        return placement.uuid == gpu.uuid
    return gpu.index == int(placement.device.partition(":")[2] or 0)


def _on_cpu(placement: Placement, total_bytes: int, host: HostMemory) -> DeviceSnapshot:
    process = AllocatorStats(allocated_bytes=host.resident_bytes)
    headroom = headroom_bytes(process, host.free_bytes, placement.memory_bytes or total_bytes)
    return DeviceSnapshot(placement, None, host.resident_bytes, host.free_bytes, total_bytes, headroom)


def _on_apple(
    placement: Placement, card: CardSnapshot | None, allocator: AllocatorStats | None, host_free: int | None
) -> DeviceSnapshot:
    total = card.gpu.total_bytes if card else None
    used = allocator.reserved_bytes if allocator else None
    free = _min_known(
        None if total is None or used is None else total - used, host_free
    )  # CPU and GPU share one memory
    return DeviceSnapshot(placement, card, used, free, total, _headroom(placement, allocator, free), allocator)


def _on_card(
    placement: Placement, card: CardSnapshot | None, allocator: AllocatorStats | None, host: Callable[[], HostMemory]
) -> DeviceSnapshot:
    if card is not None and card.lost:  # the allocator's statistics no longer tell what is free
        return DeviceSnapshot(placement, card, total_bytes=card.gpu.total_bytes, allocator=allocator)
    sample = card.sample if card else _UNREAD
    used, free = sample.used_bytes, sample.free_bytes
    total = sample.total_bytes or (card.gpu.total_bytes if card else None)
    if free is None and card is not None and card.gpu.unified:
        free = host().free_bytes
    elif free is None and (memory := _torch_memory(placement.device)):
        free, total = memory
    if used is None and free is not None and total is not None:
        used = total - free
    return DeviceSnapshot(placement, card, used, free, total, _headroom(placement, allocator, free), allocator)


def _torch_memory(device: str) -> tuple[int, int] | None:
    """Free and total bytes where NVML is absent, as in a container without the driver's "utility" capability."""
    torch = sys.modules.get("torch")  # monitoring neither imports torch nor opens a context
    if torch is None or not torch.cuda.is_initialized():
        return None
    try:
        free, total = torch.cuda.mem_get_info(device)
    except RuntimeError:  # the context is dead; the batching lane reports that
        return None
    return int(free), int(total)


def _headroom(placement: Placement, allocator: AllocatorStats | None, free_bytes: int | None) -> int | None:
    if free_bytes is None and (allocator is None or not placement.memory_bytes):
        return None  # nothing is known
    return headroom_bytes(allocator or AllocatorStats(), free_bytes, placement.memory_bytes)


def _min_known(*values: int | None) -> int | None:
    known = [value for value in values if value is not None]
    return max(0, min(known)) if known else None
