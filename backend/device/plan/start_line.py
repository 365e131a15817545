"""PURE: the line of the start log that names torch, its CUDA, the driver and the cards, or says why it is the CPU."""

from __future__ import annotations

from collections.abc import Sequence

from backend.device.choice.selection import gib
from backend.device.plan.placement import Placement, card_of
from backend.device.records import DeviceType, MachineFacts, TorchBuild

EVENT = "this process computes with"
NONE = "none"


def start_line(facts: MachineFacts, placements: Sequence[Placement], installed: TorchBuild) -> dict[str, str]:
    """Its fields, in the order in which they are read; every value without a line break.

    Args:
        installed: torch as its files tell, for a start that did not import it.
    """
    torch = facts.torch if facts.torch.version else installed
    fields = {
        "torch": torch.version or NONE,
        "cuda": torch.cuda or (f"none (ROCm {torch.hip})" if torch.hip else NONE),
        "driver": facts.driver.version or (NONE if facts.driver.fault else "not asked"),
        "device": "; ".join(_name(facts, placement) for placement in placements),
    }
    if placements[0].type is DeviceType.CPU:
        fields["why"] = placements[0].why[0]
    return {name: " ".join(value.split()) for name, value in fields.items()}


def _name(facts: MachineFacts, placement: Placement) -> str:
    card = card_of(facts, placement)
    if card is None:
        return f"cpu ({facts.cpu_name or 'unknown processor'}, {facts.cores} cores)"
    capability = ".".join(map(str, card.capability))
    compute = f", compute capability {capability}" if card.capability != (0, 0) else ""
    return f"{placement.device} ({card.name}, {gib(card.total_bytes)}{compute})"
