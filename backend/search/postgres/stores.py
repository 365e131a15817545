"""Vector stores in PostgreSQL, and the files in them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict
from typing import Any

import asyncpg
import numpy as np

from backend.errors import NotFound, StorageCorrupt
from backend.models.encoder import Vectors
from backend.search.filters import AttributeRow, effective
from backend.search.limits import (
    SearchLimits,
    attributes_bytes,
    check_bytes,
    check_kept_store,
    check_room_to_index,
    check_waiting_files,
)
from backend.search.list_sql import PAST_S, range_query
from backend.search.postgres.connections import PostgresConnections, from_json, to_json
from backend.search.postgres.ranking import CHUNK_COLUMNS, chunk_of
from backend.search.postgres.schema import SCHEMA
from backend.search.records import (
    Attributes,
    Chunking,
    EncoderIdentity,
    FileStatus,
    IndexFailure,
    ListKind,
    ListRange,
    PageSize,
    Position,
    Progress,
    Reembedding,
    StoredChunk,
    StoredUsage,
    StoreFile,
    VectorStore,
)
from backend.search.storage import id_taken

_USAGE = """
SELECT
    (SELECT count(*) FROM files WHERE {who}),
    (SELECT coalesce(sum(size_bytes), 0) FROM files WHERE {who})
        + (SELECT coalesce(sum(usage_bytes), 0) FROM documents WHERE {who})
        + (SELECT coalesce(sum(f.usage_bytes), 0) FROM store_files f JOIN stores s ON s.id = f.store_id WHERE {who}),
    (SELECT coalesce(sum(chunks), 0) FROM stores WHERE {who}),
    (SELECT count(*) FROM stores WHERE {who}),
    (SELECT count(*) FROM store_files f JOIN stores s ON s.id = f.store_id WHERE f.status = 'in_progress' AND {who})
"""
_LOCK = "SELECT pg_advisory_xact_lock(1398035456, hashtext($1))"  # "STOR", so that no other lock of the database is met


async def usage(connection: asyncpg.Connection, owner: str | None) -> StoredUsage:
    """What an owner has stored, with what this transaction has added; None: what all have."""
    arguments = () if owner is None else (owner,)
    row = await connection.fetchrow(_USAGE.format(who="true" if owner is None else "owner = $1"), *arguments)
    assert row is not None
    return StoredUsage(*map(int, row))


async def usage_alone(connection: asyncpg.Connection, owner: str) -> StoredUsage:
    """`usage`; until the transaction ends nobody else gets it for this owner, so that two do not take the last room."""
    await connection.execute(_LOCK, owner)
    return await usage(connection, owner)


_SECONDS_A_DAY = 86_400
_CHUNKS_AT_ONCE = 200
_STORES = """
SELECT s.id, s.owner, s.name, s.description, s.metadata, s.created_s, s.last_active_s, s.expires_after_days,
    s.chunks, (SELECT coalesce(sum(usage_bytes), 0)::bigint FROM store_files WHERE store_id = s.id) AS usage_bytes,
    e.fingerprint, e.name AS encoder_name, e.width,
    n.fingerprint AS next_fingerprint, n.name AS next_name, n.width AS next_width,
    CASE WHEN n.key IS NOT NULL THEN
        (SELECT count(*) FROM vectors v WHERE v.store = s.key AND v.encoder = n.key
            AND v.file NOT IN (SELECT file FROM pending_deletes)) END AS chunks_done,
    (SELECT json_object_agg(status, files)::text FROM (
        SELECT status, count(*) AS files FROM store_files WHERE store_id = s.id GROUP BY status) c) AS counts
