"""The chunks of one store in memory, without their texts: which file each belongs to, and how many terms it has.

Chunk ids only grow, and a file's chunks have ids without a gap; so a change of the store adds rows at the end, or marks
files as removed. A row's index is the chunk's place in every other array of the store.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from backend.errors import TooLarge
from backend.search.filter_sql import Dialect, compile_filter
from backend.search.filters import Filter

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


def allowed_files(connection: sqlite3.Connection, store: int, where: Filter) -> Ints:
    """Numbers of the files with chunks that a filter lets through. Raises: TooLarge."""
    condition = compile_filter(where, _DIALECT, first=1)
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
