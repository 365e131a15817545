"""What a part of the check gets: the device, how much to measure, a folder of its own, and where partial results go."""

import json
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

Rows = list[dict[str, Any]]


class Effort(StrEnum):
    """How much a part measures."""

    SMALL = "small"  # proves that a part runs, also on a CPU; its numbers mean nothing
    FULL = "full"


class NotPossible(Exception):
    """The part cannot be measured here; its message names what is absent."""


@dataclass(frozen=True, slots=True)
class Context:
    """One part's circumstances, in the part's own process."""

    device: str  # torch device string: "cuda:0" or "cpu"
    effort: Effort
    folder: Path  # empty at the start, removed at the end
    result_file: Path

    @property
    def is_small(self) -> bool:
        return self.effort is Effort.SMALL

    @property
    def is_cuda(self) -> bool:
        return self.device.startswith("cuda")

    def keep(self, result: dict[str, Any]) -> None:
        """Write what is measured so far: it counts if the part fails or runs out of time later."""
        partial = self.result_file.with_suffix(".partial")
        partial.write_text(json.dumps(result), encoding="utf-8")
        partial.replace(self.result_file)
