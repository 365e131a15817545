"""PURE: which devices to use, out of what was found, what was asked for and what was chosen earlier."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from backend.device.choice.saved_choice import SavedChoice
from backend.device.facts.torch_builds import build_fault, install_line
from backend.device.records import DeviceType, GPUInfo, MachineFacts
from backend.errors import DeviceUnavailable

FORMS = "auto, cpu, cuda, cuda:N, cuda:all, cuda:0,cuda:1 or mps"
_ABOUT_AS_FREE = 0.95  # of the most free memory; a context or a desktop, 0.5 GiB, is 2 % of a 24 GiB card


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the operator asked for. ``None`` and "auto" leave the choice to us."""

    device: str = "auto"
    use_gpu: bool | None = None
    lanes: int | None = None
    gpu: int | None = None  # --gpu N: the card's number in this process, before DEVICE and the saved choice
    memory_fraction: float | None = None  # GPU_MEMORY_FRACTION: of the device's whole memory, above 0 up to 1


@dataclass(frozen=True, slots=True)
class Selected:
    """The devices, and why."""

    devices: tuple[GPUInfo, ...]  # () is the CPU
    why: str  # one sentence
    notes: tuple[str, ...] = ()  # what else the operator should read: cards left out, a choice that is stale


@dataclass(frozen=True, slots=True)
class _Named:
    """DEVICE, read."""

    kind: DeviceType | None  # None: whatever there is
    numbers: tuple[int, ...] = ()  # () names no card
    every: bool = False


def wants_gpu(wishes: Wishes) -> bool:
    """Whether an accelerator may be looked for at all."""
    return wishes.use_gpu is not False and (wishes.gpu is not None or wishes.device != "cpu")


def is_open(facts: MachineFacts, wishes: Wishes) -> bool:
    """Whether several cards could serve and no wish names one: then a person may be asked."""
    return len(facts.usable) > 1 and wishes.gpu is None and wishes.device in ("auto", "cuda") and wants_gpu(wishes)


def choose(facts: MachineFacts, wishes: Wishes, saved: SavedChoice | None = None) -> Selected:
    """The devices to use; CUDA before MPS before the CPU.

    1. ``--gpu N``; 2. a card named by DEVICE; 3. the saved choice, if that card is usable now; 4. the card with
    the most free memory. ``DEVICE=cuda`` and ``USE_GPU=true`` demand a GPU and leave which one to 3 and 4.

    Raises: DeviceUnavailable when an explicit wish cannot be granted; ``auto`` falls back and says so.
    """
    named = _read(wishes.device)
    _refuse_contradictions(wishes)
    if not wants_gpu(wishes):
        return Selected((), "CPU as asked for (DEVICE=cpu or USE_GPU=false)")
    if wishes.gpu is not None:
        return _by_option(facts, wishes, wishes.gpu)
    if named.kind is not None and (not facts.usable or facts.gpu_type is not named.kind):
        raise _refusal(facts, f"DEVICE={wishes.device}")
    if named.numbers:
        found = tuple(_card(facts, number, f"DEVICE={wishes.device}") for number in named.numbers)
        return Selected(found, f"{_names(found)}: DEVICE={wishes.device}")
    if not facts.usable:
        if wishes.use_gpu:
            raise _refusal(facts, "USE_GPU=true")
        return Selected((), f"CPU: {facts.why_no_gpu or 'no accelerator was found'}", _how_to_use(facts))
    if named.every:
        why = f"{_names(facts.usable)}: DEVICE={wishes.device}, all usable ones"
        return Selected(facts.usable, why, _left_out(facts))
    return _left_to_us(facts, "automatic choice" if named.kind is None else f"DEVICE={wishes.device}", saved)


