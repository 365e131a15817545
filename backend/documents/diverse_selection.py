"""Choosing parts of a text by their vectors: worth having, and unlike what is chosen already."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from backend.models.vectors import normalized

Numbers = NDArray[np.float64]


def units(vectors: NDArray[np.float32]) -> Numbers:
    """The vectors at length 1; zeros stay. Shapes: (parts, width) -> (parts, width)."""
    return normalized(vectors.astype(np.float64))


def spread(values: Numbers) -> Numbers:
    """The values stretched over 0 to 1, ones where all are equal.

    The vectors of one text's parts all lie near each other: only their differences tell.
    """
    low, high = (values.min(), values.max()) if len(values) else (0.0, 0.0)
    found: Numbers = (values - low) / (high - low) if high - low > 1e-9 else np.ones_like(values)
    return found


def diverse(
    parts: Numbers, worth: Numbers, count: int, *, diversity: float, same: Callable[[int], NDArray[np.bool_]]
) -> list[int]:
    """Up to ``count`` parts in the order chosen: each the best of worth less likeness to those chosen before.

    Shapes: parts (parts, width) at length 1, worth (parts) 0 to 1. Time and memory are linear in the parts.

    Args:
        same: the parts, (parts) bool, that one chosen makes needless; itself is always one.

    Source: maximal marginal relevance (Carbonell and Goldstein 1998).
    """
    left = np.ones(len(parts), np.bool_)
    nearest = np.zeros(len(parts))
    chosen: list[int] = []
    while len(chosen) < count and left.any():
        gain = np.where(left, (1 - diversity) * worth - diversity * nearest, -np.inf)
        best = int(gain.argmax())
        chosen.append(best)
        left &= ~same(best)
        left[best] = False
        nearest = np.maximum(nearest, spread(parts @ parts[best]))
    return chosen