FROM stores s LEFT JOIN encoders e ON e.key = s.encoder LEFT JOIN encoders n ON n.key = s.next_encoder
"""
FILE_COLUMNS = (
    "store_id, file_id, name, created_s, status, attributes, found, chunking, batch_id, progress, failure, "
    "usage_bytes, chunks, pages, language"
)
# Everybody locks files of stores first, by key, and their stores then, by key: no two calls wait for each other. What
# is deleted locks its store in a trigger, which is too late where others are locked behind it.
_LOCK_FILES = "SELECT key FROM store_files WHERE store_id = $1 ORDER BY key FOR UPDATE"
_LOCK_REPLACED = """
SELECT key FROM store_files WHERE (store_id, file_id) IN (SELECT * FROM unnest($1::text[], $2::text[]))
ORDER BY key FOR UPDATE
"""
_LOCK_ATTRIBUTES = "SELECT attributes FROM store_files WHERE store_id = $1 AND file_id = $2 FOR UPDATE"
_SET_ATTRIBUTES = f"""
UPDATE store_files SET attributes = $3, usage_bytes = greatest(0, usage_bytes + $4)
WHERE store_id = $1 AND file_id = $2
RETURNING key, {FILE_COLUMNS}, (SELECT owner FROM stores WHERE id = store_id) AS owner
"""
_CREATED: dict[ListKind, str] = {
    "file": "SELECT created_s FROM files WHERE owner = $1 AND id = $2",
    "store": "SELECT created_s FROM stores WHERE owner = $1 AND id = $2",
    "store_file": "SELECT created_s FROM store_files WHERE store_id = $1 AND file_id = $2",
}
_PAST = "SELECT created_s FROM past_positions WHERE kind = $3 AND list = $1 AND id = $2"
_SLICE_ROWS = 1000
# Of one file that no other replica is at; others write between two slices.
_SWEPT_FILE = "SELECT file FROM pending_deletes ORDER BY file LIMIT 1 FOR UPDATE SKIP LOCKED"
_SWEEP = "DELETE FROM {0} WHERE ctid = ANY(ARRAY(SELECT ctid FROM {0} WHERE file = $1 LIMIT $2))"
LOCK_STORES = "SELECT key FROM stores WHERE id = ANY($1::text[]) ORDER BY key FOR NO KEY UPDATE"


class PostgresStores:
    def __init__(self, postgres: PostgresConnections) -> None:
        self._postgres = postgres

    async def add_store(
        self, store: VectorStore, files: Sequence[StoreFile] = (), *, limits: SearchLimits | None = None
    ) -> None:
        """Add a store with its files, all of it or nothing. Raises: BadInput for an id that is taken; as `attach`."""
        query = (
            "INSERT INTO stores (id, owner, name, description, metadata, created_s, last_active_s, "
            "expires_after_days, encoder) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) "
            "ON CONFLICT DO NOTHING RETURNING true"
        )
        async with self._postgres.transaction() as connection:
            is_added = await connection.fetchval(
                query,
                store.id,
                store.owner,
                store.name,
                store.description,
                to_json(store.metadata),
                store.created_s,
                store.last_active_s,
                store.expires_after_days,
                await encoder_key(connection, store.encoder) if store.encoder else None,
            )
            if not is_added:
                raise id_taken("vector store", store.id)
            if limits is not None:
                check_kept_store(await usage_alone(connection, store.owner), limits)
            if files:
                await attach(connection, files, limits)

    async def store(self, owner: str, store_id: str) -> VectorStore | None:
        row = await self._postgres.fetchrow(_STORES + "WHERE s.id = $1 AND s.owner = $2", store_id, owner)
        return _store_of(row) if row else None

    async def stores(self, owner: str, part: ListRange) -> list[VectorStore]:
        arguments: list[Any] = [owner]
        query, flipped = range_query(
            "SELECT id FROM stores", ["owner = $1"], arguments, part=part, keys=("created_s", "id")
        )
        async with self._postgres.connection() as connection:
            ids = [row["id"] for row in await connection.fetch(query, *arguments)]
            rows = {row["id"]: _store_of(row) for row in await connection.fetch(_STORES + "WHERE s.id = ANY($1)", ids)}
        found = [rows[store_id] for store_id in ids if store_id in rows]
        return found[::-1] if flipped else found

    async def update_store(self, store: VectorStore) -> bool:
        updated = await self._postgres.fetchval(
            "UPDATE stores SET name = $2, description = $3, metadata = $4, expires_after_days = $5, last_active_s = $6 "
            "WHERE id = $1 RETURNING true",
            store.id,
            store.name,
            store.description,
            to_json(store.metadata),
            store.expires_after_days,
            store.last_active_s,
        )
        return bool(updated)

    async def touch_store(self, store_id: str, now_s: float) -> None:
        """Write the last activity alone, where it is later than the one that is kept."""
        query = "UPDATE stores SET last_active_s = $2 WHERE id = $1 AND last_active_s < $2"
        await self._postgres.fetchval(query, store_id, now_s)

    async def delete_store(self, owner: str, store_id: str) -> bool:
        async with self._postgres.transaction() as connection:
            query = "SELECT count(*) FROM stores WHERE id = $1 AND owner = $2"
            if not await connection.fetchval(query, store_id, owner):
                return False
            await connection.execute(_LOCK_FILES, store_id)  # before the store, as everybody does
            return bool(await connection.fetchval("DELETE FROM stores WHERE id = $1 RETURNING true", store_id))

    async def expired_stores(self, now_s: float) -> list[VectorStore]:
        query = f"WHERE s.last_active_s + s.expires_after_days * {_SECONDS_A_DAY}::float8 <= $1 ORDER BY s.id"
        return [_store_of(row) for row in await self._postgres.fetch(_STORES + query, now_s)]

    async def attach(self, files: Sequence[StoreFile], *, limits: SearchLimits | None = None) -> None:
        """Add files to their stores, all or none. Raises: NotFound where a store or a file is gone."""
        async with self._postgres.transaction() as connection:
            await attach(connection, files, limits)

    async def file_vectors(self, store_id: str, file_id: str) -> Vectors:
        """Shape: (chunks, width) float32 of the store's encoder. Raises: StorageCorrupt where a chunk has none."""
        rows = await self._postgres.fetch(
            "SELECT v.vector FROM stores s JOIN store_files f ON f.store_id = s.id JOIN chunks c ON c.file = f.key "
            "LEFT JOIN vectors v ON v.chunk = c.id AND v.encoder = s.encoder WHERE s.id = $1 AND f.file_id = $2 "
            "ORDER BY c.index",
            store_id,
            file_id,
        )
        if any(row[0] is None for row in rows):
            raise StorageCorrupt(
                f"file {file_id} of vector store {store_id}: a chunk has no vector. Re-embed the store, or restore a "
                "backup"
            )
        return np.stack([row[0] for row in rows]) if rows else np.zeros((0, 0), np.float32)

    async def store_file(self, store_id: str, file_id: str) -> StoreFile | None:
        query = f"SELECT {FILE_COLUMNS} FROM store_files WHERE store_id = $1 AND file_id = $2"
        row = await self._postgres.fetchrow(query, store_id, file_id)
        return file_of(row) if row else None

    async def store_files(
        self, store_id: str, part: ListRange, *, status: FileStatus | None = None, batch_id: str | None = None
    ) -> list[StoreFile]:
        where, arguments = ["store_id = $1"], list[Any]([store_id])
        for column, value in (("status", status), ("batch_id", batch_id)):
            if value is not None:
                arguments.append(value)
                where.append(f"{column} = ${len(arguments)}")
        select = f"SELECT {FILE_COLUMNS} FROM store_files"
        query, flipped = range_query(select, where, arguments, part=part, keys=("created_s", "file_id"))
        rows = [file_of(row) for row in await self._postgres.fetch(query, *arguments)]
        return rows[::-1] if flipped else rows

    async def set_attributes(
        self, store_id: str, file_id: str, attributes: Attributes, *, limits: SearchLimits | None = None
    ) -> StoreFile | None:
        async with self._postgres.transaction() as connection:
            before = await connection.fetchval(_LOCK_ATTRIBUTES, store_id, file_id)
            if before is None:
                return None
            more_bytes = attributes_bytes(attributes, {}) - attributes_bytes(from_json(before), {})
            row = await connection.fetchrow(_SET_ATTRIBUTES, store_id, file_id, to_json(dict(attributes)), more_bytes)
            if limits is not None and more_bytes > 0:
                check_bytes((await usage_alone(connection, row["owner"])).bytes, limits)
            file = file_of(row)
            await write_attributes(connection, row["key"], file)
            return file

    async def detach(self, store_id: str, file_id: str) -> bool:
        query = "DELETE FROM store_files WHERE store_id = $1 AND file_id = $2 RETURNING true"
        return bool(await self._postgres.fetchval(query, store_id, file_id))

    async def batch_counts(self, store_id: str, batch_id: str) -> dict[FileStatus, int] | None:
        known = "SELECT count(*) FROM batches WHERE store_id = $1 AND id = $2"
        if not await self._postgres.fetchval(known, store_id, batch_id):
            return None
        query = "SELECT status, count(*) FROM store_files WHERE store_id = $1 AND batch_id = $2 GROUP BY status"
        return {row[0]: row[1] for row in await self._postgres.fetch(query, store_id, batch_id)}

    async def cancel_batch(self, store_id: str, batch_id: str) -> int:
        rows = await self._postgres.fetch(
            "UPDATE store_files SET status = 'cancelled', claim_token = NULL, claimed_until = NULL "
            "WHERE store_id = $1 AND batch_id = $2 AND status = 'in_progress' RETURNING key",
            store_id,
            batch_id,
        )
        return len(rows)

    async def position(self, kind: ListKind, list_id: str, row_id: str) -> Position | None:
        query = f"{_CREATED[kind]} UNION ALL {_PAST} LIMIT 1"
        created_s = await self._postgres.fetchval(query, list_id, row_id, kind)
        return None if created_s is None else Position(created_s, row_id)

    async def sweep(self) -> bool:
        """Remove a slice of what was deleted; False where nothing is left."""
        async with self._postgres.transaction() as connection:
            file = await connection.fetchval(_SWEPT_FILE)
            if file is None:
                await connection.execute(
                    f"DELETE FROM past_positions WHERE deleted_at < clock_timestamp() - interval '{PAST_S} seconds'"
                )
                return False
            for table in ("chunks", "vectors", "postings"):
                if await connection.execute(_SWEEP.format(table), file, _SLICE_ROWS) == f"DELETE {_SLICE_ROWS}":
                    return True
            await connection.execute("DELETE FROM pending_deletes WHERE file = $1", file)
            return True

    async def file_chunks(self, store_id: str, file_id: str) -> AsyncIterator[StoredChunk]:
        """All chunks of a file in order. Holds no connection between two of its queries."""
        query = (
            f"SELECT {CHUNK_COLUMNS} FROM chunks c JOIN store_files f ON f.key = c.file "
            f"WHERE f.store_id = $1 AND f.file_id = $2 AND c.index > $3 ORDER BY c.index LIMIT {_CHUNKS_AT_ONCE}"
        )
        last = -1
        while rows := await self._postgres.fetch(query, store_id, file_id, last):
            for row in rows:
                yield chunk_of(row)
            last = rows[-1]["index"]
            if len(rows) < _CHUNKS_AT_ONCE:
                return


