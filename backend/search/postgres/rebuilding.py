"""Keyword terms of files that another release indexed, whose stems may be others, made anew from their texts."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence

import asyncpg

from backend.search.keywords import TERMS_VERSION, text_terms
from backend.search.postgres.postings import pack_lengths, pack_postings
from backend.search.postgres.schema import SCHEMA
from backend.telemetry import log_event

_log = logging.getLogger(__name__)
_OLD = "f.store_id = $1 AND f.chunks > 0 AND (f.terms_version < $2 OR f.terms_version > $2)"
_IS_OLD = f"SELECT EXISTS (SELECT FROM store_files f WHERE {_OLD})"
_NEXT = f"SELECT f.key, f.language, f.terms FROM store_files f WHERE {_OLD} ORDER BY f.key LIMIT 1 FOR UPDATE"
_COUNT = """
WITH file AS (
    UPDATE store_files SET terms = $2, lengths = $3, terms_version = $4 WHERE key = $1 RETURNING store_id
)
UPDATE stores SET terms = terms + $5 FROM file WHERE id = file.store_id
"""


async def rebuild_terms(connection: asyncpg.Connection, store_id: str) -> None:
    """Return once no file of the store has terms of another release.

    A file a transaction, so that what is done stays done when the caller gives up; whoever asks at the same time waits
    for that file, and takes the next.
    """
    files = 0
    while await connection.fetchval(_IS_OLD, store_id, TERMS_VERSION):
        async with connection.transaction():
            file = await connection.fetchrow(_NEXT, store_id, TERMS_VERSION)
            if file is not None:  # another one has just made it
                files += 1
                await _rebuild(connection, store_id, file)
    if files:
        log_event(_log, logging.WARNING, "terms of another release were made anew", store=store_id, files=files)


async def write_postings(connection: asyncpg.Connection, file: int, store: int, terms: Sequence[Counter[str]]) -> None:
    postings = await asyncio.to_thread(pack_postings, terms)
    rows = ((file, store, term, postings[term]) for term in sorted(postings))
    columns = ("file", "store", "term", "places")
    await connection.copy_records_to_table("postings", schema_name=SCHEMA, columns=columns, records=rows)


async def _rebuild(connection: asyncpg.Connection, store_id: str, file: asyncpg.Record) -> None:
    rows = await connection.fetch("SELECT text FROM chunks WHERE file = $1 ORDER BY index", file["key"])
    terms = await asyncio.to_thread(lambda: [Counter(text_terms(row["text"], file["language"])) for row in rows])
    store = await connection.fetchval("SELECT key FROM stores WHERE id = $1", store_id)
    await connection.execute("DELETE FROM postings WHERE file = $1", file["key"])
    await write_postings(connection, file["key"], store, terms)
    count = sum(counts.total() for counts in terms)
    more = count - file["terms"]
    await connection.execute(_COUNT, file["key"], count, pack_lengths(terms), TERMS_VERSION, more)
