"""Where terms stand, as bytes; BM25 over them; and terms of another release made anew from the texts."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import asyncpg
import numpy as np
from numpy.typing import NDArray

from backend.search.keywords import K1, TERMS_VERSION, B, idf, text_terms
from backend.search.postgres.schema import SCHEMA
from backend.search.records import Ranked
from backend.telemetry import log_event

_PLACE = np.dtype([("index", "<u4"), ("count", "<u2")])
PLACE_BYTES = _PLACE.itemsize
_MOST = np.iinfo(np.uint16).max  # times that a term is counted in one chunk
_LENGTH = np.dtype("<u4")
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


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