async def attach(
    connection: asyncpg.Connection, files: Sequence[StoreFile], limits: SearchLimits | None = None
) -> None:
    """Add files to their stores, to be indexed, in place of rows that are there.

    Raises: NotFound, TooLarge, QuotaExceeded.
    """
    if limits is None:
        await _attach(connection, files)
        return
    store_ids = list({file.store_id for file in files})
    rows = await connection.fetch("SELECT DISTINCT owner FROM stores WHERE id = ANY($1) ORDER BY owner", store_ids)
    for (owner,) in rows:
        check_room_to_index(await usage_alone(connection, owner), limits)
    await _attach(connection, files)
    for (owner,) in rows:
        now = await usage(connection, owner)
        check_waiting_files(now.waiting, len(files), limits)
        check_bytes(now.bytes, limits)


async def _attach(connection: asyncpg.Connection, files: Sequence[StoreFile]) -> None:
    by_key = {(file.store_id, file.file_id): file for file in files}
    ordered = [by_key[key] for key in sorted(by_key)]
    if ordered and await connection.fetch(_LOCK_REPLACED, *map(list, zip(*sorted(by_key), strict=True))):
        await connection.execute(LOCK_STORES, sorted({file.store_id for file in ordered}))
    try:
        await connection.executemany(
            "DELETE FROM store_files WHERE store_id = $1 AND file_id = $2",
            [(file.store_id, file.file_id) for file in ordered],
        )
        for file in ordered:
            await _insert(connection, file)
    except asyncpg.ForeignKeyViolationError as error:
        raise NotFound("vector store: the store, or a file to be added, has been deleted meanwhile") from error


