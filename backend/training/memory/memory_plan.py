"""PURE: which micro-batch of a model fits into memory, trained in full, with checkpointing, 8-bit optimizer or LoRA."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from backend.device.choice.selection import gib
from backend.device.memory.probe import PREDICTION_SAFETY
from backend.training.memory.footprint import Footprint

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
