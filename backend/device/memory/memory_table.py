"""PURE: how much memory a batch needs, by length and count, from what was measured."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

# Where peaks are measured: doubling keeps a padded bucket within twice the need (research/gpu_training.md §6).
LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
COUNT_MAX = 1 << 20  # more than any queue holds; bounds what a tiny slope would allow
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Affine:
    """Peak bytes of a batch of one length: ``intercept_bytes + slope_bytes * count``.

    Exact at a fixed length: two probes predict counts up to 64 to 0.0 % (research/gpu_training.md §9.2).
    """

    intercept_bytes: int  # above the weights, whatever the count
    slope_bytes: int  # of each item; at least 1

    def __post_init__(self) -> None:
        if self.intercept_bytes < 0 or self.slope_bytes < 1:
            raise ValueError(f"no memory model: {self.intercept_bytes} + {self.slope_bytes} x count")

    def peak_bytes(self, count: int) -> int:
        """What a batch of ``count`` needs above the weights."""
        return self.intercept_bytes + self.slope_bytes * count

    def most(self, free_bytes: int) -> int:
        """How many fit in ``free_bytes``; 0 when not even one does."""
        return min(COUNT_MAX, max(0, (free_bytes - self.intercept_bytes) // self.slope_bytes))

    @classmethod
    def through(cls, peaks: Mapping[int, int], *, safety: float = 1.0) -> Affine:
        """The line above all probes (count -> peak bytes), times ``safety``.

        One probe, or probes that a coarse meter cannot tell apart, say nothing of the slope: then the largest is
        taken as proportional to its count, which is too much for larger counts and never too little.

        Raises: ValueError without a probe that saw memory.
        """
        counts = sorted(peaks)
        rises = [(peaks[more] - peaks[less]) / (more - less) for less, more in pairwise(counts)]
        slope = max(rises, default=0.0)
        if slope <= 0:
            slope = max(peaks[count] / count for count in counts) if counts else 0.0
        intercept = max((peaks[count] - slope * count for count in counts), default=0.0)
        return cls(_up(max(0.0, intercept) * safety), _up(slope * safety))


@dataclass(frozen=True, slots=True)
class MemoryTable:
    """Length bucket -> memory of a batch. Between buckets the next length up counts; beyond the last nothing is known.

    Never a rule across lengths: one that fits up to 1024 tokens promises 41 % too little for 4096 and 65 % too little
    for 8192 (research/gpu_training.md §9.2).
    """

    buckets: Mapping[int, Affine]  # by length in tokens, ascending

    def __post_init__(self) -> None:
        if not self.buckets or min(self.buckets) < 1:
            raise ValueError("a memory table needs at least one length, and lengths are at least 1")
        object.__setattr__(self, "buckets", dict(sorted(self.buckets.items())))

    @property
    def lengths(self) -> tuple[int, ...]:
        """The buckets' lengths, ascending."""
        return tuple(self.buckets)

    def at(self, length: int) -> Affine | None:
        """The bucket that holds ``length``: the next one up; None beyond the last."""
        bucket = bucket_of(length, self.lengths)
        return None if bucket is None else self.buckets[bucket]

    def peak_bytes(self, length: int, count: int) -> int | None:
        """What ``count`` items padded to ``length`` need above the weights; None beyond the last bucket."""
        affine = self.at(length)
        return None if affine is None else affine.peak_bytes(count)

    def most(self, length: int, free_bytes: int) -> int:
        """How many items padded to ``length`` fit in ``free_bytes``; 0 when not one does.

        Beyond the last bucket 1: an item is tried alone rather than predicted.
        """
        affine = self.at(length)
        return 1 if affine is None else affine.most(free_bytes)

    def to_json(self) -> dict[str, Any]:
        """A record that ``from_json`` reads back."""
        rows = [[length, each.intercept_bytes, each.slope_bytes] for length, each in self.buckets.items()]
        return {"version": _VERSION, "buckets": rows}

    @classmethod
    def from_json(cls, record: object) -> MemoryTable:
        """The table of a record.

        Raises: ValueError for anything that ``to_json`` did not write.
        """
        if not isinstance(record, dict) or record.get("version") != _VERSION:
            raise ValueError("not a memory table of this version")
        rows = record.get("buckets")
        if not isinstance(rows, list) or not all(map(_is_row, rows)):
            raise ValueError("a memory table's buckets are [length, intercept, slope] in whole numbers")
        return cls({length: Affine(intercept, slope) for length, intercept, slope in rows})


def bucket_of(length: int, lengths: Iterable[int]) -> int | None:
    """The smallest of ``lengths`` that is at least ``length``; None when all are shorter."""
    ordered = sorted(lengths)
    index = bisect_left(ordered, length)
    return ordered[index] if index < len(ordered) else None


def lengths_to(longest: int) -> tuple[int, ...]:
    """The buckets of a model that takes up to ``longest`` tokens; the last is that length itself."""
    return (*(length for length in LENGTHS if length < longest), longest)


def _is_row(row: object) -> bool:
    return isinstance(row, list) and len(row) == 3 and all(type(value) is int for value in row)


def _up(value: float) -> int:
    return math.ceil(value)
