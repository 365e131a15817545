"""The files of vector stores in the database: their attributes, states and chunks.

Only completed files have chunks: to attach a file again is to remove it first.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from backend.errors import NotFound
from backend.search.filters import effective
from backend.search.limits import (
    SearchLimits,
    attributes_bytes,
    check_bytes,
    check_kept_store,
    check_room_to_index,
    check_waiting_files,
)
from backend.search.records import (
    Attributes,
    ChunkContent,
    FileStatus,
    ListRange,
    Scalar,
    StoredChunk,
    StoreFile,
    VectorStore,
)
from backend.search.sqlite import vector_stores
from backend.search.sqlite.pending_deletes import mark_chunks
from backend.search.sqlite.rows import (
    CHUNK,
    CHUNK_TABLES,
    STORE_FILE,
    STORE_FILE_TABLES,
    listed,
    store_file,
    stored_chunk,
    usage,
)
from backend.search.sqlite.vector_stores import number_of

_SELECT = f"SELECT {STORE_FILE} FROM {STORE_FILE_TABLES}"
_NUMBER = f"SELECT sf.number, sf.store FROM {STORE_FILE_TABLES} WHERE s.id = ? AND f.id = ?"
_CHUNKS_AT_ONCE = 256


def add_store(
    connection: sqlite3.Connection,
    store: VectorStore,
    files: Sequence[StoreFile] = (),
    *,
    limits: SearchLimits | None = None,
) -> None:
    """Add a store with its files. Raises: as `attach`; BadInput for an id that is taken."""
    vector_stores.add(connection, store)
    if limits is not None:
        check_kept_store(usage(connection, store.owner), limits)
    if files:
        attach(connection, files, limits)


def attach(connection: sqlite3.Connection, files: Sequence[StoreFile], limits: SearchLimits | None = None) -> bool:
    """Add files in place of those that are there; whether some were. Raises: NotFound, TooLarge, QuotaExceeded."""
    if limits is None:
        return _attach(connection, files)
    owners = _owners(connection, files)
    for owner in owners:
        check_room_to_index(usage(connection, owner), limits)
    has_replaced = _attach(connection, files)
    for owner in owners:
        now = usage(connection, owner)
        check_waiting_files(now.waiting, len(files), limits)
        check_bytes(now.bytes, limits)
    return has_replaced


def _owners(connection: sqlite3.Connection, files: Sequence[StoreFile]) -> list[str]:
    store_ids = json.dumps(sorted({file.store_id for file in files}))
    rows = connection.execute(
        "SELECT DISTINCT owner FROM stores WHERE id IN (SELECT value FROM json_each(?))", (store_ids,)
    )
    return [owner for (owner,) in rows]


def _attach(connection: sqlite3.Connection, files: Sequence[StoreFile]) -> bool:
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
        write_attributes(connection, number, store, file.attributes, {})
    return has_replaced


def find(connection: sqlite3.Connection, store_id: str, file_id: str) -> StoreFile | None:
    row = connection.execute(f"{_SELECT} WHERE s.id = ? AND f.id = ?", (store_id, file_id)).fetchone()
    return row and store_file(row)


def range_of(
    connection: sqlite3.Connection,
    store_id: str,
    part: ListRange,
    *,
    status: FileStatus | None = None,
    batch_id: str | None = None,
) -> list[StoreFile]:
    store = number_of(connection, store_id)
    if store is None:
        return []
    where, values = ["sf.store = $1"], list[object]([store])
    for column, value in (("status", status), ("batch_id", batch_id)):
        if value is not None:
            values.append(value)
            where.append(f"sf.{column} = ${len(values)}")
    rows = listed(connection, _SELECT, where, values, part=part, keys=("sf.created_s", "f.id"))
    return [store_file(row) for row in rows]


def set_attributes(
    connection: sqlite3.Connection,
    store_id: str,
    file_id: str,
    attributes: Attributes,
    *,
    limits: SearchLimits | None = None,
) -> StoreFile | None:
    """Raises: TooLarge, QuotaExceeded where they are more than before, and too much."""
    row = connection.execute(_NUMBER, (store_id, file_id)).fetchone()
    if row is None:
        return None
    number, store = row
    (before,) = connection.execute("SELECT attributes FROM store_files WHERE number = ?", (number,)).fetchone()
    more_bytes = attributes_bytes(attributes, {}) - attributes_bytes(json.loads(before), {})
    found, owner = connection.execute(
        "UPDATE store_files SET attributes = ?, usage_bytes = max(0, usage_bytes + ?) WHERE number = ? "
        "RETURNING found, (SELECT owner FROM stores WHERE number = store)",
        (json.dumps(dict(attributes)), more_bytes, number),
    ).fetchone()
    if limits is not None and more_bytes > 0:
        check_bytes(usage(connection, owner).bytes, limits)
    write_attributes(connection, number, store, attributes, json.loads(found))
    return find(connection, store_id, file_id)


def write_attributes(
    connection: sqlite3.Connection,
    number: int,
    store: int,
    attributes: Attributes,
    found: Mapping[str, Sequence[Scalar]],
) -> None:
    """Write what filters see of a file, in place of what they saw."""
    connection.execute("DELETE FROM attributes WHERE file = ?", (number,))
    connection.executemany(
        "INSERT INTO attributes (file, store, name, number, text, flag) VALUES (?, ?, ?, ?, ?, ?)",
        ((number, store, *row) for row in effective(attributes, found)),
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


def batch_counts(connection: sqlite3.Connection, store_id: str, batch_id: str) -> dict[FileStatus, int] | None:
    store = number_of(connection, store_id)
    if connection.execute("SELECT 1 FROM batches WHERE store = ? AND id = ?", (store, batch_id)).fetchone() is None:
        return None
    rows = connection.execute(
        "SELECT status, count(*) FROM store_files WHERE store = ? AND batch_id = ? GROUP BY status",
        (store, batch_id),
    )
    return dict(rows.fetchall())


def cancel_batch(connection: sqlite3.Connection, store_id: str, batch_id: str) -> int:
    return connection.execute(
        "UPDATE store_files SET status = 'cancelled', token = NULL, lease_until_s = NULL "
        "WHERE store = ? AND batch_id = ? AND status = 'in_progress'",
        (number_of(connection, store_id), batch_id),
    ).rowcount


def chunks_behind(connection: sqlite3.Connection, store_id: str, file_id: str, position: int) -> list[StoredChunk]:
    """Some chunks of a file in order, those behind a position."""
    rows = connection.execute(
        f"SELECT {CHUNK} FROM {STORE_FILE_TABLES} JOIN chunks c ON c.id BETWEEN sf.first_chunk AND "
        "sf.first_chunk + sf.chunks - 1 WHERE s.id = ? AND f.id = ? AND c.id > sf.first_chunk + ? "
        "ORDER BY c.id LIMIT ?",
        (store_id, file_id, position, _CHUNKS_AT_ONCE),
    ).fetchall()
    return [stored_chunk(row) for row in rows]


def chunks_of(connection: sqlite3.Connection, store_id: str, ids: Collection[int]) -> list[StoredChunk]:
    store = number_of(connection, store_id)
    found: list[Any] = []
    for chunk_id in ids:
        found += connection.execute(
            f"SELECT {CHUNK} FROM {CHUNK_TABLES} WHERE c.id = ? AND sf.store = ?", (chunk_id, store)
        ).fetchall()
    return [stored_chunk(row) for row in found]


def contents_of(connection: sqlite3.Connection, store_id: str, ids: Collection[int]) -> list[ChunkContent]:
    rows = connection.execute(
        "SELECT c.id, f.id, f.sha256, c.start, c.end, c.checksum FROM json_each(?) wanted "
        "JOIN chunks c ON c.id = wanted.value JOIN store_files sf ON sf.number = c.store_file "
        "JOIN files f ON f.number = sf.file WHERE sf.store = ?",
        (json.dumps(list(ids)), number_of(connection, store_id)),
    )
    return [
        ChunkContent(chunk_id, file_id, sha256, start, end, str(checksum))
        for chunk_id, file_id, sha256, start, end, checksum in rows
    ]


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
