"""Collates micro-batches on threads while the device works, pins and copies them, and yields them in order.

Threads and not processes: collation (Rust tokenizers, image decoders, tensor copies) releases the GIL, nothing is
pickled (a Task holds its model), nothing goes through /dev/shm, and a failing worker raises here instead of dying.
``LoaderSettings.num_workers`` of the placement says how many.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor

from backend.device.faults import FaultKind, classify
from backend.device.plan.placement import LoaderSettings
from backend.device.transfer import move_to_device
from backend.errors import BadData, FinanciaError
from backend.telemetry import log_event
from backend.training.records import Batch

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


class MicroBatchLoader:
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

    def __enter__(self) -> Self:
        return self

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
            pinned: Batch = _pin_tensors(batch)
        except RuntimeError as error:  # the driver's limit on locked memory; unpinned copies are only slower
            self._pins = False
            log_event(_log, logging.WARNING, "memory cannot be pinned; copies will wait", reason=error)
            return batch
        return pinned


def _pin_tensors(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.pin_memory() if value.device.type == "cpu" else value
    if isinstance(value, Mapping):
        return {key: _pin_tensors(item) for key, item in value.items()}
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return type(value)(_pin_tensors(item) for item in value)
    return value
