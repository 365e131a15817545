"""PURE: how to train a model on this machine, with a reason and an off switch for each choice, and what would fit.

What changes no result is chosen by itself: micro-batch, activation checkpointing, precision, layout, compilation. What
does change it (LoRA, an 8-bit optimizer, a smaller effective batch) is shown and left to the user.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from backend.device.choice.selection import gib
from backend.device.facts.compute_capability import architecture, fp16_is_broken
from backend.device.plan.placement import Placement, card_of
from backend.device.plan.precision import DtypeChoice, for_model
from backend.device.records import GPUInfo, MachineFacts
from backend.errors import DoesNotFit
from backend.training.memory.footprint import Footprint
from backend.training.memory.memory_plan import Way, refusal, way_of, ways_of
from backend.training.records import TrainingConfig
from backend.training.trainer.precision import rungs_for

_SMALL_BYTES = 4 * 2**30  # "little memory" in document 003
_SMALL_MICRO_BATCH = 8  # its batch for such a card: below this, computing activations again pays for itself
# Compiling takes from half a minute to some minutes and wins 10 to 30 % by document 003: steps of 0.1 s repay it late.
_COMPILE_STEPS = 5000
_TRITON = (7, 0)  # the oldest card that torch.compile writes kernels for


class Hardware(StrEnum):
    """The classes that document 003 gives settings for, and Apple's."""

    CPU = "CPU"
    APPLE = "Apple GPU"
    TENSOR_CORES = "GPU with tensor cores"
    OLD_CARD = "GPU without tensor cores"


@dataclass(frozen=True, slots=True)
class Subject:
    """What the plan is about, as far as choices depend on it."""

    images: bool = False  # two-dimensional convolutions are in it
    model_type: str = ""  # as config.json has it: some overflow fp16
    steps: int | None = None  # optimizer steps of the whole run; None where it is not known
    ranks: int = 1  # processes that share an effective batch
    eight_bit: bool = False  # whether an 8-bit optimizer is installed and runs on this device
    splittable: bool = True  # whether an effective batch may be cut anywhere


@dataclass(frozen=True, slots=True)
class Choice:
    """One setting, why, and the flag that overrules it."""

    name: str
    value: str
    why: str
    flag: str


@dataclass(frozen=True, slots=True)
class Plan:
    """How to train here. ``config`` has every automatic choice made."""

    device: str
    hardware: str  # of ``Hardware``, with what was found
    room_bytes: int  # that this process may take on the device
    config: TrainingConfig
    choices: tuple[Choice, ...]
    ways: tuple[Way, ...] = ()  # what would fit; empty where nothing could be foreseen


