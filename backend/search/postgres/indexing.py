"""Claims on files that wait for indexing, what indexing stores, and changes of the encoder, in PostgreSQL."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import asyncpg

from backend.errors import WrongEncoder
from backend.models.encoder import Vectors
from backend.search.document_chunks import pack_words
from backend.search.keywords import TERMS_VERSION, text_terms
from backend.search.limits import attributes_bytes, postings_bytes
from backend.search.postgres.connections import PostgresConnections
from backend.search.postgres.ranking import pack_lengths, write_postings
from backend.search.postgres.schema import SCHEMA
from backend.search.postgres.stores import FILE_COLUMNS, work_of
from backend.search.records import EncoderIdentity, IndexClaim, IndexedFile, IndexFailure, NewChunk, Progress, StoreFile
from backend.search.storage import SearchStorage
from backend.search.tables import encoder_key, store_file, to_json

# By the server's clock, which all replicas share.
_UNTIL = "clock_timestamp() + $2 * interval '1 second'"
_CLAIM_LOCK = 0x46494E41_434C4149  # of pg_advisory_xact_lock: each claim sees who runs what by then
_FREE = "f.status = 'in_progress' AND (f.claimed_until IS NULL OR f.claimed_until < clock_timestamp())"
# The first files of each store that has some waiting; stores are found by a step through the index each, not by reading
# all that waits. Owners take turns: fewest running files first, then the longest without a claim. Some files of each
# store, as the first may be locked by who removes it.
_CLAIM = f"""
WITH RECURSIVE waiting (store_id) AS (
    (SELECT min(store_id) FROM store_files WHERE status = 'in_progress')
    UNION ALL
    SELECT (SELECT min(f.store_id) FROM store_files f WHERE f.status = 'in_progress' AND f.store_id > w.store_id)
    FROM waiting w WHERE w.store_id IS NOT NULL
), running AS (
    SELECT s.owner, count(*) AS files FROM store_files f JOIN stores s ON s.id = f.store_id
    WHERE f.status = 'in_progress' AND f.claimed_until >= clock_timestamp() GROUP BY s.owner
), candidates AS (
    SELECT f.key, s.owner FROM waiting w JOIN stores s ON s.id = w.store_id
    CROSS JOIN LATERAL (
        SELECT f.key FROM store_files f WHERE f.store_id = w.store_id AND {_FREE} ORDER BY f.created_s, f.key LIMIT 4
    ) f
    WHERE s.encoder IS NULL
        OR (SELECT key FROM encoders WHERE fingerprint = $1) IN (s.encoder, coalesce(s.next_encoder, s.encoder))
), next AS (
    SELECT f.key FROM candidates c JOIN store_files f ON f.key = c.key
    LEFT JOIN running r ON r.owner = c.owner LEFT JOIN owners o ON o.owner = c.owner
    WHERE {_FREE}
    ORDER BY coalesce(r.files, 0), o.claimed_at NULLS FIRST, f.created_s, f.key LIMIT 1 FOR UPDATE OF f SKIP LOCKED
)
UPDATE store_files SET claim_token = $3, claimed_until = {_UNTIL}, attempts = attempts + 1
WHERE key = (SELECT key FROM next)
RETURNING {FILE_COLUMNS}, attempts, (SELECT owner FROM stores WHERE id = store_id) AS owner,
    (SELECT size_bytes FROM files WHERE id = file_id) AS bytes
