"""Vector stores in PostgreSQL, and the files in them."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import asdict

import asyncpg
import numpy as np
import orjson

from backend.errors import NotFound, StorageCorrupt
from backend.models.encoder import Vectors
from backend.search.document_chunks import unpack_words
from backend.search.document_sql import PAST_S, Row
from backend.search.filters import AttributeRow, effective
from backend.search.limits import attributes_bytes
from backend.search.postgres.connections import PostgresConnections
from backend.search.postgres.schema import SCHEMA
from backend.search.records import Chunking, IndexFailure, Progress, StoredChunk, StoreFile
from backend.search.storage import SearchStorage
from backend.search.tables import FileWork, TableSql, to_json

FILE_COLUMNS = (
    "store_id, file_id, name, created_s, status, attributes, found, batch_id, usage_bytes, chunks, pages, language, "
    "chunking, progress, failure"
)


def work_of(columns: Row) -> FileWork:
    failure = None if columns[2] is None else IndexFailure(**orjson.loads(columns[2]))
    return Chunking(**orjson.loads(columns[0])), Progress(**orjson.loads(columns[1])), failure


def chunk_of(row: Row) -> StoredChunk:
    """Raises: StorageCorrupt."""
    chunk_id, file_id, index, start, end, text, tokens, packed = row
    try:
        words = unpack_words(packed)
    except (ValueError, zlib.error) as error:
        raise StorageCorrupt(
            f"chunk {chunk_id} of file {file_id}: its words in PostgreSQL cannot be read. Add the file to its vector "
            "store anew, or restore a backup"
        ) from error
    return StoredChunk(chunk_id, file_id, index, start, end, text, tokens, words)


SQL = TableSql(
    stores="""SELECT s.id, s.owner, s.name, s.created_s, s.last_active_s, s.description, s.metadata,
        s.expires_after_days, e.fingerprint, e.name, e.width, n.fingerprint, n.name, n.width,
        CASE WHEN n.key IS NOT NULL THEN
            (SELECT count(*) FROM vectors v WHERE v.store = s.key AND v.encoder = n.key
                AND v.file NOT IN (SELECT file FROM pending_deletes)) END,
        (SELECT json_agg(json_build_array(status, files, bytes, chunks))::text FROM (
            SELECT status, count(*) AS files, sum(usage_bytes) AS bytes, sum(chunks) AS chunks
            FROM store_files WHERE store_id = s.id GROUP BY status) c)
    FROM stores s LEFT JOIN encoders e ON e.key = s.encoder LEFT JOIN encoders n ON n.key = s.next_encoder""",
    store_files=f"SELECT {FILE_COLUMNS} FROM store_files sf",
    work_of=work_of,
    key="key",
    of_store="store_id = $1",
    of_file="file_id = {}",
    file_id="file_id",
    indexed="indexed_at",
    no_claim="claim_token = NULL, claimed_until = NULL",
    usage="""SELECT
        (SELECT count(*) FROM files WHERE {who}),
        (SELECT coalesce(sum(size_bytes), 0) FROM files WHERE {who})
            + (SELECT coalesce(sum(usage_bytes), 0) FROM documents WHERE {who})
            + (SELECT coalesce(sum(f.usage_bytes), 0) FROM store_files f JOIN stores s ON s.id = f.store_id
               WHERE {who}),
        (SELECT coalesce(sum(chunks), 0) FROM stores WHERE {who}),
        (SELECT count(*) FROM stores WHERE {who}),
        (SELECT count(*) FROM store_files f JOIN stores s ON s.id = f.store_id
         WHERE f.status = 'in_progress' AND {who})""",
    waiting="SELECT count(*) FROM store_files WHERE status = 'in_progress'",
    chunks="""SELECT c.id, sf.file_id, c.index, c.start_char, c.end_char, c.text, c.tokens, c.words
    FROM chunks c JOIN store_files sf ON sf.key = c.file""",
    chunk_of=chunk_of,
    chunk_contents="""SELECT c.id, sf.file_id, f.sha256, c.start_char, c.end_char, md5(c.text)
    FROM chunks c JOIN store_files sf ON sf.key = c.file JOIN files f ON f.id = sf.file_id""",
    behind="c.index > $3",
    lock_row=" FOR UPDATE",
    lock_owner="SELECT pg_advisory_xact_lock(1398035456, hashtext($1))",  # "STOR": no other lock of the database is met
)
# Everybody locks files of stores first, by key, and their stores then, by key: no two calls wait for each other. What
# is deleted locks its store in a trigger, which is too late where others are locked behind it.
_LOCK_FILES = "SELECT key FROM store_files WHERE store_id = $1 ORDER BY key FOR UPDATE"
_LOCK_REPLACED = """
SELECT key FROM store_files WHERE (store_id, file_id) IN (SELECT * FROM unnest($1::text[], $2::text[]))
ORDER BY key FOR UPDATE
"""
SLICE_ROWS = 1000
# Of one file that no other replica is at; others write between two slices.
_SWEPT_FILE = "SELECT file FROM pending_deletes ORDER BY file LIMIT 1 FOR UPDATE SKIP LOCKED"
_SWEEP = "DELETE FROM {0} WHERE ctid = ANY(ARRAY(SELECT ctid FROM {0} WHERE file = $1 LIMIT $2))"
LOCK_STORES = "SELECT key FROM stores WHERE id = ANY($1::text[]) ORDER BY key FOR NO KEY UPDATE"


class PostgresStores(SearchStorage):
    _postgres: PostgresConnections

    async def delete_store(self, owner: str, store_id: str) -> bool:
        async with self._postgres.transaction() as connection:
            query = "SELECT count(*) FROM stores WHERE id = $1 AND owner = $2"
            if not await connection.fetchval(query, store_id, owner):
                return False
            await connection.execute(_LOCK_FILES, store_id)  # before the store, as everybody does
            is_deleted = bool(await connection.fetchval("DELETE FROM stores WHERE id = $1 RETURNING true", store_id))
        self._sweeper.wake()
        return is_deleted

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

    async def detach(self, store_id: str, file_id: str) -> bool:
        query = "DELETE FROM store_files WHERE store_id = $1 AND file_id = $2 RETURNING true"
        is_removed = bool(await self._postgres.fetchval(query, store_id, file_id))
        self._sweeper.wake()
        return is_removed

    async def _sweep(self) -> bool:
        async with self._postgres.transaction() as connection:
            file = await connection.fetchval(_SWEPT_FILE)
            if file is None:
                await connection.execute(
                    f"DELETE FROM past_positions WHERE deleted_at < clock_timestamp() - interval '{PAST_S} seconds'"
                )
                return False
            for table in ("chunks", "vectors", "postings"):
                if await connection.execute(_SWEEP.format(table), file, SLICE_ROWS) == f"DELETE {SLICE_ROWS}":
                    return True
            await connection.execute("DELETE FROM pending_deletes WHERE file = $1", file)
            return True

    async def _place_files(self, rows: asyncpg.Connection, files: Sequence[StoreFile]) -> bool:
        """Add files to their stores in place of rows that are there; whether some were. Raises: NotFound."""
        by_key = {(file.store_id, file.file_id): file for file in files}
        ordered = [by_key[key] for key in sorted(by_key)]
        replaced = ordered and await rows.fetch(_LOCK_REPLACED, *map(list, zip(*sorted(by_key), strict=True)))
        if replaced:
            await rows.execute(LOCK_STORES, sorted({file.store_id for file in ordered}))
        try:
            await rows.executemany(
                "DELETE FROM store_files WHERE store_id = $1 AND file_id = $2",
                [(file.store_id, file.file_id) for file in ordered],
            )
            for file in ordered:
                await self._insert(rows, file)
        except asyncpg.ForeignKeyViolationError as error:
            raise NotFound("vector store: the store, or a file to be added, has been deleted meanwhile") from error
        return bool(replaced)

    async def _write_attributes(self, rows: asyncpg.Connection, key: int, file: StoreFile) -> None:
        """Write the rows that filters look at, in place of earlier ones."""
        store = await rows.fetchval("SELECT key FROM stores WHERE id = $1", file.store_id)
        await rows.execute("DELETE FROM attributes WHERE file = $1", key)
        await rows.copy_records_to_table(
            "attributes",
            schema_name=SCHEMA,
            columns=("store", "file", *AttributeRow._fields),
            records=((store, key, *row) for row in effective(file.attributes, file.found)),
        )

    async def _insert(self, rows: asyncpg.Connection, file: StoreFile) -> None:
        key = await rows.fetchval(
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
            await rows.execute(add, file.store_id, file.batch_id)
        await self._write_attributes(rows, key, file)
