"""This process's place among those that torchrun started on this machine, from the environment it gives them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass


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
