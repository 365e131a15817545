"""Vector stores in the database, and vectors of another encoder beside those that answer."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence

from backend.models.encoder import Vectors
from backend.search.document_sql import PAST_S
from backend.search.records import EncoderIdentity
from backend.search.sqlite.pending_deletes import hide_store, keep_encoder, mark_encoder, mark_vectors
from backend.search.sqlite.schema import pack_vector

_ENCODERS = "SELECT number FROM encoders WHERE fingerprint = ?"


def encoder_number(connection: sqlite3.Connection, encoder: EncoderIdentity) -> int:
    """The number of an encoder, which is written down unless it is known."""
    row = connection.execute(_ENCODERS, (encoder.fingerprint,)).fetchone()
    if row is None:
        row = connection.execute(
            "INSERT INTO encoders (fingerprint, name, width) VALUES (?, ?, ?) RETURNING number",
            (encoder.fingerprint, encoder.name, encoder.width),
        ).fetchone()
    return int(row[0])


def known_encoder(connection: sqlite3.Connection, encoder: EncoderIdentity) -> int | None:
    row = connection.execute(_ENCODERS, (encoder.fingerprint,)).fetchone()
    return row and int(row[0])


def number_of(connection: sqlite3.Connection, store_id: str) -> int | None:
    row = connection.execute("SELECT number FROM stores WHERE id = ?", (store_id,)).fetchone()
    return row and int(row[0])


def forget_past(connection: sqlite3.Connection) -> None:
    """Drop the positions of what was deleted more than a day ago."""
    connection.execute(
        "DELETE FROM past_positions WHERE deleted_s < CAST(strftime('%s', 'now') AS INTEGER) - ?", (PAST_S,)
    )


def delete(connection: sqlite3.Connection, owner: str, store_id: str) -> int | None:
    """The number of the store that was deleted; None: there was none."""
    row = connection.execute("SELECT number FROM stores WHERE id = ? AND owner = ?", (store_id, owner)).fetchone()
    if row is None:
        return None
    hide_store(connection, row[0])
    return int(row[0])


def begin_reembedding(connection: sqlite3.Connection, store_id: str, encoder: EncoderIdentity) -> bool:
    """Vectors that are there of a third encoder are deleted. To begin with the store's own encoder is to stop."""
    store = number_of(connection, store_id)
    if store is None:
        return False
    coming = encoder_number(connection, encoder)
    current, before = connection.execute(
        "SELECT encoder, next_encoder FROM stores WHERE number = ?", (store,)
    ).fetchone()
    if before not in (None, coming, current):
        mark_encoder(connection, store, before)
    keep_encoder(connection, store, coming)
    # A file that was indexed for another change of encoder has vectors of that one alone.
    is_complete = not unembedded(connection, store_id, encoder, 1)
    connection.execute(
        "UPDATE stores SET next_encoder = CASE WHEN encoder = ?2 AND ?3 THEN NULL ELSE ?2 END, embedded = "
        "(SELECT count(*) FROM store_files sf JOIN vectors v ON v.store = sf.store AND v.encoder = ?2 "
        "AND v.chunk BETWEEN sf.first_chunk AND sf.first_chunk + sf.chunks - 1 WHERE sf.store = ?1 AND sf.chunks > 0) "
        "WHERE number = ?1",
        (store, coming, is_complete),
    )
    return True


def unembedded(
    connection: sqlite3.Connection, store_id: str, encoder: EncoderIdentity, limit: int, behind: int = 0
) -> list[tuple[int, str]]:
    """Chunks without a vector of this encoder, behind an id."""
    store, number = number_of(connection, store_id), known_encoder(connection, encoder)
    if store is None:
        return []
    rows = connection.execute(
        "SELECT c.id, c.text FROM store_files sf CROSS JOIN chunks c ON c.id BETWEEN sf.first_chunk AND "
        "sf.first_chunk + sf.chunks - 1 WHERE sf.store = ?1 AND sf.chunks > 0 AND sf.first_chunk + sf.chunks > ?4 + 1 "
        "AND c.id > ?4 AND NOT EXISTS (SELECT 1 FROM vectors v "
        "WHERE v.store = ?1 AND v.encoder = ?2 AND v.chunk = c.id) ORDER BY sf.first_chunk, c.id LIMIT ?3",
        (store, number, limit, behind),
    )
    return rows.fetchall()


def put_vectors(
    connection: sqlite3.Connection, store_id: str, encoder: EncoderIdentity, chunk_ids: Sequence[int], vectors: Vectors
) -> None:
    store = number_of(connection, store_id)
    if store is None:
        return
    number = encoder_number(connection, encoder)
    encoders = connection.execute("SELECT encoder, next_encoder FROM stores WHERE number = ?", (store,)).fetchone()
    if number not in encoders:  # another change of encoder was begun meanwhile
        return
    before = _count(connection, store, number, chunk_ids)
    connection.executemany(
        "INSERT OR REPLACE INTO vectors (store, encoder, chunk, vector) SELECT ?, ?, c.id, ? FROM chunks c "
        "JOIN store_files sf ON sf.number = c.store_file WHERE c.id = ? AND sf.store = ?",
        (
            (store, number, pack_vector(vector), chunk_id, store)
            for chunk_id, vector in zip(chunk_ids, vectors, strict=True)
        ),
    )
    more = _count(connection, store, number, chunk_ids) - before
    connection.execute(
        "UPDATE stores SET embedded = embedded + ? WHERE number = ? AND next_encoder = ?", (more, store, number)
    )
    connection.execute("UPDATE stores SET rebuilds = rebuilds + 1 WHERE number = ? AND encoder = ?", (store, number))


def switch_encoder(connection: sqlite3.Connection, store_id: str, encoder: EncoderIdentity) -> bool:
    number = known_encoder(connection, encoder)
    row = connection.execute(
        "SELECT number FROM stores WHERE id = ? AND ? IN (encoder, next_encoder)", (store_id, number)
    ).fetchone()
    if (
        row is None or number is None or unembedded(connection, store_id, encoder, 1)
    ):  # vectors of others may be about to be removed
        return False
    store = row[0]
    connection.execute(
        "UPDATE stores SET encoder = ?, next_encoder = NULL, embedded = 0, rebuilds = rebuilds + 1 WHERE number = ?",
        (number, store),
    )
    mark_vectors(connection, store, number)
    return True


def _count(connection: sqlite3.Connection, store: int, encoder: int, chunk_ids: Sequence[int]) -> int:
    """How many of these chunks have a vector of this encoder."""
    (count,) = connection.execute(
        "SELECT count(*) FROM vectors WHERE store = ? AND encoder = ? AND chunk IN (SELECT value FROM json_each(?))",
        (store, encoder, json.dumps(list(chunk_ids))),
    ).fetchone()
    return int(count)
