"""What searching a store needs in memory: its table of chunks, its vectors, and the terms of its newest chunks.

Loaded by the first search, brought up to date by the next one after a change, and dropped, the stores used longest ago
first, when all together are over the limit. Vectors are kept as int8 in memory, those of large stores on a device where
there is one. The database is the truth: nothing here is written anywhere.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from backend.search.sqlite import postings
from backend.search.sqlite.chunk_table import (
    BYTES_PER_CHUNK,
    ChunkTable,
    Generation,
    extended,
    read_table,
    without_removed,
)
from backend.search.sqlite.leavings import leaving_chunks
from backend.search.sqlite.rows import unpack_vectors
from backend.search.sqlite.vector_matrix import DeviceVectors, Matrix, VectorMatrix, vector_bytes
from backend.telemetry import log_event

Place = Literal["device", "memory", "disk"]
_log = logging.getLogger(__name__)
_ROWS_AT_ONCE = 8192
_BYTES_PER_FRESH_CHUNK = 20_000  # of dictionaries and lists, for some 100 terms


class Behind(Exception):
    """The transaction sees an earlier state of the store than the one in memory."""


class FreshTerms:
    """The postings of the chunks that no segment has. Used under the store's lock."""

    def __init__(self) -> None:
        self.last = 0
        self.chunks = 0
        self._terms: dict[str, tuple[list[int], list[int]]] = {}
        self._ordered: list[str] = []  # the terms, sorted when a prefix is looked up

    def read(self, connection: sqlite3.Connection, store: int) -> None:
        for chunk, counts in postings.fresh_terms(connection, store, self.last):
            self.last = chunk
            self.chunks += 1
            for term, times in counts.items():
                ids, all_times = self._terms.setdefault(term, ([], []))
                ids.append(chunk)
                all_times.append(times)

    def of_term(self, term: str) -> list[postings.Postings]:
        found = self._terms.get(term)
        return [] if found is None else [_arrays(*found)]

    def of_prefix(self, prefix: str) -> list[postings.Postings]:
        if len(self._ordered) != len(self._terms):  # terms are only ever added
            self._ordered = sorted(self._terms)
        first, past = (bisect_left(self._ordered, bound) for bound in (prefix, prefix + postings.LAST_CHARACTER))
        return [_arrays(*self._terms[term]) for term in self._ordered[first:past]]


class Phrases(NamedTuple):
    """Postings of each term and each prefix of a query that any chunk may have."""

    table: ChunkTable
    found: Sequence[Sequence[postings.Postings]]


class LoadedStore:
    """One store. Any thread; what is returned does not change when the store does."""

    def __init__(self, device: DeviceVectors | None = None) -> None:
        self._device = device
        self.is_refused = False  # by the device, which had no room for it
        self._on_device = False
        self._lock = threading.Lock()
        self._generation: Generation | None = None
        self._table: ChunkTable | None = None
        self._matrix: Matrix | None = None
        self._fresh = FreshTerms()

    @property
    def memory_bytes(self) -> int:
        table, matrix = self._table, self._matrix
        held = 0 if table is None else len(table) * BYTES_PER_CHUNK
        held += 0 if matrix is None else matrix.memory_bytes
        return held + self._fresh.chunks * _BYTES_PER_FRESH_CHUNK

    @property
    def device_bytes(self) -> int:
        matrix = self._matrix
        if self._device is None or matrix is None or not self._on_device:
            return 0
        return self._device.bytes_for(matrix.rows, matrix.width)

    def table(self, connection: sqlite3.Connection, current: Generation) -> ChunkTable:
        """Raises: Behind, DataError."""
        with self._lock:
            return self._updated(connection, current)

    def vectors(
        self, connection: sqlite3.Connection, current: Generation, width: int, *, on_device: bool = False
    ) -> tuple[ChunkTable, Matrix]:
        """Raises: Behind, DataError; MemoryError where the device has no room."""
        with self._lock:
            table = self._updated(connection, current)
            matrix, self._matrix = self._matrix, None  # half filled, if this fails
            if matrix is None or self._on_device != on_device:
                matrix = self._device.new_matrix(width) if on_device and self._device else VectorMatrix(width)
            _fill(connection, current, table, matrix)
            self._matrix, self._on_device = matrix, on_device
            return table, matrix

    def phrases(
        self, connection: sqlite3.Connection, current: Generation, terms: Sequence[str], prefixes: Sequence[str]
    ) -> Phrases:
        """Raises: Behind, DataError."""
        with self._lock:
            table = self._updated(connection, current)
            self._fresh.read(connection, current.store)
            fresh = [self._fresh.of_term(term) for term in terms]
            fresh += [self._fresh.of_prefix(prefix) for prefix in prefixes]
        segments = postings.segments_of(connection, current.store)
        old = [[one for segment in segments for one in postings.read_term(connection, segment, term)] for term in terms]
        old += [
            [one for segment in segments for one in postings.read_prefix(connection, segment, prefix)]
            for prefix in prefixes
        ]
        return Phrases(table, [one + other for one, other in zip(old, fresh, strict=True)])

    def _updated(self, connection: sqlite3.Connection, current: Generation) -> ChunkTable:
        known, table = self._generation, self._table
        if known is None or table is None:
            return self._load(connection, current)
        if known == current:
            return table
        if any(before > now for before, now in zip(known[2:], current[2:], strict=True)):
            raise Behind
        if (known.rebuilds, known.encoder) != (current.rebuilds, current.encoder):
            return self._load(connection, current)
        if known.merges != current.merges:
            self._fresh = FreshTerms()
        if known.removals != current.removals:
            kept = without_removed(connection, current.store, table)
            if kept is None:
                return self._load(connection, current)
            table = kept
        if known.additions != current.additions:
            table = extended(connection, current.store, table)
        self._table, self._generation = table, current
        return table

    def _load(self, connection: sqlite3.Connection, current: Generation) -> ChunkTable:
        self._matrix, self._fresh, self._generation = None, FreshTerms(), None
        self._table = read_table(connection, current.store)
        self._generation = current
        return self._table


