"""One look at every card and every device in use. Judges nothing and keeps nothing."""

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
    """This process's memory and what the machine (or cgroup) has left."""

    resident_bytes: int
    free_bytes: int | None


@dataclass(frozen=True, slots=True)
class CardReading:
    """One card as the driver tells it now."""

    gpu: GPUInfo
    sample: CardSample = _UNREAD  # all None where nobody tells
    lost: str = ""  # why it did not answer; "" when it did, or when nobody could be asked


@dataclass(frozen=True, slots=True)
class DeviceReading:
    """One device that this process computes on: a card, Apple's GPU or the CPU."""

    placement: Placement
    card: CardReading | None = None  # None on a CPU
    used_bytes: int | None = None  # by everybody; on a CPU and on Apple by this process
    free_bytes: int | None = None
    total_bytes: int | None = None
    room_bytes: int | None = None  # what this process can still take
    allocator: AllocatorStats | None = None  # None on a CPU, and where no torch was handed in

    @property
    def lost(self) -> str:
        """Why its card did not answer."""
        return self.card.lost if self.card else ""

    def sample(self, at_s: float) -> Sample:
        """What the history keeps of it."""
        card = self.card.sample if self.card else _UNREAD
        return Sample(
            at_s,
            self.room_bytes,
            self.used_bytes,
            self.allocator.retries if self.allocator else 0,
            card.utilization_ratio,
            card.temperature_celsius,
            card.power_watts,
            self.lost,
        )


@dataclass(frozen=True, slots=True)
class Look:
    """Everything at one moment."""

    at_s: float
    cards: tuple[CardReading, ...]
    devices: tuple[DeviceReading, ...]

    @property
    def lost(self) -> int:
        """How many cards did not answer."""
        return sum(bool(card.lost) for card in self.cards)


def host_memory() -> HostMemory:
    """As the operating system tells."""
    return HostMemory(resident_bytes(), free_memory_bytes())


class Sampler:
    """Asks the sources. One thread at a time; a lost card costs one log line and is asked again at every look."""

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

    def look(self) -> Look:
        """Read every visible card once, and the allocator of every device in use."""
        cards = tuple(self._card(gpu) for gpu in self._facts.gpus)
        return Look(self._clock(), cards, tuple(self._device(placement, cards) for placement in self._placements))

    def _card(self, gpu: GPUInfo) -> CardReading:
        if self._driver is None or not gpu.uuid:
            return CardReading(gpu)
        try:
            sample = self._driver.sample(gpu.uuid)
        except GPULost as error:
            if gpu.uuid not in self._lost:
                self._lost.add(gpu.uuid)
                log_event(_log, logging.WARNING, "a GPU no longer answers", gpu=gpu.uuid, name=gpu.name, reason=error)
            return CardReading(gpu, lost=str(error) or f"{gpu.name} no longer answers")
        if gpu.uuid in self._lost:
            self._lost.discard(gpu.uuid)
            log_event(_log, logging.INFO, "a GPU answers again", gpu=gpu.uuid, name=gpu.name)
        return CardReading(gpu, sample)

    def _device(self, placement: Placement, cards: Sequence[CardReading]) -> DeviceReading:
        if placement.type is DeviceType.CPU:
            return _on_cpu(placement, self._facts.memory_bytes, self._host())
        card = next((one for one in cards if is_on(placement, one.gpu)), None)
        books = self._torch.allocator(placement.device) if self._torch else None
        if placement.type is DeviceType.MPS:
            return _on_apple(placement, card, books, self._host().free_bytes)
        return _on_card(placement, card, books, self._host)


def is_on(placement: Placement, gpu: GPUInfo) -> bool:
    """Whether the placement's device is this accelerator: by UUID, else by torch's number."""
    if placement.type is DeviceType.CPU:
        return False
    if placement.uuid:
        return placement.uuid == gpu.uuid
    return gpu.index == int(placement.device.partition(":")[2] or 0)


def _on_cpu(placement: Placement, total_bytes: int, host: HostMemory) -> DeviceReading:
    own = AllocatorStats(allocated_bytes=host.resident_bytes)
    room = headroom_bytes(own, host.free_bytes, placement.memory_bytes or total_bytes)
    return DeviceReading(placement, None, host.resident_bytes, host.free_bytes, total_bytes, room)


def _on_apple(
    placement: Placement, card: CardReading | None, books: AllocatorStats | None, host_free: int | None
) -> DeviceReading:
    total = card.gpu.total_bytes if card else None
    used = books.reserved_bytes if books else None
    free = _least(None if total is None or used is None else total - used, host_free)  # one memory for both
    return DeviceReading(placement, card, used, free, total, _room(placement, books, free), books)


def _on_card(
    placement: Placement, card: CardReading | None, books: AllocatorStats | None, host: Callable[[], HostMemory]
) -> DeviceReading:
    if card is not None and card.lost:  # what the allocator believed of it is no longer worth a number
        return DeviceReading(placement, card, total_bytes=card.gpu.total_bytes, allocator=books)
    told = card.sample if card else _UNREAD
    used, free, total = told.used_bytes, told.free_bytes, told.total_bytes or (card.gpu.total_bytes if card else None)
    if free is None and card is not None and card.gpu.unified:
        free = host().free_bytes
    elif free is None and (asked := _ask_torch(placement.device)):
        free, total = asked
    if used is None and free is not None and total is not None:
        used = total - free
    return DeviceReading(placement, card, used, free, total, _room(placement, books, free), books)


def _ask_torch(device: str) -> tuple[int, int] | None:
    """Free and total bytes where NVML is absent, as in a container without the driver's "utility" capability."""
    torch = sys.modules.get("torch")  # never imported, nor a context opened, for a reading
    if torch is None or not torch.cuda.is_initialized():
        return None
    try:
        free, total = torch.cuda.mem_get_info(device)
    except RuntimeError:  # the context is dead; the lane that met it tells, a reading has nothing to add
        return None
    return int(free), int(total)


def _room(placement: Placement, books: AllocatorStats | None, free_bytes: int | None) -> int | None:
    if free_bytes is None and (books is None or not placement.memory_bytes):
        return None  # nobody tells anything
    return headroom_bytes(books or AllocatorStats(), free_bytes, placement.memory_bytes)


def _least(*values: int | None) -> int | None:
    known = [value for value in values if value is not None]
    return max(0, min(known)) if known else None
