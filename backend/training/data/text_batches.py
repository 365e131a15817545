"""Pads token ids into tensors, batches texts within a token budget, and splits long texts into windows."""

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
EVALUATION_TOKENS = 8192  # padded, in a batch without gradients: 0.1 GiB in a 12-layer encoder 768 wide


@dataclass(frozen=True, slots=True)
class Window:
    """A window of a long text. Predictions are taken from its own range; the other tokens are context."""

    start: int
    stop: int
    own_start: int
    own_stop: int


def windows(tokens: int, size: int) -> list[Window]:
    """Cover a text of ``tokens`` with windows of at most ``size``, a quarter of it shared with each neighbour.

    The own ranges partition the text: each token's prediction comes from the window where it is farthest from an edge.
    """
    if tokens <= size:
        return [Window(0, tokens, 0, tokens)]
    overlap = size // 4
    starts = [*range(0, tokens - size, size - overlap), tokens - size]
    # Own ranges meet in the middle of the overlap of two neighbours.
    edges = [0, *((start + before + size) // 2 for before, start in pairwise(starts)), tokens]
    return [Window(start, start + size, edges[index], edges[index + 1]) for index, start in enumerate(starts)]


def pad(rows: Sequence[Numbers], pad_id: int) -> Tensor:
    """Pad rows of any lengths on the right. Shapes: -> (batch, longest) int64."""
    longest = max(len(row) for row in rows)
    padded = torch.full((len(rows), longest), pad_id, dtype=torch.int64)
    for index, row in enumerate(rows):
        padded[index, : len(row)] = torch.as_tensor(row, dtype=torch.int64)
    return padded


def model_inputs(rows: Sequence[Numbers], pad_id: int) -> dict[str, Tensor]:
    """``input_ids`` and ``attention_mask``, each (batch, longest) int64."""
    lengths = torch.tensor([len(row) for row in rows])
    ids = pad(rows, pad_id)
    return {"input_ids": ids, "attention_mask": (torch.arange(ids.shape[1]) < lengths[:, None]).long()}


def batches_within_budget(lengths: Sequence[int], budget: int = EVALUATION_TOKENS) -> Iterator[list[int]]:
    """Yield batches of text indices, longest first, whose padded size (longest x count) stays within the budget."""
    order = sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True)
    index = 0
    while index < len(order):
        count = max(1, budget // max(1, lengths[order[index]]))
        yield order[index : index + count]
        index += count


def to_model_device(model: nn.Module, batch: Mapping[str, Any]) -> dict[str, Any]:
    """Copy the batch's tensors to the device of the model."""
    device = next(model.parameters()).device
    return {name: value.to(device) if isinstance(value, Tensor) else value for name, value in batch.items()}
