"""Writes a safetensors file part by part, so that large tensors take little memory; equal tensors give equal bytes.

The library's own writer takes all tensors at once and orders the header as its version likes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_NAMES = {"<f4": "F32", "<f2": "F16", "|i1": "I8"}  # numpy's names of dtypes -> those of the format
_ALIGNMENT = 64  # of the first tensor: a mapped table begins on a cache line


@dataclass(frozen=True, slots=True)
class TensorToWrite:
    """One tensor: what the header says of it, and where its rows come from."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    rows: Callable[[], Iterable[NDArray[Any]]]  # consecutive parts, together of ``shape``

    @property
    def size_bytes(self) -> int:
        return int(np.prod(self.shape)) * self.dtype.itemsize


def whole(name: str, value: NDArray[Any]) -> TensorToWrite:
    """A tensor that is in memory."""
    return TensorToWrite(name, value.dtype, value.shape, lambda: [value])


def write_tensors(file: Path, tensors: Sequence[TensorToWrite]) -> None:
    """Write the file; wider dtypes come first, so that every tensor is aligned. Raises: OSError."""
    ordered = sorted(tensors, key=lambda tensor: -tensor.dtype.itemsize)
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    stop = 0
    for tensor in ordered:
        start, stop = stop, stop + tensor.size_bytes
        dtype = _NAMES[tensor.dtype.str]
        header[tensor.name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": [start, stop]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % _ALIGNMENT)
    with file.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for tensor in ordered:
            for rows in tensor.rows():
                stream.write(np.ascontiguousarray(rows, tensor.dtype).data)