async def encoder_key(connection: asyncpg.Connection, encoder: EncoderIdentity) -> int:
    """The number of an encoder, given on its first use."""
    insert = "INSERT INTO encoders (fingerprint, name, width) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING RETURNING key"
    select = "SELECT key FROM encoders WHERE fingerprint = $1"
    key = await connection.fetchval(select, encoder.fingerprint)
    if key is None:
        key = await connection.fetchval(insert, encoder.fingerprint, encoder.name, encoder.width)
    if key is None:  # another replica has just inserted it
        key = await connection.fetchval(select, encoder.fingerprint)
    return int(key)


async def write_attributes(connection: asyncpg.Connection, key: int, file: StoreFile) -> None:
    """Write the rows that filters look at, in place of earlier ones."""
    store = await connection.fetchval("SELECT key FROM stores WHERE id = $1", file.store_id)
    await connection.execute("DELETE FROM attributes WHERE file = $1", key)
    await connection.copy_records_to_table(
        "attributes",
        schema_name=SCHEMA,
        columns=("store", "file", *AttributeRow._fields),
        records=((store, key, *row) for row in effective(file.attributes, file.found)),
    )


def file_of(row: asyncpg.Record) -> StoreFile:
    failure = row["failure"]
    return StoreFile(
        store_id=row["store_id"],
        file_id=row["file_id"],
        name=row["name"],
        created_s=row["created_s"],
        status=row["status"],
        attributes=from_json(row["attributes"]),
        found=from_json(row["found"]),
        chunking=Chunking(**from_json(row["chunking"])),
        batch_id=row["batch_id"],
        progress=Progress(**from_json(row["progress"])),
        failure=None if failure is None else IndexFailure(**from_json(failure)),
        usage_bytes=row["usage_bytes"],
        chunks=row["chunks"],
        pages=tuple(PageSize(*page) for page in from_json(row["pages"])),
        language=row["language"],
    )


