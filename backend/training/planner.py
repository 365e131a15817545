"""PURE: the training plan for a machine: each setting with its reason and the flag that overrules it, and what fits.

What changes no result is chosen by itself: micro-batch, activation checkpointing, precision, layout, compilation. What
does change it (LoRA, an 8-bit optimizer, a smaller effective batch) is shown and left to the user.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from backend.device.choice.selection import gib
from backend.device.facts.compute_capability import architecture, fp16_is_broken
from backend.device.memory.probe import PREDICTION_SAFETY
from backend.device.plan.placement import Placement, card_of
from backend.device.plan.precision import DtypeChoice, for_model
from backend.device.records import GPUInfo, MachineFacts
from backend.errors import BadSettings, DoesNotFit
from backend.training.memory import Footprint
from backend.training.records import TrainingConfig
from backend.training.trainer.precision import precisions_for

_MOMENTS = 2  # AdamW keeps two of each trained weight
_EIGHT_BIT_BYTES = 1 + 4 / 256  # of a weight and moment: a byte, and a float32 scale a block of 256 (bitsandbytes)


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """One way to train a model, and the memory it needs."""

    checkpointing: bool
    eight_bit: bool
    lora: bool
    trained: int  # trainable weights
    fixed_bytes: int  # weights and the optimizer's state
    needs: Mapping[int, int]  # micro-batch -> bytes in all
    max_micro_batch: int  # the largest that fits; 0 when one item alone is too large

    @property
    def name(self) -> str:
        """For people: "LoRA, checkpointing"."""
        parts = [("LoRA", self.lora), ("8-bit optimizer", self.eight_bit), ("checkpointing", self.checkpointing)]
        return ", ".join(name for name, on in parts if on) or "full"

    @property
    def flags(self) -> str:
        """The command line flags that choose it."""
        parts = [
            ("--lora-rank 8", self.lora),
            ("--use-8-bit-optimizer", self.eight_bit),
            ("--use-gradient-checkpointing", self.checkpointing),
        ]
        return " ".join(flag for flag, on in parts if on)


def memory_plans(
    footprints: Sequence[Footprint], capacity_bytes: int, *, limit: int, eight_bit: bool = False
) -> tuple[MemoryPlan, ...]:
    """A plan for each footprint, and each with an 8-bit optimizer where there is one.

    Args:
        capacity_bytes: that the process may take on the device, weights included.
        limit: items of the largest micro-batch that makes sense.
    """
    kinds = (False, True) if eight_bit else (False,)
    return tuple(_plan(footprint, capacity_bytes, limit, eight_bit=kind) for footprint in footprints for kind in kinds)


def find_plan(plans: Sequence[MemoryPlan], *, checkpointing: bool, lora: bool, eight_bit: bool) -> MemoryPlan | None:
    """The plan for this way to train; None where it was not estimated."""
    wanted = (checkpointing, lora, eight_bit)
    return next((plan for plan in plans if (plan.checkpointing, plan.lora, plan.eight_bit) == wanted), None)


def format_table(plans: Sequence[MemoryPlan], capacity_bytes: int) -> str:
    """The plans as lines of text: GiB for each micro-batch, "-" where it does not fit, and the largest that does."""
    counts = sorted({count for plan in plans for count in plan.needs})
    head = ["way", "weights that learn", *(str(count) for count in counts), "largest"]
    rows = [
        [
            plan.name,
            f"{plan.trained:,}",
            *(_cell(plan.needs.get(count), capacity_bytes) for count in counts),
            str(plan.max_micro_batch) if plan.max_micro_batch else "none",
        ]
        for plan in plans
    ]
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    lines = [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in [head, *rows]
    ]
    title = f"memory of a step by micro-batch (of {gib(capacity_bytes)}; foreseen, with a margin; - does not fit)"
    return "\n".join([title, *lines])


def does_not_fit_message(chosen: MemoryPlan, plans: Sequence[MemoryPlan], device: str, capacity_bytes: int) -> str:
    """Why not even one item fits in the chosen way to train, and which ways would fit."""
    fitting = [f"{plan.name} ({plan.flags}) {plan.max_micro_batch} at once" for plan in plans if plan.max_micro_batch]
    other = f"these would fit: {'; '.join(fitting)}" if fitting else "no other way would fit; take a smaller model"
    least = gib(chosen.needs[min(chosen.needs)])
    return (
        f"one item alone needs {least} ({chosen.name}) on {device}, where {gib(capacity_bytes)} may be taken; {other}. "
        "Shorter or smaller items help as well"
    )


def _plan(footprint: Footprint, capacity_bytes: int, limit: int, *, eight_bit: bool) -> MemoryPlan:
    moment = int(footprint.trained * _EIGHT_BIT_BYTES) if eight_bit else footprint.trained_bytes
    fixed = footprint.weights_bytes + _MOMENTS * moment
    return MemoryPlan(
        checkpointing=footprint.checkpointing,
        eight_bit=eight_bit,
        lora=footprint.lora,
        trained=footprint.trained,
        fixed_bytes=fixed,
        needs={count: fixed + int(PREDICTION_SAFETY * peak) for count, peak in sorted(footprint.peaks.items())},
        max_micro_batch=_largest_that_fits(footprint, fixed, capacity_bytes, limit),
    )


def _largest_that_fits(footprint: Footprint, fixed: int, capacity_bytes: int, limit: int) -> int:
    low, high = 0, min(limit, max(footprint.peaks))
    while low < high:  # more items never need less
        middle = (low + high + 1) // 2
        if fixed + int(PREDICTION_SAFETY * footprint.peak_bytes(middle)) <= capacity_bytes:
            low = middle
        else:
            high = middle - 1
    return low


def _cell(needed: int | None, capacity_bytes: int) -> str:
    if needed is None or needed > capacity_bytes:
        return "-"
    return f"{needed / 2**30:.2f}"


_SMALL_BYTES = 4 * 2**30  # training guides call a card below it one with little memory
_SMALL_MICRO_BATCH = 8  # their batch for such a card: below it, computing activations again pays for itself
# Compiling takes from half a minute to some minutes and wins 10 to 30 %: steps of 0.1 s repay it late.
_COMPILE_STEPS = 5000
_NO_COMPILER = "it needs a C compiler (gcc or clang) and Python's headers, which are not installed here"
_TRITON = (7, 0)  # the oldest card that torch.compile writes kernels for


class Hardware(StrEnum):
    """The classes that training guides give settings for, and Apple's."""

    CPU = "CPU"
    APPLE = "Apple GPU"
    TENSOR_CORES = "GPU with tensor cores"
    OLD_CARD = "GPU without tensor cores"


