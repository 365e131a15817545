"""PURE: facts and wishes in, one Placement with its reasons out."""

from __future__ import annotations

from dataclasses import dataclass

from backend.device.facts import DeviceType, MachineFacts
from backend.errors import DeviceUnavailable


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the operator asked for. ``None`` and "auto" leave the choice to us."""

    device: str = "auto"
    use_gpu: bool | None = None
    lanes: int | None = None


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the models run."""

    device: str  # torch device string: "cuda:0", "mps" or "cpu"
    lanes: int  # threads that run batches
    threads: int  # arithmetic threads of one lane
    depth: int  # batches a lane holds at once: 2 where the host can prepare while the device works
    why: tuple[str, ...]  # one sentence a decision; logged at start, shown by GET /v1/system

    @property
    def type(self) -> DeviceType:
        """The kind of the device."""
        return DeviceType(self.device.partition(":")[0])


def wants_gpu(wishes: Wishes) -> bool:
    """Whether an accelerator may be looked for at all."""
    return wishes.use_gpu is not False and wishes.device != "cpu"


def place(facts: MachineFacts, wishes: Wishes) -> Placement:
    """Choose the device, lanes and threads.

    Raises: DeviceUnavailable when an explicit wish cannot be granted; ``auto`` falls back and says so.
    """
    device, reason = _device(facts, wishes)
    if device != "cpu":
        return Placement(
            device, wishes.lanes or 1, 1, 2, (reason, "one lane: the device runs one batch while the next is prepared")
        )
    lanes = wishes.lanes or facts.cores
    threads = max(1, facts.cores // lanes)
    why = f"LANES={lanes}" if wishes.lanes else f"one lane for each of {facts.cores} usable cores"
    # A preempted OpenMP thread stalls its team: one wide lane is 1.5 to 1.8 times slower (DESIGN §5).
    return Placement("cpu", lanes, threads, 1, (reason, f"{why}, {threads} thread(s) each"))


def _device(facts: MachineFacts, wishes: Wishes) -> tuple[str, str]:
    if wishes.device == "cpu" and wishes.use_gpu:
        raise DeviceUnavailable("DEVICE=cpu contradicts USE_GPU=true; remove one of them")
    if wishes.device not in ("auto", "cpu"):
        return _explicit(facts, wishes)
    if not wants_gpu(wishes):
        return "cpu", "CPU as asked for (DEVICE=cpu or USE_GPU=false)"
    if facts.gpus:
        best = max(facts.gpus, key=lambda gpu: gpu.total_bytes)
        return _device_string(facts, best.index), f"{best.name}: automatic choice, the largest of {len(facts.gpus)}"
    if wishes.use_gpu:
        raise DeviceUnavailable(f"USE_GPU=true, but {facts.why_no_gpu}; set USE_GPU=false or repair the GPU")
    return "cpu", f"CPU: {facts.why_no_gpu}"


def _explicit(facts: MachineFacts, wishes: Wishes) -> tuple[str, str]:
    kind, _, index = wishes.device.partition(":")
    if kind not in ("cuda", "mps") or not (index == "" or index.isdigit()):
        raise DeviceUnavailable(f"DEVICE={wishes.device} is not a device; use auto, cpu, cuda, cuda:N or mps")
    if wishes.use_gpu is False:
        raise DeviceUnavailable(f"DEVICE={wishes.device} contradicts USE_GPU=false; remove one of them")
    number = int(index or 0)
    if facts.gpu_type != kind or number >= len(facts.gpus):
        found = facts.why_no_gpu or f"found {len(facts.gpus)} {facts.gpu_type} device(s)"
        raise DeviceUnavailable(f"DEVICE={wishes.device}, but {found}; set DEVICE=auto or repair the GPU")
    return _device_string(facts, number), f"{facts.gpus[number].name}: DEVICE={wishes.device}"


def _device_string(facts: MachineFacts, index: int) -> str:
    return f"cuda:{index}" if facts.gpu_type is DeviceType.CUDA else "mps"