"""
_COUNT_CLAIM = """
INSERT INTO owners VALUES ($1, clock_timestamp()) ON CONFLICT (owner) DO UPDATE SET claimed_at = excluded.claimed_at
"""
_OURS = "store_id = $1 AND file_id = $2 AND claim_token = $3 AND status = 'in_progress'"
# Chunk ids are the file's key, which is never used again, and the index: no counter that replicas would wait for.
_CHUNK_BITS = 20
# File by file in the order of their keys, as the sort is of one file at a time: it ends with the batch.
UNEMBEDDED = f"""
SELECT c.id, c.text
FROM (
    SELECT key FROM store_files WHERE store_id = $1 AND chunks > 0 AND key >= $4::bigint >> {_CHUNK_BITS} ORDER BY key
) f CROSS JOIN LATERAL (
    SELECT c.id, c.text FROM chunks c WHERE c.file = f.key AND c.id > $4 AND NOT EXISTS (
        SELECT FROM vectors v
        WHERE v.chunk = c.id AND v.encoder = (SELECT key FROM encoders WHERE fingerprint = $2))
    ORDER BY c.index LIMIT $3
) c
ORDER BY f.key, c.id LIMIT $3
"""


class PostgresIndexing(SearchStorage):
    _postgres: PostgresConnections

    async def claim(self, encoder: EncoderIdentity, lease_s: float) -> IndexClaim | None:
        token = uuid.uuid4().hex
        async with self._postgres.transaction() as connection:
            await connection.execute("SELECT pg_advisory_xact_lock($1)", _CLAIM_LOCK)
            row = await connection.fetchrow(_CLAIM, encoder.fingerprint, lease_s, token)
            if row is not None:
                await connection.execute(_COUNT_CLAIM, row["owner"])
        return IndexClaim(store_file(row, work_of), row["owner"], token, row["attempts"], row["bytes"]) if row else None

    async def renew(self, claim: IndexClaim, progress: Progress, lease_s: float) -> bool:
        until = _UNTIL.replace("$2", "$5")
        renewed = await self._postgres.fetchval(
            f"UPDATE store_files SET progress = $4, claimed_until = {until} WHERE {_OURS} RETURNING true",
            *_ours(claim),
            to_json(asdict(progress)),
            lease_s,
        )
        return bool(renewed)

    async def finish(self, claim: IndexClaim, indexed: IndexedFile) -> bool:
        """Store what was indexed, in one transaction. Terms are computed in a thread before it begins."""
        terms = await asyncio.to_thread(_terms, indexed)
        async with self._postgres.transaction() as connection:
            return await self._finish(connection, claim, indexed, terms)

    async def restore(self, file: StoreFile, indexed: IndexedFile) -> None:
        """Attach, claim and finish in one transaction."""
        terms = await asyncio.to_thread(_terms, indexed)
        claim = IndexClaim(file, "", uuid.uuid4().hex, attempts=1)
        async with self._postgres.transaction() as connection:
            await self._place_files(connection, [file])
            take = "UPDATE store_files SET claim_token = $3 WHERE store_id = $1 AND file_id = $2"
            await connection.execute(take, *_ours(claim))
            if not await self._finish(connection, claim, indexed, terms):
                raise WrongEncoder(f"vector store {file.store_id}: its vectors are of another model")

    async def _finish(
        self, connection: asyncpg.Connection, claim: IndexClaim, indexed: IndexedFile, terms: Sequence[Counter[str]]
    ) -> bool:
        """Store what was indexed. False: the claim is lost, or the store has got another encoder meanwhile."""
        query = f"SELECT {FILE_COLUMNS}, key FROM store_files WHERE {_OURS} FOR UPDATE"
        row = await connection.fetchrow(query, *_ours(claim))
        if row is None:
            return False
        encoder = await encoder_key(connection, indexed.encoder)
        store = await _lock_store(connection, claim.file.store_id)
        if encoder not in (store["encoder"] or encoder, store["next_encoder"]):
            await connection.execute(f"UPDATE store_files SET {_GIVEN_BACK} WHERE {_OURS}", *_ours(claim))
            return False
        if store["encoder"] is None and indexed.chunks:
            await connection.execute("UPDATE stores SET encoder = $2 WHERE key = $1", store["key"], encoder)
        target = _Target(store["key"], row["key"], encoder)
        file = replace(store_file(row, work_of), found=indexed.found)
        await self._write_attributes(connection, target.file, file)
        await _write_chunks(connection, target, indexed, terms, attributes_bytes(file.attributes, file.found))
        return True

    async def fail(self, claim: IndexClaim, failure: IndexFailure) -> bool:
        """A claim that failed before its first report was being read, not queued."""
        failed = await self._postgres.fetchval(
            "UPDATE store_files SET status = 'failed', failure = $4, claim_token = NULL, claimed_until = NULL, "
            "progress = CASE progress WHEN $5 THEN $6 ELSE progress END "
            f"WHERE {_OURS} RETURNING true",
            *_ours(claim),
            to_json(asdict(failure)),
            to_json(asdict(Progress())),
            to_json(asdict(Progress("reading"))),
        )
        return bool(failed)

    async def release(self, claim: IndexClaim) -> None:
        await self._postgres.fetchval(f"UPDATE store_files SET {_GIVEN_BACK} WHERE {_OURS}", *_ours(claim))

    async def begin_reembedding(self, store_id: str, encoder: EncoderIdentity) -> bool:
        """Drop vectors of another attempt. To begin with the store's own encoder is to stop. False: it is gone."""
        async with self._postgres.transaction() as connection:
            store = await connection.fetchrow(_STORE_FOR_UPDATE, store_id)
            if store is None:
                return False
            coming = await encoder_key(connection, encoder)
            kept = [coming, store["encoder"] or coming]
            query = "DELETE FROM vectors WHERE store = $1 AND encoder <> ALL($2)"
            await connection.execute(query, store["key"], kept)
            # A file that was indexed for another change of encoder has vectors of that one alone.
            is_complete = await connection.fetchrow(UNEMBEDDED, store_id, encoder.fingerprint, 1, 0) is None
            following = None if coming == store["encoder"] and is_complete else coming
            await connection.execute("UPDATE stores SET next_encoder = $2 WHERE key = $1", store["key"], following)
            return True

    async def unembedded(
        self, store_id: str, encoder: EncoderIdentity, limit: int, *, behind: int = 0
    ) -> list[tuple[int, str]]:
        rows = await self._postgres.fetch(UNEMBEDDED, store_id, encoder.fingerprint, limit, behind)
        return [(row[0], row[1]) for row in rows]

    async def put_vectors(
        self, store_id: str, encoder: EncoderIdentity, chunk_ids: Sequence[int], vectors: Vectors
    ) -> None:
        async with self._postgres.transaction() as connection:
            files = sorted({chunk >> _CHUNK_BITS for chunk in chunk_ids})
            await connection.execute(_KEEP_FILES, files)  # before the store, as everybody does
            store = await connection.fetchrow(_STORE_FOR_UPDATE.replace("UPDATE", "SHARE"), store_id)
            key = await encoder_key(connection, encoder)
            if store is None or key not in {store["encoder"], store["next_encoder"]}:
                return
            query = (
                "INSERT INTO vectors (store, encoder, file, chunk, vector) "
                "SELECT $1, $2, c.file, c.id, $4 FROM chunks c JOIN store_files f ON f.key = c.file "
                "WHERE c.id = $3 AND f.store_id = $5 "
                "ON CONFLICT (chunk, encoder) DO UPDATE SET vector = excluded.vector"
            )
            rows = zip(chunk_ids, vectors, strict=True)
            await connection.executemany(
                query, [(store["key"], key, chunk, vector, store_id) for chunk, vector in rows]
            )

    async def switch_encoder(self, store_id: str, encoder: EncoderIdentity) -> bool:
        async with self._postgres.transaction() as connection:
            store = await connection.fetchrow(_STORE_FOR_UPDATE, store_id)
            key = await encoder_key(connection, encoder)
            if store is None or await connection.fetchrow(UNEMBEDDED, store_id, encoder.fingerprint, 1, 0) is not None:
                return False
            await connection.execute(
                "UPDATE stores SET encoder = $2, next_encoder = NULL WHERE key = $1", store["key"], key
            )
            await connection.execute("DELETE FROM vectors WHERE store = $1 AND encoder <> $2", store["key"], key)
            return True


