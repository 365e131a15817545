"""PURE: what of a model fits into how much memory, trained in full, with checkpointing, 8-bit optimizer or LoRA."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from backend.device.choice.selection import gib
from backend.device.memory.probe import PREDICTION_SAFETY
from backend.training.memory.footprint import Footprint

_MOMENTS = 2  # AdamW keeps two of each trained weight
_EIGHT_BIT_BYTES = 1 + 4 / 256  # of a weight and moment: a byte, and a float32 scale a block of 256 (bitsandbytes)


@dataclass(frozen=True, slots=True)
class Way:
    """One way to train a model, and what it takes."""

    checkpointing: bool
    eight_bit: bool
    lora: bool
    trained: int  # weights that learn
    fixed_bytes: int  # weights and the optimizer's state
    needs: Mapping[int, int]  # micro-batch -> bytes in all
    fits: int  # the largest micro-batch within the memory; 0 when one item alone is too large

    @property
    def name(self) -> str:
        """For people: "LoRA, checkpointing"."""
        parts = [("LoRA", self.lora), ("8-bit optimizer", self.eight_bit), ("checkpointing", self.checkpointing)]
        return ", ".join(name for name, on in parts if on) or "full"

    @property
    def flags(self) -> str:
        """How to ask for it."""
        parts = [
            ("--lora-rank 8", self.lora),
            ("--use-8-bit-optimizer", self.eight_bit),
            ("--use-gradient-checkpointing", self.checkpointing),
        ]
        return " ".join(flag for flag, on in parts if on)


def ways_of(footprints: Sequence[Footprint], room_bytes: int, *, most: int, eight_bit: bool = False) -> tuple[Way, ...]:
    """Every way that was foreseen, and each with an 8-bit optimizer where there is one.

    Args:
        room_bytes: that the process may take on the device, weights included.
        most: items of the largest micro-batch that makes sense.
    """
    kinds = (False, True) if eight_bit else (False,)
    return tuple(_way(one, room_bytes, most, eight_bit=kind) for one in footprints for kind in kinds)


def way_of(ways: Sequence[Way], *, checkpointing: bool, lora: bool, eight_bit: bool) -> Way | None:
    """This one; None where it was not foreseen."""
    wanted = (checkpointing, lora, eight_bit)
    return next((one for one in ways if (one.checkpointing, one.lora, one.eight_bit) == wanted), None)


def table(ways: Sequence[Way], room_bytes: int) -> str:
    """The ways as lines of text: GiB for each micro-batch, "-" where it does not fit, and the largest that does."""
    counts = sorted({count for way in ways for count in way.needs})
    head = ["way", "weights that learn", *(str(count) for count in counts), "largest"]
    rows = [
        [
            way.name,
            f"{way.trained:,}",
            *(_cell(way.needs.get(count), room_bytes) for count in counts),
            str(way.fits) if way.fits else "none",
        ]
        for way in ways
    ]
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    lines = [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in [head, *rows]
    ]
    title = f"memory of a step by micro-batch (of {gib(room_bytes)}; foreseen, with a margin; - does not fit)"
    return "\n".join([title, *lines])


def refusal(asked: Way, ways: Sequence[Way], device: str, room_bytes: int) -> str:
    """Why not one item can be trained on in the way that was asked for, and what would fit."""
    would = [f"{way.name} ({way.flags}) {way.fits} at once" for way in ways if way.fits]
    other = f"these would fit: {'; '.join(would)}" if would else "no other way would fit; take a smaller model"
    least = gib(asked.needs[min(asked.needs)])
    return (
        f"one item alone needs {least} ({asked.name}) on {device}, where {gib(room_bytes)} may be taken; {other}. "
        "Shorter or smaller items help as well"
    )


def _way(one: Footprint, room_bytes: int, most: int, *, eight_bit: bool) -> Way:
    moment = int(one.trained * _EIGHT_BIT_BYTES) if eight_bit else one.trained_bytes
    fixed = one.weights_bytes + _MOMENTS * moment
    needs = {count: fixed + int(PREDICTION_SAFETY * peak) for count, peak in sorted(one.peaks.items())}
    return Way(one.checkpointing, eight_bit, one.lora, one.trained, fixed, needs, _fits(one, fixed, room_bytes, most))


def _fits(one: Footprint, fixed: int, room_bytes: int, most: int) -> int:
    low, high = 0, min(most, max(one.peaks))
    while low < high:  # more items never need less
        middle = (low + high + 1) // 2
        if fixed + int(PREDICTION_SAFETY * one.peak_bytes(middle)) <= room_bytes:
            low = middle
        else:
            high = middle - 1
    return low


def _cell(needed: int | None, room_bytes: int) -> str:
    if needed is None or needed > room_bytes:
        return "-"
    return f"{needed / 2**30:.2f}"
