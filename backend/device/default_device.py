"""What ``device="auto"`` means in this process: the machine's facts and the operator's request, read once and cached.

Thread-safe. Without ``configure`` the machine is probed on first use and nothing particular is requested.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from backend.device.choice.saved_choice import SavedChoice
from backend.device.choice.selection import DeviceRequest
from backend.device.facts.machine import probe
from backend.device.plan.placement import Placement, place_all
from backend.device.records import DeviceType, MachineFacts

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class _State:
    facts: MachineFacts
    request: DeviceRequest
    saved: SavedChoice | None = None


_lock = threading.Lock()
_state: _State | None = None


def configure(facts: MachineFacts, request: DeviceRequest | None = None, saved: SavedChoice | None = None) -> None:
    """Set the facts, request and saved choice that this process uses from now on.

    The service calls it once at the start, so that ``backend.device`` follows its settings; tests simulate machines.
    """
    global _state  # noqa: PLW0603  # one machine a process
    with _lock:
        _state = _State(facts, request or DeviceRequest(), saved)


def reset() -> None:
    """Forget the configuration; the next call probes the machine again."""
    global _state  # noqa: PLW0603  # one machine a process
    with _lock:
        _state = None


def machine_facts() -> MachineFacts:
    """What the machine has, as configured or probed on first use."""
    return _current().facts


def device_request() -> DeviceRequest:
    """What the operator asked for, as configured; by default nothing."""
    return _current().request


def placement(device: str = "auto") -> Placement:
    """Where ``device`` is and what it can do; "auto" is the device that this process selected.

    Raises: DeviceUnavailable for a device that is unknown, absent or unusable.
    """
    return placements(device_request() if device == "auto" else request_for(device))[0]


def placements(request: DeviceRequest) -> tuple[Placement, ...]:
    """One placement for each device of ``request``; the saved choice counts. Raises: DeviceUnavailable."""
    state = _current()
    return place_all(state.facts, request, state.saved)


def request_for(device: str) -> DeviceRequest:
    """The process's request, with ``device`` instead of its own.

    The CPU is allowed even where the service was told to use a GPU; USE_GPU=false stays in force.
    """
    request = device_request()
    return replace(request, device=device, gpu=None, use_gpu=None if device == DeviceType.CPU else request.use_gpu)


def torch_device(device: str | torch.device = "auto") -> torch.device:
    """``device`` as a ``torch.device``. A ``torch.device`` is not checked; a string is checked against the machine.

    Raises: DeviceUnavailable as ``placement``.
    """
    import torch  # seconds of import that callers who only need facts do not pay

    if isinstance(device, torch.device):
        is_current_card = str(device) == DeviceType.CUDA
        return torch.device(device.type, torch.cuda.current_device()) if is_current_card else device
    # Every machine has a CPU: no probe is needed.
    return torch.device(device if device == DeviceType.CPU else placement(device).device)


def _current() -> _State:
    global _state  # noqa: PLW0603  # one machine a process
    with _lock:
        if _state is None:
            _state = _State(probe(), DeviceRequest())
        return _state
