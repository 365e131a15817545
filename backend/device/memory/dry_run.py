"""Run a torch model without weights or arithmetic, and note what memory it would have taken. Imports torch at once.

Tensors here are fake: shapes and storages without bytes, so that a 7 GB model is tried on a laptop in a second. What a
kernel takes inside itself, and the allocator's rounding, is not seen: measured peaks are a little higher.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode  # until torch offers it publicly; stable since 2.0
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

Inputs = Mapping[str, Any] | tuple[Any, ...]  # of model(**inputs) or model(*inputs)


class StoragePeak(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's own lacks annotations
    """Counts the bytes of every storage that an operation brings to life until nobody refers to it any more.

    Agrees to the byte with torch.distributed._tools.MemTracker, which is private and needs a process group's imports.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # likewise
        self.live_bytes = self.peak_bytes = 0
        self._known = set[int]()  # ids of living storages: torch keeps one Python object a storage

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation and note its results."""
        results = func(*args, **(kwargs or {}))
        for tensor in tree_iter(results):
            if isinstance(tensor, torch.Tensor):
                self._note(tensor.untyped_storage())
        return results

    def ignore(self, storages: Iterable[torch.UntypedStorage]) -> None:
        """Leave out what was there before and stays: weights."""
        self._known.update(map(id, storages))

    def _note(self, storage: torch.UntypedStorage) -> None:
        if id(storage) in self._known:
            return
        self._known.add(id(storage))
        self.live_bytes += storage.nbytes()
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        weakref.finalize(storage, self._forget, id(storage), storage.nbytes()).atexit = False

    def _forget(self, identity: int, count_bytes: int) -> None:
        self._known.discard(identity)
        self.live_bytes -= count_bytes


def dry_run(
    make_model: Callable[[], torch.nn.Module], make_inputs: Callable[[int, int], Inputs], shapes: list[tuple[int, int]]
) -> tuple[int, dict[tuple[int, int], int]]:
    """Bytes of the weights (and buffers), and the peak above them of one forward pass for each (length, count).

    Args:
        make_model: builds it on the CPU from its configuration; loads nothing.
        make_inputs: of (count, length), whatever the model's forward takes.
    """
    with FakeTensorMode(allow_non_fake_inputs=True):
        model = make_model().eval()
        tensors = chain(model.parameters(), model.buffers())
        weights = {id(storage): storage for storage in (tensor.untyped_storage() for tensor in tensors)}
        own = weights.values()  # tied weights are one storage
        peaks = {(length, count): _peak(model, own, make_inputs(count, length)) for length, count in shapes}
    return sum(storage.nbytes() for storage in own), peaks


def _peak(model: torch.nn.Module, weights: Iterable[torch.UntypedStorage], inputs: Inputs) -> int:
    tracker = StoragePeak()
    tracker.ignore(weights)
    # not inference_mode: there attention and others stay whole, and what they take inside would not be seen
    with torch.no_grad(), tracker:
        model(**inputs) if isinstance(inputs, Mapping) else model(*inputs)
    return tracker.peak_bytes
