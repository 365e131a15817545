"""Micro-batches made ready while the device works: collated by threads, pinned, copied, always in the order asked for.

Threads and not processes: the tasks' collation (Rust tokenizers, image decoders, tensor copies) lets go of the
interpreter, nothing has to be pickled (a Task holds its model), nothing goes through /dev/shm, and a worker that fails
raises here instead of dying. ``LoaderSettings.num_workers`` of the placement says how many.
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
_NAMED = 5  # faulty examples in one message
_now = threading.local()

Collate = Callable[[Sequence[int]], Batch]


def collation_epoch() -> int:
    """The epoch of the batch that this thread is collating; 0 outside.

    What augments in ``collate`` seeds itself with this and the example's index: the same picture then comes out in any
    thread, in any cut of the batch and after a resume, and another one in the next epoch.
    """
    return int(getattr(_now, "epoch", 0))


class MicroBatchLoader:
    """Collates on the threads it owns; used from the training thread alone. Close it, or use it as a context.

    Args:
        collate: Task.collate; called from several threads at once when there are workers.
        settings: of the placement; without workers everything happens on the training thread.
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

    def load(self, cuts: Iterable[Sequence[int]], *, epoch: int = 0) -> Iterator[Batch]:
        """One batch on the device for each cut, in order, whatever the number of workers.

        Cuts are taken as they come due, a few ahead of the training thread: close this iterator and ask anew when the
        size of the cuts changes; what was prepared is dropped.

        Raises: BadData naming the examples that could not be collated, at their place in the order.
        """
        for batch in self._collated(cuts, epoch):
            yield move_to_device(batch, self._device)

    def close(self) -> None:
        """Stop the threads; what they have begun they finish first."""
        if self._threads is not None:
            self._threads.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _collated(self, cuts: Iterable[Sequence[int]], epoch: int) -> Iterator[Batch]:
        if self._threads is None:
            for cut in cuts:
                yield self._make(cut, epoch)
            return
        waiting: deque[Future[Batch]] = deque()
        try:
            for cut in cuts:
                waiting.append(self._threads.submit(self._make, cut, epoch))
                if len(waiting) > self._ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()

    def _make(self, indices: Sequence[int], epoch: int) -> Batch:
        _now.epoch = epoch
        try:
            batch = self._collate(indices)
        except Exception as error:  # the task's code on the user's data: anything can come
            if classify(error).kind is FaultKind.OUT_OF_MEMORY:
                raise  # as it is: the loop answers it with smaller cuts
            raise BadData(self._names(indices, error)) from error
        finally:
            _now.epoch = 0
        return self._pinned(batch) if self._pins else batch

    def _names(self, indices: Sequence[int], error: Exception) -> str:
        culprits = [index for index in indices if self._fails_alone(index)] or list(indices)
        more = f" and {len(culprits) - _NAMED} more" if len(culprits) > _NAMED else ""
        named = ", ".join(str(index) for index in culprits[:_NAMED]) + more
        why = str(error) if isinstance(error, FinanciaError) else f"{type(error).__name__}: {error}"
        return f"training example(s) {named} cannot be made into a batch: {why}"

    def _fails_alone(self, index: int) -> bool:
        try:
            self._collate([index])
        except Exception:  # noqa: BLE001  # as above: whether it fails is the question
            return True
        return False

    def _pinned(self, batch: Batch) -> Batch:
        try:
            pinned: Batch = _pin(batch)
        except RuntimeError as error:  # the driver's limit on locked memory; the copy only gets slower
            self._pins = False
            log_event(_log, logging.WARNING, "memory cannot be pinned; copies will wait", reason=error)
            return batch
        return pinned


def _pin(one: Any) -> Any:
    if isinstance(one, Tensor):
        return one.pin_memory() if one.device.type == "cpu" else one
    if isinstance(one, Mapping):
        return {key: _pin(value) for key, value in one.items()}
    if isinstance(one, list | tuple) and not hasattr(one, "_fields"):
        return type(one)(_pin(value) for value in one)
    return one
