"""The best of many scores."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.search.records import Ranked

Scores = NDArray[np.floating[Any]]
Indices = NDArray[np.intp]


def top(scores: Scores, limit: int) -> Indices:
    """Indices of the ``limit`` highest scores and of all that equal the last of them, in any order."""
    if len(scores) <= limit:
        return np.arange(len(scores))
    least = np.partition(scores, len(scores) - limit)[len(scores) - limit]
    return np.flatnonzero(scores >= least)


def ranked(chunk_ids: NDArray[np.int64], scores: Scores, limit: int) -> list[Ranked]:
    """The highest scores first, equal ones by chunk id."""
    order = np.lexsort((chunk_ids, -scores))[:limit]
    return [Ranked(*pair) for pair in zip(chunk_ids[order].tolist(), scores[order].tolist(), strict=True)]
