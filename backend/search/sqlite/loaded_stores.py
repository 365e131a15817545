"""What searching a store needs in memory: its table of chunks, its vectors, and the terms of its newest chunks.

Loaded by the first search and brought up to date by the next one after a change. Before that its room is reserved: the
stores used longest ago leave, but none that is being searched. Vectors are kept as int8 in memory, those of large
stores on a device where there is one. The database is the truth: nothing here is written anywhere.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from backend.errors import TooLarge
from backend.search.filters import Dialect, Filter, compile_filter
from backend.search.sqlite import postings
from backend.search.sqlite.pending_deletes import pending_chunks
from backend.search.sqlite.schema import unpack_vectors
from backend.search.sqlite.vector_matrix import DeviceVectors, Matrix, VectorMatrix, vector_bytes
from backend.telemetry import log_event

Ints = NDArray[np.int64]
SmallInts = NDArray[np.int32]
Mask = NDArray[np.bool_]

BYTES_PER_CHUNK = 16
# Without numbers: SQLite looks each one up among all before it, 1.7 s for 32,000 values in place of 15 ms.
_DIALECT = Dialect(file="sf.number", placeholder=lambda _: "?", scope=" AND a.store = ?1")
_DEAD_RATIO = 0.25  # of the chunks; above it the table is read anew without them


class Generation(NamedTuple):
    """Counters of a store's row: what is in memory belongs to one state of them."""

    store: int
    encoder: int | None
    additions: int
    removals: int
    rebuilds: int
    merges: int


@dataclass(frozen=True, slots=True)
class ChunkTable:
    """Shapes: numbers, firsts, is_kept (files), by first chunk; chunk_ids, file_index, lengths (chunks), by id."""

    numbers: Ints
    firsts: Ints
    is_kept: Mask  # false for files that were removed since the table was read
    chunk_ids: Ints
    file_index: SmallInts
    lengths: SmallInts

    def __len__(self) -> int:
        return len(self.chunk_ids)

    @property
    def has_removed(self) -> bool:
        return not bool(self.is_kept.all())

    def mask(self, allowed: Ints | None) -> Mask | None:
        """Which chunks may be hits; None: all.

        Args:
            allowed: numbers of files; None: of any that are kept.
        """
        if allowed is None and not self.has_removed:
            return None
        files = self.is_kept if allowed is None else self.is_kept & np.isin(self.numbers, allowed)
        mask: Mask = files[self.file_index]
        return mask

    def rows_of(self, chunk_ids: Ints) -> tuple[Ints, Mask]:
        """The index of each chunk, and whether there is one."""
        if not len(self):
            return np.zeros(len(chunk_ids), np.int64), np.zeros(len(chunk_ids), np.bool_)
        first = int(self.chunk_ids[0])
        if int(self.chunk_ids[-1]) - first + 1 == len(self):  # no gaps
            rows = chunk_ids - first
        else:
            rows = np.searchsorted(self.chunk_ids, chunk_ids)
        rows = np.clip(rows, 0, len(self) - 1)
        return rows, self.chunk_ids[rows] == chunk_ids


def generation_of(connection: sqlite3.Connection, store_id: str) -> Generation | None:
    row = connection.execute(
        "SELECT number, encoder, additions, removals, rebuilds, merges FROM stores WHERE id = ?", (store_id,)
    ).fetchone()
    return row and Generation(*row)


def allowed_files(connection: sqlite3.Connection, store: int, filters: Filter) -> Ints:
    """Numbers of the files with chunks that a filter lets through. Raises: TooLarge."""
    condition = compile_filter(filters, _DIALECT, first=1)
    most = connection.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER) - 1
    if len(condition.values) > most:
        raise TooLarge("filters: values", len(condition.values), most, "SQLite's own")
    rows = connection.execute(
        f"SELECT sf.number FROM store_files sf WHERE sf.store = ?1 AND sf.chunks > 0 AND {condition.sql}",
        (store, *condition.values),
    )
    return np.array([number for (number,) in rows], np.int64)


def read_table(connection: sqlite3.Connection, store: int) -> ChunkTable:
    empty = np.zeros(0, np.int64)
    small = np.zeros(0, np.int32)
    return extended(connection, store, ChunkTable(empty, empty, np.zeros(0, np.bool_), empty, small, small))


def extended(connection: sqlite3.Connection, store: int, table: ChunkTable) -> ChunkTable:
    """The table with the files that were indexed since it was read. Raises: DataError."""
    last = int(table.chunk_ids[-1]) if len(table) else 0
    rows = connection.execute(
        "SELECT number, first_chunk, chunks, lengths FROM store_files WHERE store = ? AND first_chunk > ? "
        "AND chunks > 0 ORDER BY first_chunk",
        (store, last),
    ).fetchall()
    if not rows:
        return table
    files = np.array([row[:3] for row in rows], np.int64)
    numbers, firsts, counts = files.T
    lengths = np.frombuffer(b"".join(row[3] for row in rows), "<i4")
    ends = np.cumsum(counts)
    if len(lengths) != ends[-1] or (firsts[1:] < (firsts + counts)[:-1]).any():
        raise sqlite3.DataError("the files of a store and the lengths of their chunks do not fit together")
    chunk_ids = np.arange(ends[-1], dtype=np.int64) + np.repeat(firsts - (ends - counts), counts)
    index = np.repeat(np.arange(len(files), dtype=np.int32) + np.int32(len(table.numbers)), counts)
    return ChunkTable(
        np.concatenate([table.numbers, numbers]),
        np.concatenate([table.firsts, firsts]),
        np.concatenate([table.is_kept, np.ones(len(files), np.bool_)]),
        np.concatenate([table.chunk_ids, chunk_ids]),
        np.concatenate([table.file_index, index]),
        np.concatenate([table.lengths, lengths]),
    )


