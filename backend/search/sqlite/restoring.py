"""Files of vector stores with their vectors, read and written as they are: for copies from one storage to another."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from backend.errors import WrongEncoder
from backend.models.encoder import Vectors
from backend.search.records import Claim, IndexedFile, StoreFile
from backend.search.sqlite import indexing, store_files, vector_stores
from backend.search.sqlite.rows import STORE_FILE_TABLES, unpack_vectors


def file_vectors(connection: sqlite3.Connection, store_id: str, file_id: str) -> Vectors:
    """The vectors of a file's chunks in order. Raises: DataError where a chunk has none."""
    row = connection.execute(
        "SELECT sf.store, sf.first_chunk, sf.chunks, s.encoder, e.width "
        f"FROM {STORE_FILE_TABLES} JOIN encoders e ON e.number = s.encoder "
        "WHERE s.id = ? AND f.id = ? AND sf.chunks > 0",
        (store_id, file_id),
    ).fetchone()
    if row is None:
        return np.zeros((0, 0), np.float32)
    store, first, chunks, encoder, width = row
    rows = connection.execute(
        "SELECT vector FROM vectors WHERE store = ? AND encoder = ? AND chunk BETWEEN ? AND ? ORDER BY chunk",
        (store, encoder, first, first + chunks - 1),
    ).fetchall()
    if len(rows) != chunks:
        raise sqlite3.DataError(f"of {chunks} chunks of file {file_id} {len(rows)} have a vector")
    return unpack_vectors([packed for (packed,) in rows], width)


def restore(
    connection: sqlite3.Connection,
    file: StoreFile,
    indexed: IndexedFile,
    packed: Sequence[indexing.PackedChunk],
    now_s: float,
) -> None:
    """Attach and finish a file in one transaction."""
    row = connection.execute("SELECT encoder, owner FROM stores WHERE id = ?", (file.store_id,)).fetchone()
    number = vector_stores.encoder_number(connection, indexed.encoder)
    if row is not None and row[0] not in (None, number):
        raise WrongEncoder(
            f"vector store '{file.store_id}': its vectors are another encoder's than those to restore "
            f"({indexed.encoder.name}); restore into another store"
        )
    waiting = replace(file, status="in_progress")
    store_files.attach(connection, [waiting])
    token = secrets.token_hex(16)
    connection.execute(
        "UPDATE store_files SET token = ? WHERE store = (SELECT number FROM stores WHERE id = ?) "
        "AND file = (SELECT number FROM files WHERE id = ?)",
        (token, file.store_id, file.file_id),
    )
    claim = Claim(waiting, row[1], token, 1)
    is_stored = indexing.finish(connection, claim, indexed, packed, now_s)
    assert is_stored  # the claim is of this transaction
