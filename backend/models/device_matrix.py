"""Vectors on a GPU as float16, and their products with a query: the scan of vector search, there."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager

import numpy as np
import torch

from backend.device.faults import FaultKind, classify
from backend.models.encoder import Vectors

BLOCK_ROWS = 65_536  # of width 384: 50 MB. Growing adds a block and copies none


def bytes_for(rows: int, width: int) -> int:
    """What vectors take of the device: whole blocks of float16."""
    return -(-rows // BLOCK_ROWS) * BLOCK_ROWS * 2 * width


class DeviceMatrix:
    """As `backend.search.sqlite.vector_matrix.VectorMatrix`, on a torch device.

    Rows are only ever added. A row of zeros has no vector and is no candidate. One thread adds at a time, any number
    scan what was there before.
    """

    def __init__(self, width: int, device: str) -> None:
        self.width = width
        self.rows = 0
        self.has_gaps = False
        self._device = torch.device(device)
        self._blocks: list[torch.Tensor] = []
        self._is_gap: list[np.ndarray[tuple[int], np.dtype[np.bool_]]] = []

    @property
    def memory_bytes(self) -> int:
        """Of this process; of the device it takes `bytes_for`."""
        return len(self._blocks) * BLOCK_ROWS

    def add(self, vectors: Vectors) -> None:
        """Append rows. Shapes: vectors (rows, width) float32. Raises: MemoryError for a full device."""
        is_gap = np.abs(vectors).max(axis=1, initial=0.0) == 0.0
        left = torch.from_numpy(np.ascontiguousarray(vectors)).half()
        while len(left):
            place = self.rows % BLOCK_ROWS
            if place == 0:
                self._blocks.append(self._new_block())
                self._is_gap.append(np.zeros(BLOCK_ROWS, np.bool_))
            fits = min(BLOCK_ROWS - place, len(left))
            with self._room():
                self._blocks[-1][place : place + fits] = left[:fits].to(self._device)
            self._is_gap[-1][place : place + fits] = is_gap[:fits]
            left, is_gap = left[fits:], is_gap[fits:]
            self.rows += fits
        self.has_gaps = any(bool(gaps.any()) for gaps in self._is_gap)

    def scan(self, query: Vectors, rows: int, threads: Executor) -> Vectors:  # noqa: ARG002 - the device has its own
        """Cosines of the first ``rows`` rows, within some 0.001; -2 for those without a vector.

        Shapes: query (width) -> (rows). Raises: MemoryError for a full device.
        """
        with torch.inference_mode(), self._room():
            on_device = torch.from_numpy(np.ascontiguousarray(query)).half().to(self._device)
            starts = range(0, rows, BLOCK_ROWS)
            parts = [self._blocks[start // BLOCK_ROWS][: rows - start] @ on_device for start in starts]
            scores: Vectors = torch.cat(parts).float().cpu().numpy()
        if self.has_gaps:
            scores[np.concatenate(self._is_gap)[:rows]] = -2.0
        return scores

    def _new_block(self) -> torch.Tensor:
        with self._room():
            return torch.zeros((BLOCK_ROWS, self.width), dtype=torch.float16, device=self._device)

    @contextmanager
    def _room(self) -> Iterator[None]:
        """Raises: MemoryError in place of torch's errors, and of the driver's and cuBLAS' own words for them."""
        try:
            yield
        except RuntimeError as error:
            if classify(error).kind is not FaultKind.OUT_OF_MEMORY:
                raise
            raise MemoryError(f"{self._device} has no room for more vectors") from error