@dataclass(frozen=True, slots=True)
class _Case:
    """What every choice looks at."""

    facts: MachineFacts
    placement: Placement
    config: TrainingConfig
    subject: Subject
    told: Collection[str]
    gpu: GPUInfo | None
    hardware: Hardware

    @property
    def share(self) -> int:
        """Items of an effective batch that one process has."""
        return max(1, -(-self.config.batch_size // self.subject.ranks))


def plan(
    facts: MachineFacts,
    placement: Placement,
    config: TrainingConfig,
    subject: Subject = Subject(),
    *,
    told: Collection[str] = (),
    footprints: Sequence[Footprint] = (),
) -> Plan:
    """The settings for this machine. Precision stays as it was asked for: the loop decides it by the same rule.

    Args:
        told: fields of ``config`` that the user set; they stay, whatever the machine would advise.
        footprints: of the model in the precision that ``half_for`` says; none where it could not be foreseen.

    Raises: BadSettings for what this device cannot do; DoesNotFit, with what would fit, when one item alone is too
    large.
    """
    gpu = card_of(facts, placement)
    case = _Case(facts, placement, config, subject, told, gpu, hardware_of(gpu))
    ways = ways_of(footprints, placement.memory_bytes, most=case.share, eight_bit=subject.eight_bit)
    compiled, layout = _compile(case), _layout(case)
    again, micro, memory = _memory(case, ways)
    workers = placement.loader.num_workers if config.num_workers is None else config.num_workers
    settled = replace(
        config,
        compile=compiled.value == "on",
        channels_last=layout.value == "channels last",
        gradient_checkpointing=again,
        micro_batch=micro,
        num_workers=workers,
    )
    choices = (_precision(case), compiled, layout, *memory, _loader(case), *_unchosen(config))
    return Plan(placement.device, _described(case), placement.memory_bytes, settled, choices, ways)


def hardware_of(gpu: GPUInfo | None) -> Hardware:
    """The class of a device, by what it computes in; None is the CPU."""
    if gpu is None:
        return Hardware.CPU
    if gpu.capability == (0, 0):
        return Hardware.APPLE
    cores = architecture(gpu.capability).fp16 and not fp16_is_broken(gpu.name, gpu.capability)
    return Hardware.TENSOR_CORES if cores else Hardware.OLD_CARD


def half_for(facts: MachineFacts, placement: Placement, config: TrainingConfig, model_type: str = "") -> str | None:
    """The half precision that a run begins with, "bf16" or "fp16"; None for float32. Raises: BadSettings."""
    start = _rungs(facts, placement, config, model_type)[0][0]
    return start if start in ("bf16", "fp16") else None


def _rungs(
    facts: MachineFacts, placement: Placement, config: TrainingConfig, model_type: str
) -> tuple[tuple[str, ...], str]:
    gpu = card_of(facts, placement)
    bearable = for_model(DtypeChoice(placement.dtypes, ""), model_type, None).dtypes
    return rungs_for(config, placement.type, bearable, tf32=bool(gpu and architecture(gpu.capability).tf32))


def _precision(case: _Case) -> Choice:
    rungs, why = _rungs(case.facts, case.placement, case.config, case.subject.model_type)
    half = rungs[0] in ("bf16", "fp16")
    if half and rungs[0] not in case.placement.dtypes:
        why += f"; {case.placement.device} only emulates it, slowly"
    if rungs[0] == "fp16":
        why += "; with a gradient scaler, for small gradients vanish"
    below = f"; should numbers break: {', then '.join(rungs[1:])}" if rungs[1:] else ""
    return Choice("precision", rungs[0], why.partition(": ")[2] + below, "--no-amp" if half else "--use-amp")


def _compile(case: _Case) -> Choice:
    config, gpu, steps = case.config, case.gpu, case.subject.steps
    if "compile" in case.told or config.compile:
        return _switch("compile", "as asked", on=config.compile)
    if gpu is None or case.hardware is Hardware.APPLE or gpu.capability < _TRITON:
        return _switch("compile", "pays on CUDA cards from compute capability 7.0 on", on=False)
    if case.facts.platform.system != "Linux":
        return _switch("compile", f"its compiler is not at home on {case.facts.platform.label}", on=False)
    if steps is None or steps < _COMPILE_STEPS:
        known = "of unknown length" if steps is None else f"of {steps} steps"
        return _switch("compile", f"a run {known} may not repay minutes of compiling", on=False)
    return _switch("compile", f"{steps} steps repay the compiling", on=True)


def _layout(case: _Case) -> Choice:
    if case.config.channels_last is not None:
        on, why = case.config.channels_last, "as asked"
    elif not case.subject.images:
        on, why = False, "the model has no two-dimensional convolutions"
    else:
        on = case.hardware is Hardware.TENSOR_CORES
        why = "tensor cores convolve in this order" if on else "gains little without tensor cores"
    flag = "--no-channels-last" if on else "--use-channels-last"
    return Choice("layout", "channels last" if on else "as it is", why, flag)


def _memory(case: _Case, ways: Sequence[Way]) -> tuple[bool, int | None, tuple[Choice, Choice]]:
    """Whether activations are computed again, how many items run at once, and why."""
    config, told, whole = case.config, case.told, case.share
    lora, eight_bit = config.lora_rank is not None, config.eight_bit_optimizer
    plain = way_of(ways, checkpointing=False, lora=lora, eight_bit=eight_bit)
    lean = way_of(ways, checkpointing=True, lora=lora, eight_bit=eight_bit)
    again, why = config.gradient_checkpointing, "as asked" if "gradient_checkpointing" in told else "memory suffices"
    if "gradient_checkpointing" not in told and not again and plain and lean and lean.fits > plain.fits:
        # A CPU loses nothing by small micro-batches.
        enough = 1 if case.hardware is Hardware.CPU else min(_SMALL_MICRO_BATCH, whole)
        again = plain.fits < (enough if case.subject.splittable else whole)
        fit = f"without it {plain.fits} of {whole} items fit at once, with it {lean.fits}; same gradients"
        why = fit if again else why
    asked = lean if again else plain
    if asked and not asked.fits and config.micro_batch is None:
        raise DoesNotFit(refusal(asked, ways, case.placement.device, case.placement.memory_bytes))
    micro, micro_why = _micro_batch(case, asked.fits if asked else None)
    return again, micro, (_switch("gradient-checkpointing", why, on=again), micro_why)


def _micro_batch(case: _Case, fits: int | None) -> tuple[int | None, Choice]:
    whole = case.share
    if case.config.micro_batch is not None:
        micro, why = case.config.micro_batch, "as asked"
        why += f", though {fits} would fit" if fits is not None and fits < micro else ""
    elif fits is None:
        return None, Choice("micro-batch", "all", "not foreseen; halved when memory runs out", "--micro-batch N")
    elif not case.subject.splittable:
        micro, why = min(fits, whole), "the loss looks at the whole batch; parts of it are remembered, not cut"
    else:
        parts = -(-whole // min(fits, whole))
        micro = -(-whole // parts)  # parts of like size
        why = "the whole batch fits" if parts == 1 else f"{fits} of {whole} items fit at once: {parts} parts a step"
    why += "; halved when memory runs out, with the same result"
    return micro, Choice("micro-batch", str(micro), why, "--micro-batch N")


def _loader(case: _Case) -> Choice:
    placement, config = case.placement, case.config
    chosen = next((why for why in placement.why if why.startswith("training loads")), "from cores and /dev/shm")
    told = config.num_workers is not None
    value = config.num_workers if told else placement.loader.num_workers
    return Choice("num-workers", str(value), "as asked" if told else chosen, "--num-workers N")


def _unchosen(config: TrainingConfig) -> tuple[Choice, ...]:
    """What would change the result and is therefore never chosen here."""
    lora = Choice("lora", f"rank {config.lora_rank}", "as asked", "--lora-rank 0")
    if config.lora_rank is None:
        lora = Choice("lora", "off", "trains few weights and gives another result: yours to choose", "--lora-rank N")
    told = "as asked" if config.eight_bit_optimizer else "rounds the optimizer's memory: yours to choose"
    return lora, _switch("8-bit-optimizer", told, on=config.eight_bit_optimizer)


def _switch(name: str, why: str, *, on: bool) -> Choice:
    return Choice(name, "on" if on else "off", why, f"--no-{name}" if on else f"--use-{name}")


def _described(case: _Case) -> str:
    gpu, hardware, facts = case.gpu, case.hardware, case.facts
    if gpu is None:
        return f"{hardware}: {facts.cpu_name}, {facts.cores} cores"
    small = ", little memory" if gpu.total_bytes < _SMALL_BYTES else ""
    return f"{hardware}{small}: {gpu.name}, {gib(gpu.total_bytes)}"
