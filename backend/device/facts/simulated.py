"""Simulated machines: the figures of ``simulated_machines`` behind the protocols of the real sources.

``check_gpu --as NAME`` shows what would be selected on such a machine, and tests run on them without a GPU.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

from backend.device.facts.machine import probe, visible_cards
from backend.device.facts.simulated_machines import MACHINES, MachineProfile
from backend.device.facts.torch_wheels import driver_runs, kernels_run
from backend.device.records import (
    AllocatorStats,
    Card,
    CardSample,
    Driver,
    GPULost,
    MachineFacts,
    Process,
    TorchBuild,
    TorchDevice,
)

__all__ = ["MACHINES", "MachineProfile", "SimulatedDriver", "SimulatedMachine", "SimulatedTorch", "facts", "simulated"]


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