def most_free(gpus: Sequence[GPUInfo]) -> GPUInfo:
    """The card with the most free memory, the same one whatever order the cards are counted in.

    Among cards about equally free the newer generation, then the first by UUID: numbers change with a reboot
    (tensorflow#32881), and a choice that wanders from start to start cannot be explained to anyone.
    """
    enough = _ABOUT_AS_FREE * max(_room(gpu, gpus) for gpu in gpus)
    near = [gpu for gpu in gpus if _room(gpu, gpus) >= enough]
    return min(near, key=lambda gpu: (-gpu.capability[0], -gpu.capability[1], gpu.uuid, gpu.index))


def number_of(facts: MachineFacts, gpu: GPUInfo) -> int:
    """What ``--gpu`` calls the card: torch's number, or its place in the list where torch sees none at all."""
    return facts.gpus.index(gpu) if all(one.index < 0 for one in facts.gpus) else gpu.index


def device_string(facts: MachineFacts, gpu: GPUInfo) -> str:
    """torch's name of the device: "cuda:1" or "mps"."""
    return f"cuda:{gpu.index}" if facts.gpu_type is DeviceType.CUDA else "mps"


def advice(facts: MachineFacts, gpu: GPUInfo) -> str:
    """What makes an unusable card usable: the line that installs a fitting torch; "" where that is not the fault."""
    build = facts.torch
    if not build.version or gpu.capability == (0, 0):
        return ""
    if not build_fault(gpu.capability, facts.driver, build, facts.platform):
        return ""
    return install_line(gpu.capability, facts.driver.cuda, facts.platform.machine, build.version)


def gib(size_bytes: int) -> str:
    """Bytes for people: "23.6 GiB"."""
    return f"{size_bytes / 2**30:.1f} GiB"


def _read(device: str) -> _Named:
    simple = {
        "auto": _Named(None),
        "cpu": _Named(None),
        "cuda": _Named(DeviceType.CUDA),
        "cuda:all": _Named(DeviceType.CUDA, every=True),
        "mps": _Named(DeviceType.MPS),
        "mps:0": _Named(DeviceType.MPS),
    }
    if device in simple:
        return simple[device]
    found = [re.fullmatch(r"cuda:([0-9]{1,3})", part.strip()) for part in device.split(",")]
    numbers = tuple(int(match[1]) for match in found if match)
    if len(numbers) != len(found):
        raise DeviceUnavailable(f"DEVICE={device} is not a device; use {FORMS}")
    if len(set(numbers)) != len(numbers):
        raise DeviceUnavailable(f"DEVICE={device} names a card twice; name each once")
    return _Named(DeviceType.CUDA, numbers)


def _refuse_contradictions(wishes: Wishes) -> None:
    if wishes.use_gpu and not wants_gpu(wishes):
        raise DeviceUnavailable("DEVICE=cpu contradicts USE_GPU=true; remove one of them")
    if wishes.use_gpu is False and wishes.gpu is not None:
        raise DeviceUnavailable(f"--gpu {wishes.gpu} contradicts USE_GPU=false; remove one of them")
    if wishes.use_gpu is False and wishes.device not in ("auto", "cpu"):
        raise DeviceUnavailable(f"DEVICE={wishes.device} contradicts USE_GPU=false; remove one of them")


def _by_option(facts: MachineFacts, wishes: Wishes, number: int) -> Selected:
    found = _card(facts, number, f"--gpu {number}")
    device = wishes.device
    notes = (f"--gpu {number} goes before DEVICE={device}",) if device not in ("auto", f"cuda:{number}") else ()
    return Selected((found,), f"{found.name}: --gpu {number}", notes)


def _left_to_us(facts: MachineFacts, reason: str, saved: SavedChoice | None) -> Selected:
    notes = _left_out(facts)
    if saved is not None:
        for gpu in facts.usable:
            if (gpu.uuid, gpu.uuid or gpu.name) == (saved.uuid, saved.uuid or saved.name):  # Apple's has no UUID
                return Selected((gpu,), f"{gpu.name}: chosen on {saved.chosen_at[:10]} ({gpu.uuid})", notes)
        notes = (*notes, _stale(facts, saved))
    best = most_free(facts.usable)
    if len(facts.usable) == 1:
        return Selected((best,), f"{best.name}: {reason}, the only usable card", notes)
    told = "free memory" if _free_is_known(facts.usable) else "memory"
    room = gib(_room(best, facts.usable))
    return Selected((best,), f"{best.name}: {reason}, the most {told} ({room}) of {len(facts.usable)} cards", notes)