async def _insert(connection: asyncpg.Connection, file: StoreFile) -> None:
    key = await connection.fetchval(
        "INSERT INTO store_files (store_id, file_id, name, created_s, status, attributes, chunking, batch_id, "
        "progress, usage_bytes) VALUES ($1, $2, $3, $4, 'in_progress', $5, $6, $7, $8, $9) RETURNING key",
        file.store_id,
        file.file_id,
        file.name,
        file.created_s,
        to_json(dict(file.attributes)),
        to_json(asdict(file.chunking)),
        file.batch_id,
        to_json(asdict(Progress())),
        attributes_bytes(file.attributes, {}),
    )
    if file.batch_id is not None:
        add = "INSERT INTO batches VALUES ($1, $2) ON CONFLICT DO NOTHING"
        await connection.execute(add, file.store_id, file.batch_id)
    await write_attributes(connection, key, file)


def _store_of(row: asyncpg.Record) -> VectorStore:
    encoder = row["fingerprint"] and EncoderIdentity(row["fingerprint"], row["encoder_name"], row["width"])
    reembedding = None
    if row["next_fingerprint"]:
        following = EncoderIdentity(row["next_fingerprint"], row["next_name"], row["next_width"])
        reembedding = Reembedding(following, row["chunks_done"], row["chunks"])
    return VectorStore(
        id=row["id"],
        owner=row["owner"],
        name=row["name"],
        created_s=row["created_s"],
        last_active_s=row["last_active_s"],
        description=row["description"],
        metadata=from_json(row["metadata"]),
        expires_after_days=row["expires_after_days"],
        encoder=encoder or None,
        reembedding=reembedding,
        counts=from_json(row["counts"] or "{}"),
        usage_bytes=row["usage_bytes"],
        chunks=row["chunks"],
    )
