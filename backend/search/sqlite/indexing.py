"""Who indexes which file, what indexing it produced, and such files from and for another storage, in the database."""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from backend.errors import WrongEncoder
from backend.models.encoder import Vectors
from backend.search.document_chunks import pack_words
from backend.search.keywords import text_terms
from backend.search.limits import attributes_bytes, postings_bytes
from backend.search.records import EncoderIdentity, IndexClaim, IndexedFile, IndexFailure, Progress, Scalar, StoreFile
from backend.search.sqlite import store_files
from backend.search.sqlite.pending_deletes import keep_encoder
from backend.search.sqlite.schema import (
    STORE_FILE,
    STORE_FILE_TABLES,
    chunk_checksum,
    encodable,
    pack_pages,
    pack_vector,
    unpack_vectors,
    work_of,
)
from backend.search.sqlite.store_files import write_attributes
from backend.search.sqlite.vector_stores import encoder_number, known_encoder
from backend.search.tables import store_file

# The first file of each store that has one waiting; stores are found by a step through the index each, not by reading
# all that waits. Owners take turns: fewest running files first, then the longest without a claim.
_NEXT = f"""
WITH RECURSIVE waiting (store) AS (
    SELECT min(store) FROM store_files WHERE status = 'in_progress'
    UNION ALL
    SELECT (SELECT min(sf.store) FROM store_files sf WHERE sf.status = 'in_progress' AND sf.store > waiting.store)
    FROM waiting WHERE waiting.store IS NOT NULL
), running (owner, files) AS (
    SELECT s.owner, count(*) FROM store_files sf JOIN stores s ON s.number = sf.store
    WHERE sf.token IS NOT NULL AND sf.lease_until_s > ?1 GROUP BY s.owner
), first (number, owner) AS (
    SELECT (SELECT sf.number FROM store_files sf WHERE sf.store = s.number AND sf.status = 'in_progress'
        AND (sf.token IS NULL OR sf.lease_until_s <= ?1) ORDER BY sf.created_s, sf.number LIMIT 1), s.owner
    FROM waiting w JOIN stores s ON s.number = w.store
    WHERE NOT s.is_deleted AND (s.encoder IS NULL OR s.encoder = ?2 OR s.next_encoder = ?2)
)
SELECT sf.number, s.owner, sf.attempts, f.size_bytes, {STORE_FILE}
FROM first JOIN {STORE_FILE_TABLES.replace("store_files sf", "store_files sf ON sf.number = first.number", 1)}
LEFT JOIN running r ON r.owner = first.owner LEFT JOIN owners o ON o.owner = first.owner
ORDER BY coalesce(r.files, 0), coalesce(o.claimed, 0), sf.created_s, sf.number LIMIT 1
"""
_COUNT_CLAIM = """
INSERT INTO owners (owner, claimed) SELECT ?, coalesce(max(claimed), 0) + 1 FROM owners WHERE true
ON CONFLICT (owner) DO UPDATE SET claimed = excluded.claimed
"""
_END_CLAIM = "token = NULL, lease_until_s = NULL"
_MINE = "UPDATE store_files SET {} WHERE token = ? AND status = 'in_progress'"


@dataclass(frozen=True, slots=True)
class PackedChunk:
    """A chunk as its rows hold it."""

    position: int
    start: int
    end: int
    tokens: int
    text: str
    words: bytes
    checksum: int
    vector: bytes
    terms: str  # joined by line feeds
    length: int  # terms

    @property
    def usage_bytes(self) -> int:
        postings = postings_bytes(self.terms.split("\n") if self.terms else ())
        return len(self.text.encode()) + len(self.words) + len(self.vector) + postings


def pack(indexed: IndexedFile) -> list[PackedChunk]:
    """What takes time, done before the transaction."""
    packed = []
    for chunk, vector in zip(indexed.chunks, indexed.vectors, strict=True):
        text, words = encodable(chunk.text), pack_words(chunk.words)
        terms = text_terms(text, indexed.language)
        packed.append(
            PackedChunk(
                chunk.index,
                chunk.start,
                chunk.end,
                chunk.tokens,
                text,
                words,
                chunk_checksum(text, words),
                pack_vector(vector),
                "\n".join(terms),
                len(terms),
            )
        )
    return packed


def end_claims(connection: sqlite3.Connection) -> None:
    """Give back what a process claimed that has ended; its attempts count."""
    connection.execute(f"UPDATE store_files SET {_END_CLAIM} WHERE token IS NOT NULL")


def claim(connection: sqlite3.Connection, encoder: EncoderIdentity, now_s: float, lease_s: float) -> IndexClaim | None:
    """The next file to index. The clock of ``now_s`` is the process's: a new writer ends all claims."""
    number = known_encoder(connection, encoder)
    row = connection.execute(_NEXT, (now_s, number)).fetchone()
    if row is None:
        return None
    token = secrets.token_hex(16)
    connection.execute(_COUNT_CLAIM, (row[1],))
    connection.execute(
        "UPDATE store_files SET token = ?, lease_until_s = ?, attempts = attempts + 1 WHERE number = ?",
        (token, now_s + lease_s, row[0]),
    )
    return IndexClaim(store_file(row[4:], work_of), row[1], token, row[2] + 1, row[3])


