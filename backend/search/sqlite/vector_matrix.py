"""The vectors of one store in memory as int8, and the scan that finds the best candidates among all of them.

A vector is kept with one scale; the query is rounded alike. What the scan finds is scored again from the stored
vectors, so the rounding only decides which few hundred candidates those are.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Protocol

import numkong
import numpy as np
from numpy.typing import NDArray

from backend.models.encoder import Vectors

BLOCK_ROWS = 65_536  # of width 384: 25 MB. Growing adds a block and copies none
_MOST = 127.0


class Matrix(Protocol):
    """Vectors that can be scanned: `VectorMatrix` in memory, or `backend.models.device_matrix` on a GPU."""

    rows: int
    width: int
    has_gaps: bool

    @property
    def memory_bytes(self) -> int:
        """Of this process's memory."""

    def add(self, vectors: Vectors) -> None:
        """Raises: MemoryError where there is no room."""

    def scan(self, query: Vectors, rows: int, threads: Executor) -> Vectors:
        """Raises: MemoryError where there is no room."""


@dataclass(frozen=True, slots=True)
class DeviceVectors:
    """A device that scans vectors, and how much of its memory is for them."""

    new_matrix: Callable[[int], Matrix]  # for vectors of a width
    bytes_for: Callable[[int, int], int]  # that a matrix of rows and width takes of the device
    memory_bytes: int  # for the vectors of all stores together
    least_chunks: int = 16_384  # of a store: a core scans fewer in half a millisecond, and a block is larger


def vector_bytes(rows: int, width: int) -> int:
    """What vectors take as int8, each with its scale."""
    return rows * (width + 4)


class VectorMatrix:
    """Rows are only ever added. A row of zeros has no vector and is no candidate.

    One thread adds at a time, any number scan what was there before.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self.rows = 0
        self.has_gaps = False
        self._blocks: list[NDArray[np.int8]] = []
        self._scales: list[Vectors] = []

    @property
    def memory_bytes(self) -> int:
        return vector_bytes(
            self.rows, self.width
        )  # of the last block the rows that were written: the rest is not taken

    def add(self, vectors: Vectors) -> None:
        """Append rows. Shapes: vectors (rows, width) float32."""
        largest = np.abs(vectors).max(axis=1, initial=0.0)
        self.has_gaps = self.has_gaps or not bool(largest.all())
        rounded = np.rint(vectors * (_MOST / np.maximum(largest, 1e-30))[:, None]).astype(np.int8)
        scales = (largest / _MOST).astype(np.float32)
        while len(rounded):
            place = self.rows % BLOCK_ROWS
            if place == 0:
                self._blocks.append(np.zeros((BLOCK_ROWS, self.width), np.int8))
                self._scales.append(np.zeros(BLOCK_ROWS, np.float32))
            fits = min(BLOCK_ROWS - place, len(rounded))
            self._blocks[-1][place : place + fits] = rounded[:fits]
            self._scales[-1][place : place + fits] = scales[:fits]
            rounded, scales = rounded[fits:], scales[fits:]
            self.rows += fits

    def scan(self, query: Vectors, rows: int, threads: Executor) -> Vectors:
        """Cosines of the first ``rows`` rows, within some 0.002; -2 for those without a vector.

        Shapes: query (width) -> (rows). The product runs without the GIL, blocks side by side on ``threads``.
        """
        scale = max(float(np.abs(query).max(initial=0.0)), 1e-30) / _MOST
        packed = numkong.dots_pack(np.rint(query / scale).astype(np.int8)[None, :])
        scores = np.empty(rows, np.float32)

        def product(start: int) -> None:
            block, scales = self._blocks[start // BLOCK_ROWS], self._scales[start // BLOCK_ROWS]
            end = min(start + BLOCK_ROWS, rows)
            dots = np.asarray(numkong.dots_packed(block[: end - start], packed)).reshape(-1)
            np.multiply(dots, scales[: end - start] * np.float32(scale), out=scores[start:end], casting="unsafe")
            if self.has_gaps:
                scores[start:end][scales[: end - start] == 0.0] = -2.0

        starts = range(0, rows, BLOCK_ROWS)
        if len(starts) == 1:
            product(0)
        else:
            list(threads.map(product, starts))
        return scores