def without_removed(connection: sqlite3.Connection, store: int, table: ChunkTable) -> ChunkTable | None:
    """The table with removed files marked; None: so many are that it should be read anew."""
    rows = connection.execute("SELECT number FROM store_files WHERE store = ? AND chunks > 0", (store,))
    kept = np.isin(table.numbers, np.array([number for (number,) in rows], np.int64))
    if np.count_nonzero(~kept[table.file_index]) > _DEAD_RATIO * len(table):
        return None
    return ChunkTable(table.numbers, table.firsts, kept, table.chunk_ids, table.file_index, table.lengths)


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
        self.searches = 0  # that use it now; under the lock of `LoadedStores`, as is what is reserved
        self.reserved_bytes = 0
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
    def fresh_chunks(self) -> int:
        return self._fresh.chunks

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
        device, wanted = self._device, self._of(store)
        if device is not None and chunks >= device.least_chunks and not wanted.is_refused:
            needed = device.bytes_for(chunks, width)
            fits = needed <= device.memory_bytes and chunks * BYTES_PER_CHUNK <= self._limit_bytes
            if fits and self._make_room(wanted, device.memory_bytes - needed):
                return "device"
        fits = self._reserve(wanted, chunks * BYTES_PER_CHUNK + vector_bytes(chunks, width))
        return "memory" if fits else "disk"

    def reserve_fresh(self, store: int, chunks: int) -> None:
        """Make room for the terms of so many chunks of a store that no segment has."""
        wanted = self._of(store)
        more = max(0, chunks - wanted.fresh_chunks)
        self._reserve(wanted, wanted.memory_bytes + more * _BYTES_PER_FRESH_CHUNK)

    def refused(self, store: int, reason: MemoryError) -> None:
        """The device had no room for a store: until it is loaded again, it is scanned in memory."""
        self._of(store).is_refused = True
        with self._lock:
            is_told, self._is_refusal_told = self._is_refusal_told, True
        if not is_told:
            log_event(
                _log, logging.WARNING, "vectors do not fit the device: the processor scans them", reason=str(reason)
            )

    @contextmanager
    def searched(self, store: int) -> Iterator[LoadedStore]:
        """The store, which stays in memory while it is searched."""
        with self._lock:
            loaded = self._stores.setdefault(store, LoadedStore(self._device))
            self._stores.move_to_end(store)
            loaded.searches += 1
        try:
            yield loaded
        finally:
            with self._lock:
                loaded.searches -= 1
                if not loaded.searches:
                    loaded.reserved_bytes = 0
                self._drop(self._limit_bytes)

    def release(self) -> None:
        """Forget the stores that are not searched now; the next search reads its own from disk."""
        with self._lock:
            self._drop(0)

    def _of(self, store: int) -> LoadedStore:
        with self._lock:
            loaded = self._stores.setdefault(store, LoadedStore(self._device))
            self._stores.move_to_end(store)
            return loaded

    def _reserve(self, wanted: LoadedStore, needed_bytes: int) -> bool:
        """Whether a store may take so much; it counts as if it had it until it is searched no more."""
        with self._lock:
            has_room = needed_bytes <= self._limit_bytes and self._drop(self._limit_bytes - needed_bytes, wanted)
            if has_room:
                wanted.reserved_bytes = max(wanted.reserved_bytes, needed_bytes)
            return has_room

    def _drop(self, most_bytes: int, wanted: LoadedStore | None = None) -> bool:
        """Forget stores until those other than one are within a limit, if they can be. Under the lock."""
        others = {number: one for number, one in self._stores.items() if one is not wanted}
        held = sum(max(one.memory_bytes, one.reserved_bytes) for one in others.values())
        for number, one in others.items():
            if held <= most_bytes:
                break
            if not one.searches:
                held -= one.memory_bytes
                del self._stores[number]
        return held <= most_bytes

    def _make_room(self, wanted: LoadedStore, others_bytes: int) -> bool:
        """Forget the stores on the device that were used longest ago until the others hold at most so much of it."""
        with self._lock:
            others = {number: one for number, one in self._stores.items() if one is not wanted}
            held = sum(one.device_bytes for one in others.values())
            for number, one in others.items():
                if held > others_bytes and one.device_bytes and not one.searches:
                    held -= one.device_bytes
                    del self._stores[number]
            return held <= others_bytes

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
            if not pending_chunks(connection, current.store, ids[~is_known]).all():
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
