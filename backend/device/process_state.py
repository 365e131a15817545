"""The machine and the wishes of this process, held once: what "auto" means to every door of this floor."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from backend.device.choice.saved_choice import SavedChoice
from backend.device.facts.machine import DeviceType, MachineFacts, probe
from backend.device.plan.placement import Placement, Wishes, place_all

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class _Ground:
    facts: MachineFacts
    wishes: Wishes
    saved: SavedChoice | None = None


_lock = threading.Lock()
_ground: _Ground | None = None


def adopt(facts: MachineFacts, wishes: Wishes | None = None, saved: SavedChoice | None = None) -> None:
    """Take these facts, wishes and saved choice for the process's own.

    The composition root calls it, so that the doors follow its settings; a test calls it with another machine.
    """
    global _ground  # noqa: PLW0603  # one machine a process
    with _lock:
        _ground = _Ground(facts, wishes or Wishes(), saved)


def forget() -> None:
    """Read the machine anew at the next question."""
    global _ground  # noqa: PLW0603  # one machine a process
    with _lock:
        _ground = None


def machine() -> MachineFacts:
    """What the machine has, read at the first question and kept."""
    return _known().facts


def wishes() -> Wishes:
    """What the operator asked for, as far as this process was told."""
    return _known().wishes


def placement(device: str = "auto") -> Placement:
    """Where ``device`` is and what it can do; "auto" is what this process chose.

    Raises: DeviceUnavailable for a device that is unknown, absent or unusable.
    """
    return placements(wishes() if device == "auto" else wishes_for(device))[0]


def placements(wanted: Wishes) -> tuple[Placement, ...]:
    """One for each device that ``wanted`` names on this machine, the saved choice heeded. Raises as ``placement``."""
    known = _known()
    return place_all(known.facts, wanted, known.saved)


def wishes_for(device: str) -> Wishes:
    """The process's wishes with another device.

    A door may always be asked for the CPU, even where the service was told to use a GPU; USE_GPU=false stays.
    """
    known = wishes()
    return replace(known, device=device, gpu=None, use_gpu=None if device == DeviceType.CPU else known.use_gpu)


def torch_device(device: str | torch.device = "auto") -> torch.device:
    """``device`` for torch. A ``torch.device`` is taken at its word; a string is checked against the machine.

    Raises: DeviceUnavailable as ``placement``.
    """
    import torch  # seconds of import that asking for facts alone need not pay

    if isinstance(device, torch.device):
        current = str(device) == DeviceType.CUDA
        return torch.device(device.type, torch.cuda.current_device()) if current else device
    # Every machine has a CPU: nothing need be looked for.
    return torch.device(device if device == DeviceType.CPU else placement(device).device)


def _known() -> _Ground:
    global _ground  # noqa: PLW0603  # one machine a process
    with _lock:
        if _ground is None:
            _ground = _Ground(probe(), Wishes())
        return _ground