@dataclass(frozen=True, slots=True)
class Workload:
    """The model and the run to plan for, as far as choices depend on them."""

    images: bool = False  # the model has two-dimensional convolutions
    model_type: str = ""  # of config.json: some kinds overflow fp16
    steps: int | None = None  # optimizer steps of the whole run; None where it is not known
    ranks: int = 1  # processes that share an effective batch
    eight_bit: bool = False  # whether an 8-bit optimizer is installed and runs on this device
    splittable: bool = True  # whether an effective batch may be split anywhere


@dataclass(frozen=True, slots=True)
class Choice:
    """One setting, why, and the flag that overrules it."""

    name: str
    value: str
    why: str
    flag: str


@dataclass(frozen=True, slots=True)
class Plan:
    """How to train on this machine. ``config`` has every automatic choice made."""

    device: str
    hardware: str  # ``Hardware`` and the name of the processor or card
    capacity_bytes: int  # that this process may take on the device
    config: TrainingConfig
    choices: tuple[Choice, ...]
    memory_plans: tuple[MemoryPlan, ...] = ()  # empty where memory could not be estimated


@dataclass(frozen=True, slots=True)
class _Inputs:
    """What every choice depends on."""

    facts: MachineFacts
    placement: Placement
    config: TrainingConfig
    workload: Workload
    user_set: Collection[str]
    gpu: GPUInfo | None
    hardware: Hardware

    @property
    def share(self) -> int:
        """Items of an effective batch that one process has."""
        return max(1, -(-self.config.effective_batch // self.workload.ranks))


def make_plan(
    facts: MachineFacts,
    placement: Placement,
    config: TrainingConfig,
    workload: Workload = Workload(),
    *,
    user_set: Collection[str] = (),
    footprints: Sequence[Footprint] = (),
) -> Plan:
    """The settings for this machine. The precision setting stays: the loop chooses by the same rule.

    Args:
        user_set: fields of ``config`` that the user set; they stay, whatever the machine would advise.
        footprints: of the model in the precision of ``half_precision_for``; none where they could not be estimated.

    Raises: BadSettings for what this device cannot do; DoesNotFit, with what would fit, when one item alone is too
    large.
    """
    gpu = card_of(facts, placement)
    inputs = _Inputs(facts, placement, config, workload, user_set, gpu, hardware_of(gpu))
    plans = memory_plans(footprints, placement.memory_bytes, limit=inputs.share, eight_bit=workload.eight_bit)
    compiled, layout = _compile(inputs), _layout(inputs)
    recompute, micro_batch, memory = _memory(inputs, plans)
    workers = placement.loader.num_workers if config.num_workers is None else config.num_workers
    settled = replace(
        config,
        compile=compiled.value == "on",
        channels_last=layout.value == "channels last",
        gradient_checkpointing=recompute,
        micro_batch=micro_batch,
        num_workers=workers,
    )
    choices = (_precision(inputs), compiled, layout, *memory, _loader(inputs), *_left_to_user(config))
    return Plan(placement.device, _describe(inputs), placement.memory_bytes, settled, choices, plans)


def hardware_of(gpu: GPUInfo | None) -> Hardware:
    """The class of a device, by what it computes in; None is the CPU."""
    if gpu is None:
        return Hardware.CPU
    if gpu.capability == (0, 0):
        return Hardware.APPLE
    cores = architecture(gpu.capability).fp16 and not fp16_is_broken(gpu.name, gpu.capability)
    return Hardware.TENSOR_CORES if cores else Hardware.OLD_CARD


def half_precision_for(
    facts: MachineFacts, placement: Placement, config: TrainingConfig, model_type: str = ""
) -> str | None:
    """The half precision that a run begins with, "bf16" or "fp16"; None for float32. Raises: BadSettings."""
    start = _precisions(facts, placement, config, model_type)[0][0]
    return start if start in ("bf16", "fp16") else None


def _precisions(
    facts: MachineFacts, placement: Placement, config: TrainingConfig, model_type: str
) -> tuple[tuple[str, ...], str]:
    gpu = card_of(facts, placement)
    dtypes = for_model(DtypeChoice(placement.dtypes, ""), model_type, None).dtypes
    return precisions_for(config, placement.type, dtypes, tf32=bool(gpu and architecture(gpu.capability).tf32))


def _precision(inputs: _Inputs) -> Choice:
    precisions, why = _precisions(inputs.facts, inputs.placement, inputs.config, inputs.workload.model_type)
    half = precisions[0] in ("bf16", "fp16")
    if half and precisions[0] not in inputs.placement.dtypes:
        why += f"; {inputs.placement.device} only emulates it, slowly"
    if precisions[0] == "fp16":
        why += "; with a gradient scaler, for small gradients vanish"
    below = f"; should numbers break: {', then '.join(precisions[1:])}" if precisions[1:] else ""
    return Choice("precision", precisions[0], why.partition(": ")[2] + below, "--no-amp" if half else "--use-amp")


def _compile(inputs: _Inputs) -> Choice:
    config, gpu, steps = inputs.config, inputs.gpu, inputs.workload.steps
    if config.compile and gpu is not None and not inputs.facts.platform.c_compiler:
        raise BadSettings([f"--use-compile: {_NO_COMPILER}; install them or leave it out"])
    if "compile" in inputs.user_set or config.compile:
        return _switch("compile", "as asked", on=config.compile)
    if gpu is None or inputs.hardware is Hardware.APPLE or gpu.capability < _TRITON:
        return _switch("compile", "pays on CUDA cards from compute capability 7.0 on", on=False)
    if inputs.facts.platform.system != "Linux":
        return _switch("compile", f"its compiler is not at home on {inputs.facts.platform.label}", on=False)
    if not inputs.facts.platform.c_compiler:
        return _switch("compile", _NO_COMPILER, on=False)
    if steps is None or steps < _COMPILE_STEPS:
        known = "of unknown length" if steps is None else f"of {steps} steps"
        return _switch("compile", f"a run {known} may not repay minutes of compiling", on=False)
    return _switch("compile", f"{steps} steps repay the compiling", on=True)


def _layout(inputs: _Inputs) -> Choice:
    if inputs.config.channels_last is not None:
        on, why = inputs.config.channels_last, "as asked"
    elif not inputs.workload.images:
        on, why = False, "the model has no two-dimensional convolutions"
    else:
        on = inputs.hardware is Hardware.TENSOR_CORES
        why = "tensor cores convolve in this order" if on else "gains little without tensor cores"
    flag = "--no-channels-last" if on else "--use-channels-last"
    return Choice("layout", "channels last" if on else "as it is", why, flag)


def _memory(inputs: _Inputs, plans: Sequence[MemoryPlan]) -> tuple[bool, int | None, tuple[Choice, Choice]]:
    """Whether to checkpoint activations, how many items run at once, and why."""
    config, share = inputs.config, inputs.share
    set_by_user = "gradient_checkpointing" in inputs.user_set
    lora, eight_bit = config.lora_rank is not None, config.eight_bit_optimizer
    plain = find_plan(plans, checkpointing=False, lora=lora, eight_bit=eight_bit)
    lean = find_plan(plans, checkpointing=True, lora=lora, eight_bit=eight_bit)
    recompute, why = config.gradient_checkpointing, "as asked" if set_by_user else "memory suffices"
    if not set_by_user and not recompute and plain and lean and lean.max_micro_batch > plain.max_micro_batch:
        # A CPU loses nothing by small micro-batches.
        enough = 1 if inputs.hardware is Hardware.CPU else min(_SMALL_MICRO_BATCH, share)
        recompute = plain.max_micro_batch < (enough if inputs.workload.splittable else share)
        gain = f"without it {plain.max_micro_batch} of {share} items fit at once, with it {lean.max_micro_batch}"
        why = f"{gain}; same gradients" if recompute else why
    chosen = lean if recompute else plain
    if chosen and not chosen.max_micro_batch and config.items_at_once is None:
        placement = inputs.placement
        raise DoesNotFit(does_not_fit_message(chosen, plans, placement.device, placement.memory_bytes))
    micro_batch, choice = _micro_batch(inputs, chosen.max_micro_batch if chosen else None)
    return recompute, micro_batch, (_switch("gradient-checkpointing", why, on=recompute), choice)


def _micro_batch(inputs: _Inputs, largest: int | None) -> tuple[int | None, Choice]:
    share = inputs.share
    if inputs.config.items_at_once is not None:
        micro, why = inputs.config.items_at_once, "as asked"
        why += f", though {largest} would fit" if largest is not None and largest < micro else ""
    elif largest is None:
        return None, Choice("micro-batch", "all", "not foreseen; halved when memory runs out", "--micro-batch N")
    elif not inputs.workload.splittable:
        micro, why = min(largest, share), "the loss looks at the whole batch; parts of it are remembered, not cut"
    else:
        parts = -(-share // min(largest, share))
        micro = -(-share // parts)  # parts of about equal size
        why = "the whole batch fits" if parts == 1 else f"{largest} of {share} items fit at once: {parts} parts a step"
    why += "; halved when memory runs out, with the same result"
    return micro, Choice("micro-batch", str(micro), why, "--micro-batch N")


def _loader(inputs: _Inputs) -> Choice:
    placement, config = inputs.placement, inputs.config
    chosen = next((why for why in placement.why if why.startswith("training loads")), "from cores and /dev/shm")
    set_by_user = config.num_workers is not None
    value = config.num_workers if set_by_user else placement.loader.num_workers
    return Choice("num-workers", str(value), "as asked" if set_by_user else chosen, "--num-workers N")


def _left_to_user(config: TrainingConfig) -> tuple[Choice, ...]:
    """What would change the result and is therefore never chosen by the planner."""
    lora = Choice("lora", f"rank {config.lora_rank}", "as asked", "--lora-rank 0")
    if config.lora_rank is None:
        lora = Choice("lora", "off", "trains few weights and gives another result: yours to choose", "--lora-rank N")
    why = "as asked" if config.eight_bit_optimizer else "rounds the optimizer's memory: yours to choose"
    return lora, _switch("8-bit-optimizer", why, on=config.eight_bit_optimizer)


def _switch(name: str, why: str, *, on: bool) -> Choice:
    return Choice(name, "on" if on else "off", why, f"--no-{name}" if on else f"--use-{name}")


def _describe(inputs: _Inputs) -> str:
    gpu, hardware, facts = inputs.gpu, inputs.hardware, inputs.facts
    if gpu is None:
        return f"{hardware}: {facts.cpu_name}, {facts.cores} cores"
    small = ", little memory" if gpu.total_bytes < _SMALL_BYTES else ""
    return f"{hardware}{small}: {gpu.name}, {gib(gpu.total_bytes)}"


def format_plan(plan: Plan) -> str:
    """The plan for people: the hardware, each choice with its reason and flag, and what would fit."""
    width = max(len(choice.name) for choice in plan.choices)
    rows = [f"  {choice.name:<{width}}  {choice.value}: {choice.why} ({choice.flag})" for choice in plan.choices]
    lines = [f"{plan.device}: {plan.hardware}", *rows]
    return "\n".join([*lines, format_table(plan.memory_plans, plan.capacity_bytes)] if plan.memory_plans else lines)
