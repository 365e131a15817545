"""PURE: selects the devices to use from the machine's facts, the operator's request and the saved choice."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from backend.device.choice.saved_choice import SavedChoice
from backend.device.facts.torch_builds import build_fault, install_line
from backend.device.records import DeviceType, GPUInfo, MachineFacts
from backend.errors import DeviceUnavailable

FORMS = "auto, cpu, cuda, cuda:N, cuda:all, cuda:0,cuda:1 or mps"
_NEARLY_AS_FREE_RATIO = 0.95  # of the most free memory; a context or a desktop, 0.5 GiB, is 2 % of a 24 GiB card


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """What the operator asked for. ``None`` and "auto" leave the choice to ``choose``."""

    device: str = "auto"
    use_gpu: bool | None = None
    lanes: int | None = None
    gpu: int | None = None  # --gpu N: the card's number in this process; overrides DEVICE and the saved choice
    memory_fraction: float | None = None  # GPU_MEMORY_FRACTION: of the device's total memory, above 0 up to 1


@dataclass(frozen=True, slots=True)
class Selection:
    """The selected devices, and why."""

    devices: tuple[GPUInfo, ...]  # () is the CPU
    why: str  # one sentence
    notes: tuple[str, ...] = ()  # further advice to the operator: unusable cards, a stale saved choice


@dataclass(frozen=True, slots=True)
class _DeviceSetting:
    """The parsed value of DEVICE."""

    kind: DeviceType | None  # None for "auto" and "cpu"
    numbers: tuple[int, ...] = ()  # of the cards it names
    all_cards: bool = False


def wants_gpu(request: DeviceRequest) -> bool:
    """Whether the request allows any accelerator."""
    return request.use_gpu is not False and (request.gpu is not None or request.device != "cpu")


def is_ambiguous(facts: MachineFacts, request: DeviceRequest) -> bool:
    """Whether several cards are usable and the request names none of them, so that a person may be asked."""
    return len(facts.usable) > 1 and request.gpu is None and request.device in ("auto", "cuda") and wants_gpu(request)


def choose(facts: MachineFacts, request: DeviceRequest, saved: SavedChoice | None = None) -> Selection:
    """Select the devices to use; CUDA before MPS before the CPU.

    1. ``--gpu N``; 2. a card named by DEVICE; 3. the saved choice, if that card is usable now; 4. the card with
    the most free memory. ``DEVICE=cuda`` and ``USE_GPU=true`` demand a GPU and leave which one to 3 and 4.

    Raises: DeviceUnavailable when an explicit request cannot be met; ``auto`` falls back to the CPU with the reason.
    """
    setting = _parse_device(request.device)
    _refuse_contradictions(request)
    if not wants_gpu(request):
        return Selection((), "CPU as asked for (DEVICE=cpu or USE_GPU=false)")
    if request.gpu is not None:
        return _by_gpu_option(facts, request, request.gpu)
    if setting.kind is not None and (not facts.usable or facts.gpu_type is not setting.kind):
        raise _refusal(facts, f"DEVICE={request.device}")
    if setting.numbers:
        cards = tuple(_usable_card(facts, number, f"DEVICE={request.device}") for number in setting.numbers)
        return Selection(cards, f"{_names(cards)}: DEVICE={request.device}")
    if not facts.usable:
        if request.use_gpu:
            raise _refusal(facts, "USE_GPU=true")
        return Selection((), f"CPU: {facts.why_no_gpu or 'no accelerator was found'}", _how_to_use(facts))
    if setting.all_cards:
        why = f"{_names(facts.usable)}: DEVICE={request.device}, all usable ones"
        return Selection(facts.usable, why, _left_out(facts))
    return _automatic(facts, "automatic choice" if setting.kind is None else f"DEVICE={request.device}", saved)


def most_free(gpus: Sequence[GPUInfo]) -> GPUInfo:
    """The card with the most free memory, in whatever order the cards are listed.

    Among cards with nearly equal free memory the newer generation, then the first by UUID: numbers change with a
    reboot (tensorflow#32881), and the choice must be the same at every start.
    """
    enough = _NEARLY_AS_FREE_RATIO * max(_free_or_total(gpu, gpus) for gpu in gpus)
    candidates = [gpu for gpu in gpus if _free_or_total(gpu, gpus) >= enough]
    return min(candidates, key=lambda gpu: (-gpu.capability[0], -gpu.capability[1], gpu.uuid, gpu.index))


def card_number(facts: MachineFacts, gpu: GPUInfo) -> int:
    """The card's number for ``--gpu``: torch's index, or its position in the list when torch sees no card at all."""
    return facts.gpus.index(gpu) if all(card.index < 0 for card in facts.gpus) else gpu.index


def device_string(facts: MachineFacts, gpu: GPUInfo) -> str:
    """torch's device string: "cuda:1" or "mps"."""
    return f"cuda:{gpu.index}" if facts.gpu_type is DeviceType.CUDA else "mps"


def advice(facts: MachineFacts, gpu: GPUInfo) -> str:
    """The command that installs a torch for an unusable card, or why none exists; "" when torch is not the fault."""
    build = facts.torch
    if not build.version or gpu.capability == (0, 0):
        return ""
    if not build_fault(gpu.capability, facts.driver, build, facts.platform):
        return ""
    return install_line(gpu.capability, facts.driver.cuda, facts.platform.machine, build.version)


def gib(size_bytes: int) -> str:
    """Format bytes: "23.6 GiB"."""
    return f"{size_bytes / 2**30:.1f} GiB"


def _parse_device(device: str) -> _DeviceSetting:
    simple = {
        "auto": _DeviceSetting(None),
        "cpu": _DeviceSetting(None),
        "cuda": _DeviceSetting(DeviceType.CUDA),
        "cuda:all": _DeviceSetting(DeviceType.CUDA, all_cards=True),
        "mps": _DeviceSetting(DeviceType.MPS),
        "mps:0": _DeviceSetting(DeviceType.MPS),
    }
    if device in simple:
        return simple[device]
    matches = [re.fullmatch(r"cuda:([0-9]{1,3})", name.strip()) for name in device.split(",")]
    numbers = tuple(int(match[1]) for match in matches if match)
    if len(numbers) != len(matches):
        raise DeviceUnavailable(f"DEVICE={device} is not a device; use {FORMS}")
    if len(set(numbers)) != len(numbers):
        raise DeviceUnavailable(f"DEVICE={device} names a card twice; name each once")
    return _DeviceSetting(DeviceType.CUDA, numbers)


def _refuse_contradictions(request: DeviceRequest) -> None:
    if request.use_gpu and not wants_gpu(request):
        raise DeviceUnavailable("DEVICE=cpu contradicts USE_GPU=true; remove one of them")
    if request.use_gpu is False and request.gpu is not None:
        raise DeviceUnavailable(f"--gpu {request.gpu} contradicts USE_GPU=false; remove one of them")
    if request.use_gpu is False and request.device not in ("auto", "cpu"):
        raise DeviceUnavailable(f"DEVICE={request.device} contradicts USE_GPU=false; remove one of them")


def _by_gpu_option(facts: MachineFacts, request: DeviceRequest, number: int) -> Selection:
    card = _usable_card(facts, number, f"--gpu {number}")
    device = request.device
    notes = (f"--gpu {number} goes before DEVICE={device}",) if device not in ("auto", f"cuda:{number}") else ()
    return Selection((card,), f"{card.name}: --gpu {number}", notes)


def _automatic(facts: MachineFacts, reason: str, saved: SavedChoice | None) -> Selection:
    notes = _left_out(facts)
    if saved is not None:
        for gpu in facts.usable:
            if saved.is_for(gpu):
                return Selection((gpu,), f"{gpu.name}: chosen on {saved.chosen_at[:10]} ({gpu.uuid})", notes)
        notes = (*notes, _stale(facts, saved))
    best = most_free(facts.usable)
    if len(facts.usable) == 1:
        return Selection((best,), f"{best.name}: {reason}, the only usable card", notes)
    quantity = "free memory" if _free_is_known(facts.usable) else "memory"
    size = gib(_free_or_total(best, facts.usable))
    why = f"{best.name}: {reason}, the most {quantity} ({size}) of {len(facts.usable)} cards"
    return Selection((best,), why, notes)


def _stale(facts: MachineFacts, saved: SavedChoice) -> str:
    is_present = any(gpu.uuid == saved.uuid for gpu in facts.gpus)
    state = "cannot be used now" if is_present else "is not among the cards that this process sees"
    return (
        f"the saved choice, {saved.name} ({saved.uuid}), {state}, so the choice is automatic; "
        "python -m backend.check_gpu --choose makes a new one, --forget drops it"
    )


def _left_out(facts: MachineFacts) -> tuple[str, ...]:
    return tuple(f"{gpu.name} is left out: {_why_not(facts, gpu)}" for gpu in facts.gpus if gpu.fault)


def _how_to_use(facts: MachineFacts) -> tuple[str, ...]:
    """What would make the cards usable; their faults are in ``why_no_gpu`` already."""
    lines = ((gpu.name, advice(facts, gpu)) for gpu in facts.gpus)
    return tuple(f"to use {name}: {line}" for name, line in lines if line)


def _usable_card(facts: MachineFacts, number: int, option: str) -> GPUInfo:
    for gpu in facts.gpus:
        if card_number(facts, gpu) != number:
            continue
        if gpu.fault:
            raise DeviceUnavailable(f"{option}, but {gpu.name} cannot be used: {_why_not(facts, gpu)}")
        return gpu
    raise _refusal(facts, option)


def _refusal(facts: MachineFacts, option: str) -> DeviceUnavailable:
    """The error of an option that cannot be met: what was found, and what to change."""
    repair = "or repair the GPU (python -m backend.check_gpu says what is wrong)"
    if not facts.gpus:
        why = facts.why_no_gpu or "no accelerator was found"
        return DeviceUnavailable(f"{option}, but {why}; {_alternative(option)} to run on the CPU, {repair}")
    cards = ", ".join(
        f"{card_number(facts, gpu)} {gpu.name} ({gib(gpu.total_bytes)})" for gpu in facts.gpus if not gpu.fault
    )
    broken = "; ".join(f"{gpu.name} cannot be used: {_why_not(facts, gpu)}" for gpu in facts.gpus if gpu.fault)
    kind = "card" if facts.gpu_type is DeviceType.CUDA else f"{facts.gpu_type} device"
    count = len(facts.usable)
    if not count:
        return DeviceUnavailable(f"{option}, but {broken}; {_alternative(option)} to run on the CPU, {repair}")
    present = f"found {count} {kind}{'s' if count > 1 else ''}: {cards}" + (f"; {broken}" if broken else "")
    return DeviceUnavailable(f"{option}, but {present}; {_alternative(option)} or name one of these")


def _alternative(option: str) -> str:
    if option.startswith("USE_GPU"):
        return "set USE_GPU=false"
    return "leave --gpu out" if option.startswith("--gpu") else "set DEVICE=auto"


def _why_not(facts: MachineFacts, gpu: GPUInfo) -> str:
    line = advice(facts, gpu)
    return f"{gpu.fault} ({line})" if line and line not in gpu.fault else gpu.fault


def _free_or_total(gpu: GPUInfo, gpus: Sequence[GPUInfo]) -> int:
    """The card's free bytes; its total when some card of ``gpus`` does not report its free memory."""
    return gpu.free_bytes if gpu.free_bytes is not None and _free_is_known(gpus) else gpu.total_bytes


def _free_is_known(gpus: Sequence[GPUInfo]) -> bool:
    return all(gpu.free_bytes is not None for gpu in gpus)


def _names(gpus: Sequence[GPUInfo]) -> str:
    return " and ".join(gpu.name for gpu in gpus)
