"""Selects relevant and mutually different items by their vectors: maximal marginal relevance (MMR)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from backend.models.vectors import normalized

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
    diversity: float,
    redundant_with: Callable[[int], NDArray[np.bool_]],
) -> list[int]:
    """Up to ``count`` indexes in the order selected: each the best by relevance less similarity to those before.

    Shapes: vectors (items, width) of length 1, relevance (items) 0 to 1. Time and memory are linear in the items.

    Args:
        redundant_with: for a selected index, a mask (items) of the items to exclude from then on.

    Source: maximal marginal relevance (Carbonell and Goldstein 1998).
    """
    available = np.ones(len(vectors), np.bool_)
    nearest = np.zeros(len(vectors))  # greatest similarity to a selected item
    selected: list[int] = []
    while len(selected) < count and available.any():
        gain = np.where(available, (1 - diversity) * relevance - diversity * nearest, -np.inf)
        best = int(gain.argmax())
        selected.append(best)
        available &= ~redundant_with(best)
        available[best] = False
        nearest = np.maximum(nearest, min_max_scaled(vectors @ vectors[best]))
    return selected
