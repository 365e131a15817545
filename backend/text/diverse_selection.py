"""Selects relevant and mutually different items by their vectors: maximal marginal relevance (MMR)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.models.encoder import normalized

Floats = NDArray[np.float64]


def unit_vectors(vectors: NDArray[np.float32]) -> Floats:
    """The vectors scaled to length 1, zeros unchanged. Shapes: (items, width) -> (items, width)."""
    return normalized(vectors.astype(np.float64))


def min_max_scaled(values: Floats) -> Floats:
    """The values scaled to 0 to 1; ones where all are equal.

    Vectors from one text are all similar to each other: only the differences of their similarities matter.
    """
    low, high = (values.min(), values.max()) if len(values) else (0.0, 0.0)
    scaled: Floats = (values - low) / (high - low) if high - low > 1e-9 else np.ones_like(values)
    return scaled


def select_diverse(
    vectors: Floats,
    relevance: Floats,
    count: int,
    *,
    redundant_with: Callable[[int], NDArray[np.bool_]],
    before: NDArray[np.int64] | None = None,
    costs: Floats | None = None,
    budget: float = math.inf,
    diversity: float = 0.3,
) -> list[int]:
    """Up to ``count`` indexes in the order selected: each the best by relevance less similarity to those before.

    Shapes: vectors (items, width) of length 1, relevance (items) 0 to 1. Time and memory are linear in the items.

    Args:
        redundant_with: for a selected index, a mask (items) of the items to exclude from then on.
        before: (items) how many items right before each must be selected with it; unset: none.
        costs: (items) what each takes of the ``budget``; an item that no longer fits is passed over.
        diversity: 0 selects by relevance alone, 1 by difference alone.

    Source: maximal marginal relevance (Carbonell and Goldstein 1998).
    """
    before = np.zeros(len(vectors), np.int64) if before is None else before
    costs = np.zeros(len(vectors)) if costs is None else costs
    available, absent = np.ones(len(vectors), np.bool_), np.ones(len(vectors), np.bool_)
    nearest = np.zeros(len(vectors))  # greatest similarity to a selected item
    selected: list[int] = []
    while len(selected) < count:
        possible = available & (_run_sums(absent & ~available, before) == 0)
        possible &= _run_sums(absent, before) <= count - len(selected)
        possible &= _run_sums(costs * absent, before) <= budget - costs[selected].sum()
        if not possible.any():
            break
        best = int(np.where(possible, (1 - diversity) * relevance - diversity * nearest, -np.inf).argmax())
        for index in range(best - int(before[best]), best + 1):
            if absent[index]:
                selected.append(index)
                available &= ~redundant_with(index)
                available[index] = absent[index] = False
                nearest = np.maximum(nearest, min_max_scaled(vectors @ vectors[index]))
    return selected


def _run_sums(values: NDArray[Any], before: NDArray[np.int64]) -> Floats:
    """The sum of each item's value and those of the items that come with it."""
    sums = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
    places = np.arange(len(values))
    run_sums: Floats = sums[places + 1] - sums[places - before]
    return run_sums
