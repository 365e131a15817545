"""Ranks the chunks of one store: by exact cosine, and by BM25."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from backend.errors import NotFound, WrongEncoder
from backend.models.encoder import Vectors
from backend.search.filters import Filter
from backend.search.keywords import K1, B, idf
from backend.search.records import EncoderIdentity, KeywordQuery, Ranked
from backend.search.sqlite.loaded_stores import (
    ChunkTable,
    Generation,
    Ints,
    LoadedStore,
    LoadedStores,
    Mask,
    Phrases,
    allowed_files,
    generation_of,
)
from backend.search.sqlite.postings import Postings, check_version, fresh_chunks
from backend.search.sqlite.schema import unpack_vectors
from backend.search.sqlite.vector_stores import known_encoder

Scores = NDArray[np.floating[Any]]
Indices = NDArray[np.intp]


def top(scores: Scores, limit: int) -> Indices:
    """Indices of the ``limit`` highest scores and of all that equal the last of them, in any order."""
    if len(scores) <= limit:
        return np.arange(len(scores))
    least = np.partition(scores, len(scores) - limit)[len(scores) - limit]
    return np.flatnonzero(scores >= least)


def ranked(chunk_ids: NDArray[np.int64], scores: Scores, limit: int) -> list[Ranked]:
    """The highest scores first, equal ones by chunk id."""
    order = np.lexsort((chunk_ids, -scores))[:limit]
    return [Ranked(*pair) for pair in zip(chunk_ids[order].tolist(), scores[order].tolist(), strict=True)]


_MORE_CANDIDATES = 100  # of the scan than hits, to be scored exactly: rounding moves a chunk by a few places only
_ROWS_AT_ONCE = 8192


@dataclass(frozen=True, slots=True)
class Query:
    """What both rankings have in common."""

    store_id: str
    filters: Filter | None
    limit: int


class _Vector(NamedTuple):
    vector: Vectors
    limit: int


class Searcher:
    """Called on the threads that search, each time in a transaction that only reads.

    All calls raise: NotFound for a store that is gone, DataError for broken data, Behind to be called again in a new
    transaction.

    Args:
        threads: run the parts of one scan.
    """

    def __init__(self, stores: LoadedStores, threads: Executor) -> None:
        self._stores, self._threads = stores, threads

    def nearest(
        self, connection: sqlite3.Connection, query: Query, vector: Vectors, encoder: EncoderIdentity
    ) -> list[Ranked]:
        """Raises: WrongEncoder where the store has another encoder by now."""
        current = _generation(connection, query.store_id)
        if current.encoder is None:
            return []
        if current.encoder != known_encoder(connection, encoder):
            raise WrongEncoder(f"vector store '{query.store_id}': its encoder has changed meanwhile; search it again")
        allowed = None if query.filters is None else allowed_files(connection, current.store, query.filters)
        with self._stores.searched(current.store) as loaded:
            table = loaded.table(connection, current)
            scores = self._scanned(connection, current, loaded, chunks=len(table), vector=vector)
            mask = table.mask(allowed)
            if scores is None:
                return _streamed(connection, current, table, mask=mask, query=_Vector(vector, query.limit))
            if scores.min(initial=0.0) <= -2.0:
                has_vector = scores > -2.0
                mask = has_vector if mask is None else mask & has_vector
            candidates = _best(scores, mask, query.limit + _MORE_CANDIDATES)
            return _rescored(connection, current, table.chunk_ids[candidates], vector, query.limit)

    def _scanned(
        self, connection: sqlite3.Connection, current: Generation, loaded: LoadedStore, *, chunks: int, vector: Vectors
    ) -> Vectors | None:
        """The rough cosine of each chunk, -2 for one without a vector; None where they are too many to be kept."""
        if not chunks:
            return np.zeros(0, np.float32)
        width = len(vector)
        place = self._stores.place_for(current.store, chunks, width)
        if place == "device":
            try:
                _, matrix = loaded.vectors(connection, current, width, on_device=True)
                return matrix.scan(vector, chunks, self._threads)
            except MemoryError as error:
                self._stores.refused(current.store, error)
            place = self._stores.place_for(current.store, chunks, width)
        if place == "disk":
            return None
        _, matrix = loaded.vectors(connection, current, width)
        return matrix.scan(vector, chunks, self._threads)

    def matching(self, connection: sqlite3.Connection, query: Query, keywords: KeywordQuery) -> list[Ranked]:
        current = _generation(connection, query.store_id)
        check_version(connection, current.store)
        allowed = None if query.filters is None else allowed_files(connection, current.store, query.filters)
        terms, prefixes = list(dict.fromkeys(keywords.terms)), list(dict.fromkeys(keywords.prefixes))
        with self._stores.searched(current.store) as loaded:
            self._stores.reserve_fresh(current.store, fresh_chunks(connection, current.store))
            return _bm25(loaded.phrases(connection, current, terms, prefixes), allowed, query.limit)


def _generation(connection: sqlite3.Connection, store_id: str) -> Generation:
    current = generation_of(connection, store_id)
    if current is None:
        raise NotFound(f"vector store '{store_id}' does not exist any more")
    return current


def _best(scores: Vectors, mask: Mask | None, limit: int) -> Ints:
    if mask is None:
        return top(scores, limit)
    candidates = np.flatnonzero(mask)
    return candidates[top(scores[candidates], limit)]


def _rescored(
    connection: sqlite3.Connection, current: Generation, chunk_ids: Ints, vector: Vectors, limit: int
) -> list[Ranked]:
    """The best of a few chunks by their stored vectors."""
    rows = connection.execute(
        "SELECT chunk, vector FROM vectors WHERE store = ? AND encoder = ? AND chunk IN "
        "(SELECT value FROM json_each(?))",
        (current.store, current.encoder, json.dumps(chunk_ids.tolist())),
    ).fetchall()
    if len(rows) != len(chunk_ids):
        raise sqlite3.DataError("vectors are gone")
    vectors = unpack_vectors([packed for _, packed in rows], len(vector))
    return ranked(np.array([chunk for chunk, _ in rows], np.int64), _cosines(vectors, vector), limit)


def _cosines(vectors: Vectors, vector: Vectors) -> NDArray[np.float64]:
    """Row by row: in a product of matrices the rounding of equal rows differs with their place."""
    cosines: NDArray[np.float64] = (vectors.astype(np.float64) * vector).sum(axis=1)
    return cosines


def _streamed(
    connection: sqlite3.Connection, current: Generation, table: ChunkTable, *, mask: Mask | None, query: _Vector
) -> list[Ranked]:
    """The nearest chunks of a store whose vectors are too many to be kept: all are read, and none is kept."""
    ids, scores = np.zeros(0, np.int64), np.zeros(0)
    cursor = connection.execute(
        "SELECT chunk, vector FROM vectors WHERE store = ? AND encoder = ? ORDER BY chunk",
        (current.store, current.encoder),
    )
    while read := cursor.fetchmany(_ROWS_AT_ONCE):
        more = np.array([chunk for chunk, _ in read], np.int64)
        products = _cosines(unpack_vectors([packed for _, packed in read], len(query.vector)), query.vector)
        rows, is_allowed = table.rows_of(more)  # what is being removed is not in the table
        if mask is not None:
            is_allowed &= mask[rows]
        if not is_allowed.all():
            more, products = more[is_allowed], products[is_allowed]
        ids, scores = np.concatenate([ids, more]), np.concatenate([scores, products])
        kept = top(scores, query.limit)
        ids, scores = ids[kept], scores[kept]
    return ranked(ids, scores, query.limit)


def _bm25(phrases: Phrases, allowed: Ints | None, limit: int) -> list[Ranked]:
    table = phrases.table
    kept = table.mask(None)
    chunks = len(table) if kept is None else int(np.count_nonzero(kept))
    if not chunks:
        return []
    terms = int(table.lengths.sum() if kept is None else table.lengths[kept].sum())
    average = max(terms / chunks, 1e-9)
    scores = np.zeros(len(table))
    for found in phrases.found:
        rows, times = _one_phrase(table, kept, found)
        if len(rows):
            norms = K1 * (1 - B + B / average * table.lengths[rows])
            scores[rows] += idf(chunks, len(rows)) * (K1 + 1) * times / (times + norms)
    mask = table.mask(allowed)
    hits = np.flatnonzero(scores if mask is None else mask & (scores > 0))
    best = hits[top(scores[hits], limit)]
    return ranked(table.chunk_ids[best], scores[best], limit)


def _one_phrase(table: ChunkTable, kept: Mask | None, found: Sequence[Postings]) -> tuple[Ints, Ints]:
    """Rows of the chunks that have a term, or any of the terms of a prefix, and how often; no row twice."""
    if not found:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    ids = np.concatenate([one.chunk_ids for one in found])
    times = np.concatenate([one.times for one in found])
    rows, is_known = table.rows_of(ids)
    if kept is not None:
        is_known &= kept[rows]
    if not is_known.all():
        rows, times = rows[is_known], times[is_known]
    if len(rows) > 1 and (np.diff(rows) <= 0).any():  # several terms of a prefix
        rows, place = np.unique(rows, return_inverse=True)
        times = np.bincount(place, times).astype(np.int64)
    return rows, times
