"""Files in the database, and the files of vector stores: their attributes, states and chunks.

Only completed files have chunks: to attach a file again is to remove it first.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence

from backend.errors import NotFound
from backend.search.filters import effective
from backend.search.limits import attributes_bytes
from backend.search.records import Attributes, Scalar, StoreFile
from backend.search.sqlite.pending_deletes import mark_chunks
from backend.search.sqlite.schema import STORE_FILE_TABLES
from backend.search.sqlite.vector_stores import number_of

_NUMBER = f"SELECT sf.number, sf.store FROM {STORE_FILE_TABLES} WHERE s.id = ? AND f.id = ?"


def attach(connection: sqlite3.Connection, files: Sequence[StoreFile]) -> bool:
    """Add files in place of those that are there; whether some were. Raises: NotFound."""
    has_replaced = False
    for file in files:
        store = number_of(connection, file.store_id)
        row = connection.execute("SELECT number FROM files WHERE id = ?", (file.file_id,)).fetchone()
        if store is None:
            raise NotFound(f"vector store '{file.store_id}' does not exist any more")
        if row is None:
            raise NotFound(f"file '{file.file_id}' does not exist any more")
        has_replaced |= detach(connection, file.store_id, file.file_id)
        (number,) = connection.execute(
            "INSERT INTO store_files (store, file, created_s, status, attributes, found, max_tokens, overlap_tokens, "
            "is_auto, batch_id, stage, done, total, usage_bytes) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?) RETURNING number",
            (
                store,
                row[0],
                file.created_s,
                file.status,
                json.dumps(dict(file.attributes)),
                "{}",
                file.chunking.max_tokens,
                file.chunking.overlap_tokens,
                file.chunking.is_auto,
                file.batch_id,
                file.progress.stage,
                file.progress.done,
                file.progress.total,
                attributes_bytes(file.attributes, {}),
            ),
        ).fetchone()
        if file.batch_id is not None:
            connection.execute("INSERT OR IGNORE INTO batches (store, id) VALUES (?, ?)", (store, file.batch_id))
        write_attributes(connection, number, file.attributes, {})
    return has_replaced


def write_attributes(
    connection: sqlite3.Connection, number: int, attributes: Attributes, found: Mapping[str, Sequence[Scalar]]
) -> None:
    """Write what filters see of a file, in place of what they saw."""
    connection.execute("DELETE FROM attributes WHERE file = ?", (number,))
    connection.executemany(
        "INSERT INTO attributes (file, store, name, number, text, flag) "
        "VALUES (?1, (SELECT store FROM store_files WHERE number = ?1), ?2, ?3, ?4, ?5)",
        ((number, *row) for row in effective(attributes, found)),
    )


def _remove_chunks(connection: sqlite3.Connection, number: int) -> None:
    """Mark the chunks of a file of a store for deletion; a store that has no more of them has no encoder either."""
    store, first, chunks = connection.execute(
        "SELECT store, first_chunk, chunks FROM store_files WHERE number = ?", (number,)
    ).fetchone()
    if not chunks:
        return
    last = first + chunks - 1
    mark_chunks(connection, store, first, last)
    connection.execute(
        "UPDATE store_files SET first_chunk = NULL, chunks = 0, lengths = NULL, usage_bytes = 0 WHERE number = ?",
        (number,),
    )
    connection.execute(
        "UPDATE stores SET removals = removals + 1, embedded = embedded - (SELECT count(*) FROM vectors v "
        "WHERE v.store = ?1 AND v.encoder = stores.next_encoder AND v.chunk BETWEEN ?2 AND ?3), "
        "encoder = CASE WHEN next_encoder IS NOT NULL "
        "OR EXISTS (SELECT 1 FROM store_files WHERE store = ?1 AND chunks > 0) THEN encoder END WHERE number = ?1",
        (store, first, last),
    )


def detach(connection: sqlite3.Connection, store_id: str, file_id: str) -> bool:
    row = connection.execute(_NUMBER, (store_id, file_id)).fetchone()
    if row is None:
        return False
    remove(connection, row[0])
    return True


def remove(connection: sqlite3.Connection, number: int) -> None:
    """Take a file out of its store."""
    _remove_chunks(connection, number)
    connection.execute(
        "INSERT OR REPLACE INTO past_positions (kind, list, id, created_s) SELECT 'store_file', s.id, f.id, "
        f"sf.created_s FROM {STORE_FILE_TABLES} WHERE sf.number = ?",
        (number,),
    )
    connection.execute("DELETE FROM store_files WHERE number = ?", (number,))


def checksum(connection: sqlite3.Connection, file_id: str) -> str | None:
    """SHA-256 of the bytes; None: there is no such file."""
    row = connection.execute("SELECT sha256 FROM files WHERE id = ?", (file_id,)).fetchone()
    return row and str(row[0])


def delete_file(connection: sqlite3.Connection, owner: str, file_id: str) -> bool:
    """Its bytes are deleted once this is on the disk (`deleted_files`). False: there was no such file."""
    row = connection.execute("SELECT number FROM files WHERE id = ? AND owner = ?", (file_id, owner)).fetchone()
    if row is None:
        return False
    for (number,) in connection.execute("SELECT number FROM store_files WHERE file = ?", row).fetchall():
        remove(connection, number)
    connection.execute(
        "INSERT OR REPLACE INTO past_positions (kind, list, id, created_s) "
        "SELECT 'file', owner, id, created_s FROM files WHERE number = ?",
        row,
    )
    connection.execute("DELETE FROM files WHERE number = ?", row)
    connection.execute("INSERT OR IGNORE INTO deleted_files (id) VALUES (?)", (file_id,))
    return True


def deleted_files(connection: sqlite3.Connection) -> list[str]:
    """Ids of files without a row whose bytes may still be there."""
    return [file_id for (file_id,) in connection.execute("SELECT id FROM deleted_files")]


def is_deleted(connection: sqlite3.Connection, file_id: str) -> bool:
    return connection.execute("SELECT 1 FROM deleted_files WHERE id = ?", (file_id,)).fetchone() is not None


def forget_deleted(connection: sqlite3.Connection, file_ids: Sequence[str]) -> None:
    connection.executemany("DELETE FROM deleted_files WHERE id = ?", ((file_id,) for file_id in file_ids))


def file_ids(connection: sqlite3.Connection) -> list[str]:
    return [file_id for (file_id,) in connection.execute("SELECT id FROM files")]