def renew(connection: sqlite3.Connection, claim: IndexClaim, progress: Progress, until_s: float) -> bool:
    changes = _MINE.format("lease_until_s = ?, stage = ?, done = ?, total = ?")
    return (
        connection.execute(changes, (until_s, progress.stage, progress.done, progress.total, claim.token)).rowcount > 0
    )


def fail(connection: sqlite3.Connection, claim: IndexClaim, failure: IndexFailure) -> bool:
    """A claim that failed before its first report was being read, not queued."""
    stage = "CASE stage WHEN 'queued' THEN 'reading' ELSE stage END"
    changes = _MINE.format(f"status = 'failed', failure_code = ?, failure_message = ?, stage = {stage}, {_END_CLAIM}")
    return connection.execute(changes, (failure.code, encodable(failure.message), claim.token)).rowcount > 0


def release(connection: sqlite3.Connection, claim: IndexClaim) -> None:
    changes = _MINE.format(f"attempts = attempts - 1, {_END_CLAIM}")
    connection.execute(changes, (claim.token,))


def finish(
    connection: sqlite3.Connection, claim: IndexClaim, indexed: IndexedFile, packed: Sequence[PackedChunk], now_s: float
) -> bool:
    """Store what was indexed. False: the claim is lost, or the store has got another encoder meanwhile."""
    row = connection.execute(
        "SELECT sf.number, sf.store, sf.attributes, s.encoder, s.next_encoder FROM store_files sf JOIN stores s "
        "ON s.number = sf.store WHERE sf.token = ? AND sf.status = 'in_progress'",
        (claim.token,),
    ).fetchone()
    if row is None:
        return False
    number, store, attributes, current, coming = row
    encoder = encoder_number(connection, indexed.encoder)
    if current is not None and encoder not in (current, coming):
        release(connection, claim)
        return False
    first = _next_chunk(connection)
    _insert(connection, number, store, encoder, list(enumerate(packed, first)))
    found = _cleaned(indexed.found)
    set_by_caller = json.loads(attributes)
    write_attributes(connection, number, set_by_caller, found)
    connection.execute(
        f"UPDATE store_files SET status = 'completed', found = ?, pages = ?, language = ?, indexed_s = ?, "
        f"first_chunk = ?, chunks = ?, lengths = ?, usage_bytes = ?, stage = 'done', done = ?, total = ?, {_END_CLAIM} "
        "WHERE number = ?",
        (
            json.dumps(found),
            pack_pages(indexed.pages),
            indexed.language,
            now_s,
            first,
            len(packed),
            np.array([chunk.length for chunk in packed], "<i4").tobytes(),
            sum(chunk.usage_bytes for chunk in packed) + attributes_bytes(set_by_caller, found),
            len(packed),
            len(packed),
            number,
        ),
    )
    if packed:
        connection.execute(
            "UPDATE stores SET additions = additions + 1, encoder = coalesce(encoder, ?1), "
            "embedded = embedded + CASE next_encoder WHEN ?1 THEN ?2 ELSE 0 END WHERE number = ?3",
            (encoder, len(packed), store),
        )
        keep_encoder(connection, store, encoder)
    return True


def _insert(
    connection: sqlite3.Connection, number: int, store: int, encoder: int, numbered: Sequence[tuple[int, PackedChunk]]
) -> None:
    connection.executemany(
        "INSERT INTO chunks (id, store_file, position, start, end, tokens, checksum, text, words) "
        "VALUES (?,?,?,?,?,?,?,?,?)",
        (
            (chunk_id, number, one.position, one.start, one.end, one.tokens, one.checksum, one.text, one.words)
            for chunk_id, one in numbered
        ),
    )
    connection.executemany(
        "INSERT INTO vectors (store, encoder, chunk, vector) VALUES (?, ?, ?, ?)",
        ((store, encoder, chunk_id, one.vector) for chunk_id, one in numbered),
    )
    connection.executemany(
        "INSERT INTO fresh_terms (store, chunk, terms) VALUES (?, ?, ?)",
        ((store, chunk_id, one.terms) for chunk_id, one in numbered),
    )


def _next_chunk(connection: sqlite3.Connection) -> int:
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'chunks'").fetchone()
    return 1 if row is None else int(row[0]) + 1


def _cleaned(found: Mapping[str, Sequence[Scalar]]) -> dict[str, list[Scalar]]:
    return {
        encodable(name): [encodable(value) if isinstance(value, str) else value for value in values]
        for name, values in found.items()
    }


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
    connection: sqlite3.Connection, file: StoreFile, indexed: IndexedFile, packed: Sequence[PackedChunk], now_s: float
) -> None:
    """Attach and finish a file in one transaction."""
    row = connection.execute("SELECT encoder, owner FROM stores WHERE id = ?", (file.store_id,)).fetchone()
    number = encoder_number(connection, indexed.encoder)
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
    claim = IndexClaim(waiting, row[1], token, 1)
    is_stored = finish(connection, claim, indexed, packed, now_s)
    assert is_stored  # the claim is of this transaction