class LoadedStores:
    """The stores in memory. Any thread."""

    def __init__(self, memory_bytes: int, device: DeviceVectors | None = None) -> None:
        self._limit_bytes, self._device = memory_bytes, device
        self._is_refusal_told = False
        self._lock = threading.Lock()
        self._stores: OrderedDict[int, LoadedStore] = OrderedDict()

    @property
    def memory_bytes(self) -> int:
        with self._lock:
            return sum(store.memory_bytes for store in self._stores.values())

    @property
    def device_bytes(self) -> int:
        with self._lock:
            return sum(store.device_bytes for store in self._stores.values())

    def place_for(self, store: int, chunks: int, width: int) -> Place:
        """Where the vectors of a store are kept. On a device, stores used longest ago make room."""
        device, wanted = self._device, self.of(store)
        if device is not None and chunks >= device.least_chunks and not wanted.is_refused:
            needed = device.bytes_for(chunks, width)
            if needed <= device.memory_bytes and chunks * BYTES_PER_CHUNK <= self._limit_bytes:
                self._make_room(wanted, device.memory_bytes - needed)
                return "device"
        fits = chunks * BYTES_PER_CHUNK + vector_bytes(chunks, width) <= self._limit_bytes
        return "memory" if fits else "disk"

    def refused(self, store: int, reason: MemoryError) -> None:
        """The device had no room for a store: until it is loaded again, it is scanned in memory."""
        self.of(store).is_refused = True
        with self._lock:
            is_told, self._is_refusal_told = self._is_refusal_told, True
        if not is_told:
            log_event(
                _log, logging.WARNING, "vectors do not fit the device: the processor scans them", reason=str(reason)
            )

    def of(self, store: int) -> LoadedStore:
        with self._lock:
            loaded = self._stores.setdefault(store, LoadedStore(self._device))
            self._stores.move_to_end(store)
            return loaded

    def trim(self) -> None:
        """Forget the stores used longest ago until the rest is within the limit. Called after each search."""
        with self._lock:
            held = sum(store.memory_bytes for store in self._stores.values())
            while held > self._limit_bytes and self._stores:
                _, dropped = self._stores.popitem(last=False)
                held -= dropped.memory_bytes

    def _make_room(self, wanted: LoadedStore, others_bytes: int) -> None:
        """Forget the stores on the device that were used longest ago until the others hold at most so much of it."""
        with self._lock:
            others = {number: one.device_bytes for number, one in self._stores.items() if one is not wanted}
            held = sum(others.values())
            for number, device_bytes in others.items():
                if held <= others_bytes:
                    return
                if device_bytes:
                    del self._stores[number]
                    held -= device_bytes

    def forget(self, store: int) -> None:
        with self._lock:
            self._stores.pop(store, None)


def _fill(connection: sqlite3.Connection, current: Generation, table: ChunkTable, matrix: Matrix) -> None:
    """Add the vectors of the table's chunks that the matrix does not have. Raises: DataError."""
    if matrix.rows >= len(table):
        return
    cursor = connection.execute(
        "SELECT chunk, vector FROM vectors WHERE store = ? AND encoder = ? AND chunk >= ? ORDER BY chunk",
        (current.store, current.encoder, int(table.chunk_ids[matrix.rows])),
    )
    while read := cursor.fetchmany(_ROWS_AT_ONCE):
        ids = np.array([chunk for chunk, _ in read], np.int64)
        rows, is_known = table.rows_of(ids)
        packed = [vector for _, vector in read]
        if not is_known.all():
            if not leaving_chunks(connection, current.store, ids[~is_known]).all():
                raise sqlite3.DataError("a vector belongs to no chunk of its store")
            rows, packed = rows[is_known], [vector for vector, known in zip(packed, is_known, strict=True) if known]
        if packed:
            vectors = np.zeros((rows[-1] + 1 - matrix.rows, matrix.width), np.float32)
            vectors[rows - matrix.rows] = unpack_vectors(packed, matrix.width)
            matrix.add(vectors)
    if matrix.rows < len(table):
        matrix.add(np.zeros((len(table) - matrix.rows, matrix.width), np.float32))


def _arrays(ids: list[int], times: list[int]) -> postings.Postings:
    return postings.Postings(np.array(ids, np.int64), np.array(times, np.int64))
