"""Machines that are not here: their figures behind the protocols of the real sources.

``check_gpu --as NAME`` shows with them what would be chosen there, and tests run on them without a card.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

from backend.device.facts.machine import probe
from backend.device.facts.simulated_machines import MACHINES, Profile
from backend.device.facts.torch_wheels import driver_runs, kernels_run
from backend.device.facts.visibility import visible_cards
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

__all__ = ["MACHINES", "Machine", "Profile", "SimulatedDriver", "SimulatedTorch", "facts", "simulated"]


@dataclass(frozen=True, slots=True)
class Machine:
    """One simulated machine: its data, and sources of its own that remember what was asked of them."""

    name: str
    profile: Profile
    driver_source: SimulatedDriver
    torch_source: SimulatedTorch


class SimulatedDriver:
    """A ``DriverSource`` that answers from a profile; ``lost`` may be set to take the cards away or give them back."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._lock = threading.Lock()
        self.samples = 0  # readings answered so far
        self.lost = False

    def driver(self) -> Driver:
        """The profile's driver."""
        return self._profile.driver

    def cards(self) -> tuple[Card, ...]:
        """The profile's cards."""
        return self._profile.cards

    def sample(self, uuid: str) -> CardSample:
        """The card's idle reading; energy grows with each. Raises: GPULost from the profile's ``lost_after`` on."""
        with self._lock:
            card, sensors = self._find(uuid)
            self.samples += 1
            drawn = (sensors.power_watts or 0.0) * self.samples  # as if read once a second
        used = None
        if card.total_bytes is not None and card.free_bytes is not None:
            used = card.total_bytes - card.free_bytes
        energy = None if sensors.energy_joules is None else sensors.energy_joules + drawn
        return replace(
            sensors, used_bytes=used, free_bytes=card.free_bytes, total_bytes=card.total_bytes, energy_joules=energy
        )

    def processes(self, uuid: str) -> tuple[Process, ...]:
        """The card's processes. Raises: GPULost as ``sample``."""
        with self._lock:
            return self._find(uuid)[1].processes or ()

    def close(self) -> None:
        """Nothing is held."""

    def _find(self, uuid: str) -> tuple[Card, CardSample]:
        limit = self._profile.lost_after
        if limit is not None and self.samples == limit:
            self.lost = True
            self.samples += 1  # once: a card that is given back stays
        if self.lost:
            raise GPULost("GPU is lost")
        for card, sensors in zip(self._profile.cards, self._profile.sensors, strict=True):
            if card.uuid == uuid:
                return card, sensors
        raise GPULost(f"the driver lists no card {uuid}")


class SimulatedTorch:
    """A ``TorchSource`` that numbers a profile's cards as CUDA would; ``asked`` counts what opens contexts."""

    def __init__(self, profile: Profile, visible: str | None = None, order: str | None = None) -> None:
        self._profile = profile
        self._visible = visible_cards(profile.cards, visible, order)
        self.asked: list[str] = []  # devices that ``try_kernel`` was called for, in order

    def build(self) -> TorchBuild:
        """The profile's build."""
        return self._profile.torch

    def devices(self) -> tuple[TorchDevice, ...]:
        """The visible cards, of a card in slices the first slice; none where this build cannot start CUDA."""
        if not self._starts():
            return ()
        cards = self._visible[:1] if self._visible and self._visible[0].mig else self._visible
        return tuple(self._device(index, card) for index, card in enumerate(cards))

    def mps(self) -> TorchDevice | None:
        """The profile's Apple GPU."""
        return self._profile.mps

    def fault(self) -> str:
        """The profile's complaint."""
        return self._profile.torch_says

    def try_kernel(self, device: str) -> str:
        """What the first kernel would say."""
        self.asked.append(device)
        kind, _, index = device.partition(":")
        if kind == "cpu" or (kind == "mps" and self._profile.mps is not None):
            return ""
        found = self.devices() if kind == "cuda" else ()
        number = int(index or 0)
        if number >= len(found):
            return "CUDA error: invalid device ordinal" if found else f"torch has no device {device}"
        if not kernels_run(found[number].capability, self._profile.torch.archs):
            return "CUDA error: no kernel image is available for execution on the device"
        return ""

    def allocator(self, device: str) -> AllocatorStats:
        """The profile's books on a GPU, zeros on a CPU."""
        return AllocatorStats() if device == "cpu" else self._profile.books

    def _starts(self) -> bool:
        """CUDA starts in a build that has it, under a driver that runs it; kernels are another matter."""
        cuda = self._profile.torch.cuda
        return bool(cuda) and driver_runs(self._profile.driver.cuda, cuda)

    def _device(self, index: int, card: Card) -> TorchDevice:
        return TorchDevice(
            index=index,
            name=card.name,
            uuid=f"GPU-{card.uuid[4:]}",  # torch leaves the kind out, and its source adds this one
            total_bytes=(card.total_bytes or 0) - self._profile.kept_back_bytes,
            capability=card.capability or (0, 0),
            pci_bus_id=card.pci_bus_id,
            integrated=card.unified,
        )


def simulated(name: str, *, visible: str | None = None, order: str | None = None) -> Machine:
    """A fresh machine; ``visible`` and ``order`` as CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER there.

    Raises: KeyError naming the machines there are.
    """
    if name not in MACHINES:
        raise KeyError(f"no simulated machine is called {name!r}; there are {', '.join(MACHINES)}")
    profile = MACHINES[name]
    return Machine(name, profile, SimulatedDriver(profile), SimulatedTorch(profile, visible, order))


def facts(name: str, *, visible: str | None = None, order: str | None = None) -> MachineFacts:
    """What ``probe`` finds on that machine. Raises: KeyError naming the machines there are."""
    machine = simulated(name, visible=visible, order=order)
    return probe(
        driver=machine.driver_source,
        torch_source=machine.torch_source,
        visible=visible,
        order=order,
        host=machine.profile.host,
    )
