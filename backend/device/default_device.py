"""What ``device="auto"`` means in this process: the machine's facts and the operator's request, read once and cached.

Thread-safe. Without ``configure``, in a program of one's own or a training run, the machine is probed on first use,
nothing particular is requested, and the choice that ``check_gpu --choose`` saved counts.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from backend.device.choice.saved_choice import CHOICE_FILE, STATE_DIR, ChoiceFile, SavedChoice
from backend.device.choice.selection import DeviceRequest
from backend.device.facts.machine import probe
from backend.device.plan.placement import Placement, place_all
from backend.device.records import DeviceType, MachineFacts
from backend.errors import DeviceUnavailable


@dataclass(frozen=True, slots=True)
class LocalRank:
    """One of ``count`` processes of a run on this machine."""

    index: int = 0
    count: int = 1
    by_torchrun: bool = False  # also where it is the only one here: others may be on other machines


def local_rank(environ: Mapping[str, str] | None = None) -> LocalRank:
    """From LOCAL_RANK and LOCAL_WORLD_SIZE; the only process of its run where they are not set."""
    environ = os.environ if environ is None else environ
    index, count = environ.get("LOCAL_RANK", ""), environ.get("LOCAL_WORLD_SIZE", "")
    if not index.isdigit() or not count.isdigit() or int(index) >= int(count):
        return LocalRank()
    return LocalRank(int(index), int(count), by_torchrun=True)


def tell_accelerate(device: str) -> None:
    """Have accelerate take this card, before its first object: it would take the one of the rank's number."""
    os.environ["ACCELERATE_TORCH_DEVICE"] = device


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


def saved_choice() -> SavedChoice | None:
    """The card that the operator chose and this process knows of; None without one."""
    return _current().saved


def placement(device: str = "auto") -> Placement:
    """Where ``device`` is and what it can do; "auto" is the device that this process selected.

    Raises: DeviceUnavailable for a device that is unknown, absent or unusable.
    """
    return placements(device_request() if device == "auto" else request_for(device))[0]


def placements(request: DeviceRequest) -> tuple[Placement, ...]:
    """One placement for each device of ``request``; the saved choice counts. Raises: DeviceUnavailable."""
    state = _current()
    return place_all(state.facts, request, state.saved)


def rank_placement(device: str, rank: LocalRank) -> Placement:
    """Where one of several processes that train together computes: each has a card of its own, in the same order.

    "auto", "cuda" and "cuda:all" are all usable cards, a list the cards it names; on a CPU all share it.

    Raises: DeviceUnavailable as ``placement``, and when there are fewer cards than processes.
    """
    first = placement(device)
    if rank.count == 1 or first.type is not DeviceType.CUDA:
        return first
    request = device_request() if device == "auto" else request_for(device)
    if request.device in ("auto", "cuda"):
        request = replace(request, device="cuda:all")
    cards = placements(request)
    if len(cards) < rank.count:
        raise DeviceUnavailable(
            f"torchrun started {rank.count} processes here, but DEVICE={device} is {len(cards)} card(s); start "
            f"--nproc-per-node={len(cards)}, or name as many cards as processes, for example DEVICE=cuda:all"
        )
    return cards[rank.index]


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
            file = ChoiceFile(Path(os.environ.get("STATE_DIR") or STATE_DIR).expanduser() / CHOICE_FILE)
            _state = _State(probe(), DeviceRequest(), file.load())
        return _state
