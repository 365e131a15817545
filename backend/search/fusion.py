"""Joins rankings into one: a weighted sum of their scores, each scaled from what says nothing (0) to the best hit (1).

On held-out questions (docs/benchmarks.md) this finds more than reciprocal rank fusion, which forgets how far the first
hit is ahead of the second.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from backend.search.records import Ranked


class Ranking(NamedTuple):
    """Chunks by one score, best first."""

    ranked: Sequence[Ranked]
    weight: float = 1.0  # not negative
    floor: float = 0.0  # the score of a chunk that has nothing to do with the query
    # The best hit counts fully if it is this far above the floor, and in proportion if it is less: the nearest of
    # unrelated chunks is not a good hit.
    least_range: float = 0.0


def fuse(rankings: Sequence[Ranking]) -> list[Ranked]:
    """The chunks of all rankings, best first; scores from 0 to 1, where 1 is the best hit of every ranking.

    A chunk that a ranking does not have gets nothing from it. Of equal scores the one that an earlier ranking names
    first comes first.
    """
    counted = [ranking for ranking in rankings if ranking.weight > 0]
    heaviest = max((ranking.weight for ranking in counted), default=1.0)
    total = sum(ranking.weight / heaviest for ranking in counted)  # divided first: no sum is infinite
    scores: dict[int, float] = {}
    for ranking in counted:
        share = ranking.weight / heaviest / total
        for chunk_id, score in _scaled(ranking):
            scores[chunk_id] = scores.get(chunk_id, 0.0) + share * score
    ordered = sorted(scores.items(), key=lambda item: -item[1])
    return [Ranked(chunk_id, min(1.0, max(0.0, score))) for chunk_id, score in ordered]


def _scaled(ranking: Ranking) -> list[Ranked]:
    """Scores below the floor stay in their order, below 0."""
    if not ranking.ranked:
        return []
    above = max(ranking.ranked[0].score - ranking.floor, ranking.least_range)
    if above <= 0:
        above = 1.0
    return [Ranked(chunk_id, (score - ranking.floor) / above) for chunk_id, score in ranking.ranked]