_KEEP_FILES = "SELECT FROM store_files WHERE key = ANY($1::bigint[]) ORDER BY key FOR KEY SHARE"
_GIVEN_BACK = "claim_token = NULL, claimed_until = NULL, attempts = attempts - 1"
_STORE_FOR_UPDATE = "SELECT key, encoder, next_encoder FROM stores WHERE id = $1 FOR UPDATE"


@dataclass(frozen=True, slots=True)
class _Target:
    """Keys in the database."""

    store: int
    file: int
    encoder: int


def _ours(claim: IndexClaim) -> tuple[str, str, str]:
    return claim.file.store_id, claim.file.file_id, claim.token


async def _lock_store(connection: asyncpg.Connection, store_id: str) -> asyncpg.Record:
    store = await connection.fetchrow(_STORE_FOR_UPDATE, store_id)
    assert store is not None, "a file's store is there"
    return store


def _terms(indexed: IndexedFile) -> list[Counter[str]]:
    return [Counter(text_terms(chunk.text, indexed.language)) for chunk in indexed.chunks]


async def _write_chunks(
    connection: asyncpg.Connection,
    target: _Target,
    indexed: IndexedFile,
    terms: Sequence[Counter[str]],
    attribute_bytes: int,
) -> None:
    """Write chunks, vectors, postings and what the file's row says of them."""
    assert len(indexed.chunks) <= 1 << _CHUNK_BITS, "more chunks than LIMIT_DOCUMENT_CHARS allows"
    first = target.file << _CHUNK_BITS
    words = await asyncio.to_thread(lambda: [pack_words(chunk.words) for chunk in indexed.chunks])

    async def copy(table: str, columns: str, records: Any) -> None:
        await connection.copy_records_to_table(table, schema_name=SCHEMA, columns=columns.split(), records=records)

    await copy(
        "chunks",
        "id file index start_char end_char text tokens words",
        (_chunk_row(first + i, target.file, chunk, words[i]) for i, chunk in enumerate(indexed.chunks)),
    )
    await copy(
        "vectors",
        "file chunk store encoder vector",
        ((target.file, first + i, target.store, target.encoder, vector) for i, vector in enumerate(indexed.vectors)),
    )
    await write_postings(connection, target.file, target.store, terms)
    texts_bytes = sum(len(chunk.text.encode("utf-8", "surrogatepass")) for chunk in indexed.chunks)
    usage_bytes = (
        attribute_bytes
        + texts_bytes
        + sum(map(len, words))
        + indexed.vectors.size * 4
        + sum(map(postings_bytes, terms))
    )
    await _complete(connection, target.file, indexed, first=first, usage_bytes=usage_bytes, terms=terms)


