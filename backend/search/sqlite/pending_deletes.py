"""What is deleted for everybody and still takes space: marked in one short transaction, then removed in slices.

Between two slices others write. What a crash leaves behind is removed after the next start, or with the next deletion.
The last slices rewrite the postings that name removed chunks: their words are those of deleted documents.
"""

from __future__ import annotations

import sqlite3

import numpy as np
from numpy.typing import NDArray

from backend.search.sqlite import postings

ROWS_AT_ONCE = 1000  # chunks of a slice: some 10 ms of the writer
_FILES_AT_ONCE = 50  # of a deleted store, each with dozens of attributes
_HIDDEN = "\x00"  # before the id of a deleted store, and its owner's name: no caller has such ones


def mark_chunks(connection: sqlite3.Connection, store: int, first: int, last: int) -> None:
    """Chunks of a file that is in no store any more."""
    connection.execute(
        "INSERT INTO pending_deletes (store, first_chunk, last_chunk) VALUES (?, ?, ?)", (store, first, last)
    )


def mark_vectors(connection: sqlite3.Connection, store: int, kept: int) -> None:
    """The vectors of a store by all other encoders than one."""
    connection.execute(
        "INSERT INTO pending_deletes (store, encoder) SELECT ?, number FROM encoders WHERE number <> ?", (store, kept)
    )


def mark_encoder(connection: sqlite3.Connection, store: int, encoder: int) -> None:
    connection.execute("INSERT INTO pending_deletes (store, encoder) VALUES (?, ?)", (store, encoder))


def keep_encoder(connection: sqlite3.Connection, store: int, encoder: int) -> None:
    """Vectors of this encoder are wanted again; those that are left are as good as new ones."""
    connection.execute("DELETE FROM pending_deletes WHERE store = ? AND encoder = ?", (store, encoder))


def hide_store(connection: sqlite3.Connection, store: int) -> None:
    """Nobody finds the store any more, its claims are lost, and its id is free."""
    connection.execute(
        "INSERT OR REPLACE INTO past_positions (kind, list, id, created_s) "
        "SELECT 'store', owner, id, created_s FROM stores WHERE number = ?",
        (store,),
    )
    connection.execute(
        "UPDATE stores SET is_deleted = 1, id = ? || number, owner = ?, encoder = NULL, next_encoder = NULL, "
        "expires_after_days = NULL WHERE number = ?",
        (_HIDDEN, _HIDDEN, store),
    )
    connection.execute(
        "UPDATE store_files SET token = NULL, lease_until_s = NULL WHERE token IS NOT NULL AND store = ?", (store,)
    )


def pending_chunks(connection: sqlite3.Connection, store: int, chunk_ids: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of these chunks are marked. Shapes: (chunks) -> (chunks)."""
    rows = connection.execute(
        "SELECT first_chunk, last_chunk FROM pending_deletes WHERE store = ? AND first_chunk IS NOT NULL", (store,)
    )
    is_pending = np.zeros(len(chunk_ids), np.bool_)
    for first, last in rows:
        is_pending |= (chunk_ids >= first) & (chunk_ids <= last)
    return is_pending


def sweep(connection: sqlite3.Connection) -> bool:
    """Remove a slice; False where nothing was left."""
    row = connection.execute(
        "SELECT number, store, encoder, first_chunk, last_chunk FROM pending_deletes ORDER BY number LIMIT 1"
    ).fetchone()
    if row is not None:
        number, store, encoder, first, last = row
        is_done = (
            _sweep_chunks(connection, store, first, last)
            if encoder is None
            else _sweep_vectors(connection, store, encoder)
        )
        if is_done:
            connection.execute("DELETE FROM pending_deletes WHERE number = ?", (number,))
        elif encoder is None:
            connection.execute(
                "UPDATE pending_deletes SET first_chunk = ? WHERE number = ?", (first + ROWS_AT_ONCE, number)
            )
        return True
    row = connection.execute("SELECT number FROM stores WHERE is_deleted LIMIT 1").fetchone()
    if row is not None:
        _sweep_store(connection, row[0])
        return True
    return postings.rewrite_slice(connection, ROWS_AT_ONCE)


def sweep_postings(connection: sqlite3.Connection, store: int) -> bool:
    """Remove a slice of the postings of a store; False where nothing was left."""
    segment = connection.execute("SELECT number FROM segments WHERE store = ? LIMIT 1", (store,)).fetchone()
    if segment is not None:
        removed = connection.execute(
            "DELETE FROM postings WHERE segment = ?1 AND term IN "
            "(SELECT term FROM postings WHERE segment = ?1 LIMIT ?2)",
            (segment[0], ROWS_AT_ONCE),
        )
        if removed.rowcount < ROWS_AT_ONCE:
            connection.execute("DELETE FROM segments WHERE number = ?", segment)
        return True
    removed = connection.execute(
        "DELETE FROM fresh_terms WHERE rowid IN (SELECT rowid FROM fresh_terms WHERE store = ? LIMIT ?)",
        (store, ROWS_AT_ONCE),
    )
    return removed.rowcount > 0


def _sweep_chunks(connection: sqlite3.Connection, store: int, first: int, last: int) -> bool:
    """Whether these were the last ones."""
    end = min(last, first + ROWS_AT_ONCE - 1)
    connection.execute("DELETE FROM chunks WHERE id BETWEEN ? AND ?", (first, end))
    connection.execute("DELETE FROM fresh_terms WHERE store = ? AND chunk BETWEEN ? AND ?", (store, first, end))
    for (encoder,) in connection.execute("SELECT number FROM encoders").fetchall():
        connection.execute(
            "DELETE FROM vectors WHERE store = ? AND encoder = ? AND chunk BETWEEN ? AND ?",
            (store, encoder, first, end),
        )
    postings.mark_stale(connection, store, first, end)
    return end == last


def _sweep_vectors(connection: sqlite3.Connection, store: int, encoder: int) -> bool:
    removed = connection.execute(
        "DELETE FROM vectors WHERE rowid IN (SELECT rowid FROM vectors WHERE store = ? AND encoder = ? LIMIT ?)",
        (store, encoder, ROWS_AT_ONCE),
    )
    return removed.rowcount < ROWS_AT_ONCE


def _sweep_store(connection: sqlite3.Connection, store: int) -> None:
    files = connection.execute(
        "SELECT number, first_chunk, chunks FROM store_files WHERE store = ? LIMIT ?", (store, _FILES_AT_ONCE)
    ).fetchall()
    for number, first, chunks in files:
        if chunks:
            mark_chunks(connection, store, first, first + chunks - 1)
        connection.execute("DELETE FROM store_files WHERE number = ?", (number,))
    if not files and not sweep_postings(connection, store):
        connection.execute("DELETE FROM stores WHERE number = ?", (store,))
