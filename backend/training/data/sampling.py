"""Which examples make up each optimizer step: a seeded, resumable plan of effective batches. No tensors, no loading.

Every rank makes the same plan and takes its share of each batch, so the number of processes changes no batch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.errors import BadCheckpoint, BadData

_POOL_BATCHES = (
    50  # sorted by length together: transformers' group_by_length takes the same; less padding beyond is nil
)
_POOLS_LEAST = 4  # in an epoch, so that small data is not one sorted list, the same at every epoch
_SEED_RANGE = 2**64


class EffectiveBatches:
    """The batches of every epoch, and how many of them were learnt from.

    An epoch has every example exactly once; its last batch in the making may be smaller, none is dropped. The
    costliest batch comes first, so that memory runs out in the first step or not at all (speechbrain#1182); inside a
    batch the longest example comes first, so that cuts of it pad least.

    Args:
        lengths: of every example, in any unit of cost; all equal where it does not matter.
        batch_size: examples of an effective batch, all ranks together.
        group_by_length: batches of similar lengths instead of wholly random ones; less padding.

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
        """Batches of an epoch."""
        return -(-len(self._lengths) // self._batch_size)

    @property
    def epoch(self) -> int:
        """Whole epochs learnt from."""
        return self._epoch

    @property
    def position(self) -> int:
        """Batches of this epoch learnt from; 0 again once the epoch is done."""
        return self._position

    @property
    def progress(self) -> float:
        """Epochs learnt from, with the share of the one under way."""
        return self._epoch + self._position / self.steps_per_epoch

    @property
    def left_out(self) -> tuple[int, ...]:
        """Examples that ``leave_out`` was told of, in order."""
        return tuple(sorted(self._left_out))

    def remaining(self) -> list[list[int]]:
        """The batches of this epoch still to learn from, in order: example indices, the longest first.

        A batch is empty where all of its examples are left out: pass over it with ``advance``.
        """
        return [self._kept(batch) for batch in self._plan[self._position :]]

    def advance(self) -> None:
        """The next batch was learnt from; after the last one of an epoch the next epoch begins."""
        self._position += 1
        if self._position >= len(self._plan):
            self._epoch, self._position = self._epoch + 1, 0
            self._plan = self._plan_of(self._epoch)

    def leave_out(self, indices: Iterable[int]) -> None:
        """From now on no batch has these examples. The other members of their batches stay where they are."""
        self._left_out.update(indices)

    def state(self) -> dict[str, Any]:
        """Ready for JSON: where the run is, and what the plan was made from."""
        return {
            "epoch": self._epoch,
            "position": self._position,
            "left_out": list(self.left_out),
            "plan": self._facts(),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from ``state``. Raises: BadCheckpoint where the data or the settings of the plan are others."""
        saved, now = dict(state["plan"]), self._facts()
        changed = [f"{name} was {saved.get(name)} and is {now[name]}" for name in now if saved.get(name) != now[name]]
        if changed:
            raise BadCheckpoint(
                "the batches of this run cannot be continued: " + "; ".join(changed) + ". Resume with the data and "
                "settings it was started with, or train anew into another output folder"
            )
        self._epoch, self._position = int(state["epoch"]), int(state["position"])
        self._left_out = {int(index) for index in state["left_out"]}
        self._plan = self._plan_of(self._epoch)

    def _facts(self) -> dict[str, Any]:
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
        pools = max(_POOLS_LEAST, -(-self.steps_per_epoch // _POOL_BATCHES))
        size = self._batch_size * max(1, -(-self.steps_per_epoch // pools))
        return np.concatenate([self._longest_first(order[at : at + size]) for at in range(0, len(order), size)])

    def _longest_first(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        return indices[np.argsort(-self._lengths[indices], kind="stable")]  # equal ones stay shuffled

    def _batches(self, order: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        return [order[at : at + self._batch_size] for at in range(0, len(order), self._batch_size)]


def share(batch: Sequence[int], rank: int, ranks: int) -> list[int]:
    """The examples of a batch that one rank runs: every ``ranks``-th, so that all get long and short ones alike.

    Empty where a batch has fewer examples than there are ranks: that rank must still take part in the exchange of
    gradients, with any example at weight 0.
    """
    return list(batch[rank::ranks])


def micro_batches(indices: Sequence[int], micro_batch: int) -> list[list[int]]:
    """Cut in order into parts of at most ``micro_batch`` examples; the last may be smaller."""
    return [list(indices[at : at + micro_batch]) for at in range(0, len(indices), micro_batch)]
