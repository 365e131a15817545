"""Chooses the examples of each optimizer step: a seeded, resumable sampler of effective batches.

Every rank computes the same batches and takes its share of each, so the number of processes changes no batch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.errors import BadCheckpoint, BadData

_POOL_BATCHES = 50  # sorted by length together, as in transformers' group_by_length; larger pools save no padding
_MIN_POOLS = 4  # in an epoch, so that small data is not one sorted list, the same at every epoch
_SEED_RANGE = 2**64


class EffectiveBatchSampler:
    """The effective batches of every epoch, and the position of the run in them.

    An epoch has every example exactly once; one batch may be smaller, none is dropped. The most expensive batch comes
    first, so that memory runs out in the first step or never (speechbrain#1182); within a batch the longest example
    comes first, so that micro-batches need the least padding.

    Args:
        lengths: of every example, in any unit of cost; all equal where it does not matter.
        batch_size: examples of an effective batch, all ranks together.
        group_by_length: batches of similar lengths instead of random ones; less padding.

    Raises: BadData without examples.
    """

    def __init__(
        self, lengths: Sequence[int], batch_size: int, *, seed: int = 42, group_by_length: bool = True
    ) -> None:
        if not len(lengths):
            raise BadData("there is no example to learn from")
        self._lengths: NDArray[np.int64] = np.asarray(lengths, dtype=np.int64)
        self._batch_size = batch_size
        self._seed = seed
        self._grouped = group_by_length
        self._epoch = 0
        self._position = 0
        self._left_out: set[int] = set()
        self._plan = self._plan_of(0)

    @property
    def steps_per_epoch(self) -> int:
        """Number of batches in an epoch."""
        return -(-len(self._lengths) // self._batch_size)

    @property
    def epoch(self) -> int:
        """Number of completed epochs."""
        return self._epoch

    @property
    def position(self) -> int:
        """Number of completed batches of the current epoch."""
        return self._position

    @property
    def progress(self) -> float:
        """Completed epochs, with the fraction of the current one."""
        return self._epoch + self._position / self.steps_per_epoch

    @property
    def left_out(self) -> tuple[int, ...]:
        """Indices passed to ``leave_out``, ascending."""
        return tuple(sorted(self._left_out))

    def remaining(self) -> list[list[int]]:
        """The remaining batches of this epoch, in order: example indices, the longest first.

        A batch is empty where all of its examples are left out: skip it with ``advance``.
        """
        return [self._kept(batch) for batch in self._plan[self._position :]]

    def advance(self) -> None:
        """Mark the next batch as completed; after the last one of an epoch the next epoch begins."""
        self._position += 1
        if self._position >= len(self._plan):
            self._epoch, self._position = self._epoch + 1, 0
            self._plan = self._plan_of(self._epoch)

    def leave_out(self, indices: Iterable[int]) -> None:
        """Exclude examples from all batches from now on; the other examples stay in their batches."""
        self._left_out.update(indices)

    def state(self) -> dict[str, Any]:
        """The position and the facts that the batches were computed from, serializable as JSON."""
        return {
            "epoch": self._epoch,
            "position": self._position,
            "left_out": list(self.left_out),
            "plan": self._plan_facts(),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore ``state``. Raises: BadCheckpoint where the data or the settings differ."""
        saved, current = dict(state["plan"]), self._plan_facts()
        changed = [
            f"{name} was {saved.get(name)} and is {value}"
            for name, value in current.items()
            if saved.get(name) != value
        ]
        if changed:
            raise BadCheckpoint(
                "the batches of this run cannot be continued: " + "; ".join(changed) + ". Resume with the data and "
                "settings it was started with, or train anew into another output folder"
            )
        self._epoch, self._position = int(state["epoch"]), int(state["position"])
        self._left_out = {int(index) for index in state["left_out"]}
        self._plan = self._plan_of(self._epoch)

    def _plan_facts(self) -> dict[str, Any]:
        return {
            "examples": len(self._lengths),
            "batch_size": self._batch_size,
            "seed": self._seed,
            "group_by_length": self._grouped,
            "lengths": hashlib.blake2b(self._lengths.tobytes(), digest_size=8).hexdigest(),
        }

    def _kept(self, batch: Sequence[int]) -> list[int]:
        return [index for index in batch if index not in self._left_out]

    def _plan_of(self, epoch: int) -> list[list[int]]:
        random = np.random.default_rng([self._seed % _SEED_RANGE, epoch])
        order = random.permutation(len(self._lengths))
        if self._grouped:
            batches = self._batches(self._sorted_in_pools(order))
            batches = [batches[index] for index in random.permutation(len(batches))]
        else:
            batches = self._batches(order)
        costs = [int(self._lengths[batch].max()) * len(batch) for batch in batches]  # padded, in the unit of lengths
        batches.insert(0, batches.pop(costs.index(max(costs))))
        return [self._longest_first(batch).tolist() for batch in batches]

    def _sorted_in_pools(self, order: NDArray[np.int64]) -> NDArray[np.int64]:
        pools = max(_MIN_POOLS, -(-self.steps_per_epoch // _POOL_BATCHES))
        size = self._batch_size * max(1, -(-self.steps_per_epoch // pools))
        return np.concatenate([self._longest_first(order[at : at + size]) for at in range(0, len(order), size)])

    def _longest_first(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        return indices[np.argsort(-self._lengths[indices], kind="stable")]  # equal lengths stay shuffled

    def _batches(self, order: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        return [order[at : at + self._batch_size] for at in range(0, len(order), self._batch_size)]


def share(batch: Sequence[int], rank: int, ranks: int) -> list[int]:
    """The examples of a batch that one rank runs: every ``ranks``-th, so that all get long and short ones.

    Empty where a batch has fewer examples than ranks: that rank must still take part in the gradient all-reduce, with
    any example at weight 0.
    """
    return list(batch[rank::ranks])


def micro_batches(indices: Sequence[int], micro_batch: int) -> list[list[int]]:
    """Split in order into micro-batches of at most ``micro_batch`` examples; the last may be smaller."""
    return [list(indices[at : at + micro_batch]) for at in range(0, len(indices), micro_batch)]