def _stale(facts: MachineFacts, saved: SavedChoice) -> str:
    there = any(gpu.uuid == saved.uuid for gpu in facts.gpus)
    state = "cannot be used now" if there else "is not among the cards that this process sees"
    return (
        f"the saved choice, {saved.name} ({saved.uuid}), {state}, so the choice is automatic; "
        "python -m backend.check_gpu --choose makes a new one, --forget drops it"
    )


def _left_out(facts: MachineFacts) -> tuple[str, ...]:
    return tuple(f"{gpu.name} is left out: {_why_not(facts, gpu)}" for gpu in facts.gpus if gpu.fault)


def _how_to_use(facts: MachineFacts) -> tuple[str, ...]:
    """What would bring the cards back; their faults are ``why_no_gpu`` already."""
    lines = ((gpu.name, advice(facts, gpu)) for gpu in facts.gpus)
    return tuple(f"to use {name}: {line}" for name, line in lines if line)


def _card(facts: MachineFacts, number: int, asked: str) -> GPUInfo:
    for gpu in facts.gpus:
        if number_of(facts, gpu) != number:
            continue
        if gpu.fault:
            raise DeviceUnavailable(f"{asked}, but {gpu.name} cannot be used: {_why_not(facts, gpu)}")
        return gpu
    raise _refusal(facts, asked)


def _refusal(facts: MachineFacts, asked: str) -> DeviceUnavailable:
    """Asked for, found, and what to change."""
    repair = "or repair the GPU (python -m backend.check_gpu says what is wrong)"
    if not facts.gpus:
        why = facts.why_no_gpu or "no accelerator was found"
        return DeviceUnavailable(f"{asked}, but {why}; {_instead(asked)} to run on the CPU, {repair}")
    cards = ", ".join(
        f"{number_of(facts, gpu)} {gpu.name} ({gib(gpu.total_bytes)})" for gpu in facts.gpus if not gpu.fault
    )
    broken = "; ".join(f"{gpu.name} cannot be used: {_why_not(facts, gpu)}" for gpu in facts.gpus if gpu.fault)
    kind = "card" if facts.gpu_type is DeviceType.CUDA else f"{facts.gpu_type} device"
    count = len(facts.usable)
    if not count:
        return DeviceUnavailable(f"{asked}, but {broken}; {_instead(asked)} to run on the CPU, {repair}")
    found = f"found {count} {kind}{'s' if count > 1 else ''}: {cards}" + (f"; {broken}" if broken else "")
    return DeviceUnavailable(f"{asked}, but {found}; {_instead(asked)} or name one of these")


def _instead(asked: str) -> str:
    if asked.startswith("USE_GPU"):
        return "set USE_GPU=false"
    return "leave --gpu out" if asked.startswith("--gpu") else "set DEVICE=auto"


def _why_not(facts: MachineFacts, gpu: GPUInfo) -> str:
    line = advice(facts, gpu)
    return f"{gpu.fault} ({line})" if line and line not in gpu.fault else gpu.fault


def _room(gpu: GPUInfo, among: Sequence[GPUInfo]) -> int:
    """Free bytes, or all of them where some card does not tell: numbers of two kinds do not compare."""
    return gpu.free_bytes if gpu.free_bytes is not None and _free_is_known(among) else gpu.total_bytes


def _free_is_known(gpus: Sequence[GPUInfo]) -> bool:
    return all(gpu.free_bytes is not None for gpu in gpus)


def _names(gpus: Sequence[GPUInfo]) -> str:
    return " and ".join(gpu.name for gpu in gpus)
