"""Token ids as padded tensors, groups of texts that fit a budget, and windows over texts that are too long."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Numbers = Sequence[int] | NDArray[np.int64]
EVALUATION_TOKENS = 8192  # padded ones in a batch without gradients: 0.1 GiB in a 12-layer encoder 768 wide


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a long text that runs alone. Outside of its own range tokens are context: others answer for them."""

    start: int
    stop: int
    own_start: int
    own_stop: int


def windows(tokens: int, size: int) -> list[Window]:
    """Cover a text of ``tokens`` with windows of at most ``size``, a quarter of it shared with each neighbour.

    The own ranges lie end to end: every token is answered for once, by the window where it is farthest from an edge.
    """
    if tokens <= size:
        return [Window(0, tokens, 0, tokens)]
    overlap = size // 4
    starts = [*range(0, tokens - size, size - overlap), tokens - size]
    # In the middle of what two neighbours share one stops answering and the other begins.
    edges = [0, *((start + before + size) // 2 for before, start in pairwise(starts)), tokens]
    return [Window(start, start + size, edges[place], edges[place + 1]) for place, start in enumerate(starts)]


def pad(rows: Sequence[Numbers], filling: int) -> Tensor:
    """Rows of any lengths as one tensor. Shapes: -> (batch, longest) int64."""
    longest = max(len(row) for row in rows)
    padded = torch.full((len(rows), longest), filling, dtype=torch.int64)
    for place, row in enumerate(rows):
        padded[place, : len(row)] = torch.as_tensor(row, dtype=torch.int64)
    return padded


def model_inputs(rows: Sequence[Numbers], filling: int) -> dict[str, Tensor]:
    """``input_ids`` and ``attention_mask``, each (batch, longest) int64."""
    lengths = torch.tensor([len(row) for row in rows])
    ids = pad(rows, filling)
    return {"input_ids": ids, "attention_mask": (torch.arange(ids.shape[1]) < lengths[:, None]).long()}


def within_budget(lengths: Sequence[int], budget: int = EVALUATION_TOKENS) -> Iterator[list[int]]:
    """Numbers of the texts, longest first, in groups whose padded size (longest x count) stays within the budget."""
    order = sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True)
    place = 0
    while place < len(order):
        count = max(1, budget // max(1, lengths[order[place]]))
        yield order[place : place + count]
        place += count


def on_device_of(model: nn.Module, batch: Mapping[str, Any]) -> dict[str, Any]:
    """The batch's tensors where the model is."""
    device = next(model.parameters()).device
    return {name: value.to(device) if isinstance(value, Tensor) else value for name, value in batch.items()}
