"""Rankings of the chunks of one store, by cosine and by BM25, computed by PostgreSQL."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import asyncpg
import numpy as np
from numpy.typing import NDArray

from backend.errors import NotFound, TooLarge, WrongEncoder
from backend.models.encoder import Vectors
from backend.search.filters import Dialect, Filter, compile_filter
from backend.search.keywords import K1, TERMS_VERSION, B, idf, text_terms
from backend.search.postgres.connections import PostgresConnections
from backend.search.postgres.schema import SCHEMA
from backend.search.records import KeywordQuery, Ranked, VectorStore
from backend.search.storage import SearchStorage
from backend.telemetry import log_event

_PLACE = np.dtype([("index", "<u4"), ("count", "<u2")])
PLACE_BYTES = _PLACE.itemsize
_MOST = np.iinfo(np.uint16).max  # times that a term is counted in one chunk
_LENGTH = np.dtype("<u4")
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
_LAST_CHARACTER = "\U0010ffff"
_MAX_ARGUMENTS = 32_767  # of a query in PostgreSQL's protocol
# By inner product, which is the cosine of vectors of unit length; negative, so that the best come first.
_NEAREST = """
SELECT chunk, -(vector <#> $1) FROM vectors v
WHERE store = (SELECT key FROM stores WHERE id = $2)
    AND encoder = (SELECT key FROM encoders WHERE fingerprint = $3){where}
    AND file NOT IN (SELECT file FROM pending_deletes)
ORDER BY vector <#> $1, chunk LIMIT $4
"""
_FILTERED = " AND v.file IN (SELECT f.key FROM store_files f WHERE f.store_id = $2 AND {condition})"
# A row a phrase: a whole term, or all terms with one beginning. LATERAL keeps it to one index scan each.
_POSTINGS = f"""
SELECT t.files, t.sizes, t.places
FROM unnest($2::text[], $3::text[]) AS phrase(low, high) CROSS JOIN LATERAL (
    SELECT string_agg(int8send(file), '') AS files, string_agg(int4send(octet_length(places) / {PLACE_BYTES}), '')
        AS sizes, string_agg(places, '') AS places
    FROM postings WHERE store = $1 AND term BETWEEN phrase.low AND phrase.high
) t WHERE t.files IS NOT NULL
"""
_LENGTHS = """
SELECT string_agg(int8send(key), ''), string_agg(int8send(first_chunk), ''), string_agg(int4send(chunks), ''),
    string_agg(boolsend({is_wanted}), ''), string_agg(lengths, '')
FROM (SELECT * FROM store_files f WHERE f.key = ANY($2) AND f.store_id = $1 AND f.chunks > 0 ORDER BY f.key) f
"""
_STORE = """
SELECT s.key, s.chunks, s.terms, e.fingerprint FROM stores s LEFT JOIN encoders e ON e.key = s.encoder WHERE s.id = $1
"""
_IN_THREAD = 100_000  # places: ranking more takes longer than the event loop should wait


def pack_postings(terms: Sequence[Counter[str]]) -> Mapping[str, bytes]:
    """Term -> its places in a file, of the terms of each of its chunks."""
    places: dict[str, list[tuple[int, int]]] = {}
    for index, counts in enumerate(terms):
        for term, count in counts.items():
            places.setdefault(term, []).append((index, min(count, _MOST)))
    return {term: np.array(found, _PLACE).tobytes() for term, found in places.items()}


def pack_lengths(terms: Sequence[Counter[str]]) -> bytes:
    return np.array([counts.total() for counts in terms], _LENGTH).tobytes()


@dataclass(frozen=True, slots=True)
class Postings:
    """Where one phrase stands in a store. A phrase is a term, or all terms with one beginning.

    Shapes: files and sizes (rows), a row for each term and file; places (sum of sizes).
    """

    files: Integers
    sizes: Integers  # places of each row
    places: bytes


@dataclass(frozen=True, slots=True)
class FileLengths:
    """Files whose chunks may be in the ranking.

    Shapes: all but lengths (files), sorted by key; lengths (sum of chunks).
    """

    keys: Integers
    first_chunks: Integers
    chunks: Integers
    is_wanted: NDArray[np.bool_]  # the filter lets it through
    lengths: bytes  # terms of each chunk


def rank(
    phrases: Sequence[Postings], files: FileLengths, *, chunks: int, mean_length: float, limit: int
) -> list[Ranked]:
    """The chunks with the highest BM25, then the lowest id. Postings of files that are not in ``files`` are left out.

    Args:
        chunks: in the store.
        mean_length: terms of a chunk of the store.
    """
    offsets = np.concatenate([[0], np.cumsum(files.chunks)])
    lengths = np.frombuffer(files.lengths, _LENGTH).astype(np.float64)
    norms = K1 * (1 - B + B * lengths / (mean_length or 1.0))
    scores, is_found = np.zeros(len(lengths)), np.zeros(len(lengths), np.bool_)
    for phrase in phrases:
        slots, counts = _slots(phrase, files.keys, offsets)
        scores[slots] += idf(chunks, len(slots)) * counts * (K1 + 1) / (counts + norms[slots])
        is_found[slots] = True
    found = np.flatnonzero(is_found & np.repeat(files.is_wanted, files.chunks))
    owners = np.searchsorted(offsets, found, side="right") - 1
    ids = files.first_chunks[owners] + found - offsets[owners]
    best = np.lexsort((ids, -scores[found]))[:limit]
    return [Ranked(chunk, score) for chunk, score in zip(ids[best].tolist(), scores[found][best].tolist(), strict=True)]


def _slots(phrase: Postings, keys: Integers, offsets: Integers) -> tuple[Integers, Floats]:
    """The chunks of a phrase, each once, by their place among all lengths, and how often it stands in each."""
    places = np.frombuffer(phrase.places, _PLACE)
    owners = np.searchsorted(keys, phrase.files)
    known = np.zeros(len(owners), np.bool_)
    inside = owners < len(keys)
    known[inside] = keys[owners[inside]] == phrase.files[inside]
    kept = np.repeat(known, phrase.sizes)
    slots = np.repeat(offsets[np.where(known, owners, 0)], phrase.sizes)[kept] + places["index"][kept]
    if len(np.unique(phrase.files)) == len(phrase.files):  # one term, which stands once for each file
        return slots.astype(np.int64), places["count"][kept].astype(np.float64)
    unique, inverse = np.unique(slots, return_inverse=True)
    counts = np.bincount(inverse, weights=places["count"][kept])
    return unique.astype(np.int64), counts.astype(np.float64)


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


class PostgresRanking(SearchStorage):
    _postgres: PostgresConnections

    async def nearest(self, store: VectorStore, vector: Vectors, filters: Filter | None, limit: int) -> list[Ranked]:
        """The chunks with the highest cosine.

        Raises: NotFound where the store is gone; WrongEncoder where its encoder is no longer that of ``store``.
        """
        async with self._postgres.connection() as connection:
            current = await _store_of_encoder(connection, store)
            if store.encoder is None:
                return []
            arguments: list[Any] = [vector, store.id, store.encoder.fingerprint, limit]
            condition = _condition(filters, current["key"], arguments)
            if condition is not None:
                condition = _FILTERED.format(condition=condition)
            rows = await connection.fetch(_NEAREST.format(where=condition or ""), *arguments)
            if not rows:  # are there none, or were they replaced between the two queries?
                await _store_of_encoder(connection, store)
        return [Ranked(row[0], row[1]) for row in rows]

    async def matching(
        self, store: VectorStore, query: KeywordQuery, filters: Filter | None, limit: int
    ) -> list[Ranked]:
        """The chunks with the highest BM25. Raises: NotFound where the store is gone."""
        lows, highs = _ranges(query)
        async with self._postgres.connection() as connection:
            await _store(connection, store)
            await rebuild_terms(connection, store.id)
            current = await _store(connection, store)
            rows = await connection.fetch(_POSTINGS, current["key"], lows, highs)
            if not rows:
                return []
            phrases = [Postings(_integers(row[0]), _integers(row[1], ">i4"), row[2]) for row in rows]
            files = np.unique(np.concatenate([phrase.files for phrase in phrases]))
            arguments: list[Any] = [store.id, files.tolist()]
            condition = _condition(filters, current["key"], arguments)
            row = await connection.fetchrow(_LENGTHS.format(is_wanted=condition or "true"), *arguments)
        if row is None or row[0] is None:
            return []
        wanted = np.frombuffer(row[3], np.bool_)
        lengths = FileLengths(_integers(row[0]), _integers(row[1]), _integers(row[2], ">i4"), wanted, row[4])
        mean_length = current["terms"] / max(1, current["chunks"])
        ranked = partial(rank, phrases, lengths, chunks=current["chunks"], mean_length=mean_length, limit=limit)
        if sum(len(phrase.places) for phrase in phrases) < _IN_THREAD * PLACE_BYTES:
            return ranked()
        return await asyncio.to_thread(ranked)


def _integers(content: bytes, sent: str = ">i8") -> NDArray[np.int64]:
    """What PostgreSQL's int8send or int4send wrote, one behind the other."""
    return np.frombuffer(content, sent).astype(np.int64)


def _ranges(query: KeywordQuery) -> tuple[list[str], list[str]]:
    """First and last term of each phrase."""
    terms, prefixes = list(dict.fromkeys(query.terms)), list(dict.fromkeys(query.prefixes))
    return terms + prefixes, terms + [prefix + _LAST_CHARACTER for prefix in prefixes]


def _condition(filters: Filter | None, store: int, arguments: list[Any]) -> str | None:
    """The filter as a condition on ``f.key``; its values are appended to ``arguments``."""
    if filters is None:
        return None
    dialect = Dialect("f.key", lambda index: f"${index + 1}", collation=' COLLATE "C"', scope=f" AND a.store = {store}")
    condition = compile_filter(filters, dialect, first=len(arguments))
    arguments.extend(condition.values)
    if len(arguments) > _MAX_ARGUMENTS:
        raise TooLarge("filters: values", len(condition.values), _MAX_ARGUMENTS - 10, "PostgreSQL's own")
    return condition.sql


async def _store_of_encoder(connection: asyncpg.Connection, store: VectorStore) -> asyncpg.Record:
    """Raises: NotFound; WrongEncoder where the store's encoder is no longer that of ``store``."""
    current = await _store(connection, store)
    if current["fingerprint"] != (store.encoder and store.encoder.fingerprint):
        raise WrongEncoder(f"vector store {store.id}: its encoder has changed meanwhile; search again")
    return current


async def _store(connection: asyncpg.Connection, store: VectorStore) -> asyncpg.Record:
    row = await connection.fetchrow(_STORE, store.id)
    if row is None:
        raise NotFound(f"vector store {store.id}: it has been deleted meanwhile")
    return row