def _chunk_row(chunk_id: int, file: int, chunk: NewChunk, words: bytes) -> tuple[Any, ...]:
    return (chunk_id, file, chunk.index, chunk.start, chunk.end, chunk.text, chunk.tokens, words)


async def _complete(
    connection: asyncpg.Connection,
    file: int,
    indexed: IndexedFile,
    *,
    first: int,
    usage_bytes: int,
    terms: Sequence[Counter[str]],
) -> None:
    progress = Progress("done", len(indexed.chunks), len(indexed.chunks))
    await connection.execute(
        "UPDATE store_files SET status = 'completed', failure = NULL, claim_token = NULL, claimed_until = NULL, "
        "indexed_at = clock_timestamp(), found = $2, pages = $3, language = $4, chunks = $5, terms = $6, "
        "usage_bytes = $7, progress = $8, first_chunk = $9, lengths = $10, terms_version = $11 WHERE key = $1",
        file,
        to_json({name: list(values) for name, values in indexed.found.items()}),
        to_json([page.packed() for page in indexed.pages]),
        indexed.language,
        len(indexed.chunks),
        sum(counts.total() for counts in terms),
        usage_bytes,
        to_json(asdict(progress)),
        first,
        pack_lengths(terms),
        TERMS_VERSION,
    )
