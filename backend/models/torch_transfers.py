"""Copies between host and device that the host never waits for: ids or pixels to it, float32 results from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from backend.models.encoder import Ids, Vectors

_ALIGNED = 4  # int32 numbers, 16 bytes: each part of the inputs begins where a vector load may


class Transfers(Protocol):
    """How one device exchanges data with the host."""

    def buffer(self, size: int, dtype: torch.dtype = torch.int32) -> Tensor:
        """Host memory for ``size`` numbers, from which the device may copy by itself."""

    def copy_out(self, values: Tensor) -> Callable[[], Tensor]:
        """Queue a copy to the host; the function returned waits for it, and for nothing queued after it."""


class DirectTransfers:
    """A device whose copies are synchronous: the CPU, which needs none, and Apple's GPUs."""

    def buffer(self, size: int, dtype: torch.dtype = torch.int32) -> Tensor:
        return torch.empty(size, dtype=dtype)

    def copy_out(self, values: Tensor) -> Callable[[], Tensor]:
        return values.cpu


class PinnedTransfers:
    """A CUDA card: copies from and to page-locked memory, which its allocator reuses once the card is done with it.

    A copy from pageable memory would wait for the work queued before it.
    """

    def __init__(self, device: torch.device, *, cuda: Any = torch.cuda) -> None:
        """``cuda``: replaced by tests."""
        self._device, self._cuda = device, cuda

    def buffer(self, size: int, dtype: torch.dtype = torch.int32) -> Tensor:
        return torch.empty(size, dtype=dtype, pin_memory=True)

    def copy_out(self, values: Tensor) -> Callable[[], Tensor]:
        host = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
        host.copy_(values, non_blocking=True)
        event = self._cuda.Event(blocking=True)  # else the wait spins: a core a lane, counted as the caller's work
        event.record(self._cuda.current_stream(self._device))

        def wait() -> Tensor:
            event.synchronize()
            return host.clone()  # page-locked memory is scarce, and the caller may keep its rows for long

        return wait


def transfers_of(device: torch.device) -> Transfers:
    """The transfers of a device."""
    return PinnedTransfers(device) if device.type == "cuda" else DirectTransfers()


def aligned(size: int) -> int:
    """The place of ``size`` int32 numbers in a buffer of several parts."""
    return -(-size // _ALIGNED) * _ALIGNED


def fill(buffer: Tensor, parts: Sequence[NDArray[np.int64]]) -> list[slice]:
    """Write arrays into a host buffer, one after the other, as int32; where each one stands."""
    numbers, start, places = buffer.numpy(), 0, []
    for part in parts:
        places.append(slice(start, start + part.size))
        numbers[places[-1]] = part.ravel()
        start += aligned(part.size)
    return places


def send(transfers: Transfers, device: torch.device, parts: Sequence[NDArray[np.int64]]) -> list[Tensor]:
    """Arrays of ids as flat int32 tensors on the device, in one copy."""
    buffer = transfers.buffer(sum(aligned(part.size) for part in parts))
    places = fill(buffer, parts)
    sent = buffer.to(device, non_blocking=True)
    return [sent[place] for place in places]


def send_bytes(transfers: Transfers, device: torch.device, values: NDArray[np.uint8]) -> Tensor:
    """An array of bytes as a tensor of its shape on the device."""
    buffer = transfers.buffer(values.size, torch.uint8)
    buffer.numpy()[:] = values.ravel()
    return buffer.to(device, non_blocking=True).view(values.shape)


def split(buffer: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    """The parts of a buffer that ``fill`` wrote, by their sizes; views."""
    ends = accumulate(aligned(size) for size in sizes)
    return [buffer[end - aligned(size) : end - aligned(size) + size] for end, size in zip(ends, sizes, strict=True)]


@dataclass(frozen=True, slots=True)
class CopiedResults:
    """A batch's ``QueuedResults``: its values and the size of each row, on their way home."""

    starts: Ids | None  # each text's first row of ``values``; None: a row a text
    values: Callable[[], Tensor]
    sizes: Callable[[], Tensor]  # the largest magnitude in each row of values; NaN or infinite where one of them is

    def wait(self) -> tuple[Sequence[Vectors], NDArray[np.bool_]]:
        finite: NDArray[np.bool_] = np.isfinite(self.sizes().numpy())
        values: Vectors = self.values().numpy()
        if self.starts is None:
            return list(values), finite
        whole: NDArray[np.bool_] = np.logical_and.reduceat(finite, self.starts)
        return np.split(values, self.starts[1:]), whole
