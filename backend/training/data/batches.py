"""The batches of a run: which examples each step takes, and micro-batches of them, collated ahead on threads.

Every rank computes the same effective batches and takes its share of each, so the number of processes changes no batch.
Threads and not processes: collation (Rust tokenizers, image decoders, tensor copies) releases the GIL, nothing is
pickled (a Task holds its model), nothing goes through /dev/shm, and a failing worker raises here instead of dying.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import pairwise
from types import TracebackType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from backend.device.faults import FaultKind, classify
from backend.device.plan.placement import LoaderSettings
from backend.device.transfer import move_to_device
from backend.errors import BadCheckpoint, BadData, FinanciaError
from backend.telemetry import log_event
from backend.training.records import Batch

_POOL_BATCHES = 50  # sorted by length together, as in transformers' group_by_length; larger pools save no padding
_MIN_POOLS = 4  # in an epoch, so that small data is not one sorted list, the same at every epoch
_SEED_RANGE = 2**64
Numbers = Sequence[int] | NDArray[np.int64]
EVALUATION_TOKENS = 8192  # padded, in a batch without gradients: 0.1 GiB in a 12-layer encoder 768 wide


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


_log = logging.getLogger(__name__)
_EXAMPLES_IN_MESSAGE = 5  # faulty examples in one message
_collating = threading.local()

Collate = Callable[[Sequence[int]], Batch]


def collation_epoch() -> int:
    """The epoch of the batch that this thread is collating; 0 outside of a collation.

    Augmentation in ``collate`` seeds itself with it and the example's index, so that an example is the same on any
    thread, in any micro-batch and after a resume, and differs in the next epoch.
    """
    return int(getattr(_collating, "epoch", 0))


class MicroBatchLoader(AbstractContextManager["MicroBatchLoader", None]):
    """Loads micro-batches; used by the training thread only. Close it, or use it as a context manager.

    Args:
        collate: Task.collate; called from several threads at once when there are workers.
        settings: of the placement; without workers it collates on the training thread.
        device: where the tensors go.
    """

    def __init__(self, collate: Collate, settings: LoaderSettings, device: torch.device | str) -> None:
        self._collate = collate
        self._device = torch.device(device)
        self._ahead = settings.num_workers * (settings.prefetch_factor or 1)
        self._pins = settings.pin_memory and self._device.type == "cuda"
        self._threads = (
            ThreadPoolExecutor(settings.num_workers, thread_name_prefix="collate") if settings.num_workers else None
        )

    def load(self, index_lists: Iterable[Sequence[int]], *, epoch: int = 0) -> Iterator[Batch]:
        """Yield one batch on the device for each list of indices, in order, whatever the number of workers.

        Lists are consumed lazily, a few ahead of the training thread. When the micro-batch size changes, close this
        iterator and start another; what was prepared is dropped.

        Raises: BadData naming the examples that could not be collated, when their batch is due.
        """
        for batch in self._collated(index_lists, epoch):
            yield move_to_device(batch, self._device)

    def close(self) -> None:
        """Stop the threads after the batches they are collating."""
        if self._threads is not None:
            self._threads.shutdown(wait=True, cancel_futures=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _collated(self, index_lists: Iterable[Sequence[int]], epoch: int) -> Iterator[Batch]:
        if self._threads is None:
            for indices in index_lists:
                yield self._make(indices, epoch)
            return
        waiting: deque[Future[Batch]] = deque()
        try:
            for indices in index_lists:
                waiting.append(self._threads.submit(self._make, indices, epoch))
                if len(waiting) > self._ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()

    def _make(self, indices: Sequence[int], epoch: int) -> Batch:
        _collating.epoch = epoch
        try:
            batch = self._collate(indices)
        except Exception as error:  # the task's code on the user's data can raise anything
            if classify(error).kind is FaultKind.OUT_OF_MEMORY:
                raise  # the training loop retries with smaller micro-batches
            raise BadData(self._failure_message(indices, error)) from error
        finally:
            _collating.epoch = 0
        return self._pinned(batch) if self._pins else batch

    def _failure_message(self, indices: Sequence[int], error: Exception) -> str:
        failing = [index for index in indices if self._fails_alone(index)] or list(indices)
        others = f" and {len(failing) - _EXAMPLES_IN_MESSAGE} more" if len(failing) > _EXAMPLES_IN_MESSAGE else ""
        listed = ", ".join(str(index) for index in failing[:_EXAMPLES_IN_MESSAGE]) + others
        reason = str(error) if isinstance(error, FinanciaError) else f"{type(error).__name__}: {error}"
        return f"training example(s) {listed} cannot be made into a batch: {reason}"

    def _fails_alone(self, index: int) -> bool:
        try:
            self._collate([index])
        except Exception:  # noqa: BLE001  # any failure counts
            return True
        return False

    def _pinned(self, batch: Batch) -> Batch:
        try:
            pinned: Batch = tree_map_only(Tensor, _pin, dict(batch))
        except RuntimeError as error:  # the driver's limit on locked memory; unpinned copies are only slower
            self._pins = False
            log_event(_log, logging.WARNING, "memory cannot be pinned; copies will wait", reason=error)
            return batch
        return pinned


def _pin(tensor: Tensor) -> Tensor:
    return tensor.pin_memory() if tensor.device.type == "cpu" else tensor


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
