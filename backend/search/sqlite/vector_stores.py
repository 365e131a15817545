"""Vector stores in the database."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence

from backend.search.filters import ATTRIBUTE_TYPES
from backend.search.keywords import TERMS_VERSION
from backend.search.list_sql import PAST_S
from backend.search.records import EncoderIdentity, ListKind, ListRange, Position, VectorStore
from backend.search.sqlite.pending_deletes import hide_store
from backend.search.sqlite.rows import STORE, STORE_TABLES, listed, vector_store
from backend.search.storage import id_taken

_DAY_S = 86_400.0
_SELECT = f"SELECT {STORE} FROM {STORE_TABLES}"
_CREATED: dict[ListKind, str] = {
    "file": "SELECT created_s FROM files WHERE owner = ?1 AND id = ?2",
    "store": "SELECT created_s FROM stores WHERE owner = ?1 AND id = ?2",
    "store_file": "SELECT sf.created_s FROM store_files sf JOIN stores s ON s.number = sf.store "
    "JOIN files f ON f.number = sf.file WHERE s.id = ?1 AND f.id = ?2",
}
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


def add(connection: sqlite3.Connection, store: VectorStore) -> None:
    """Raises: BadInput for an id that is there already, whoever's."""
    if number_of(connection, store.id) is not None:
        raise id_taken("vector store", store.id)
    encoder = None if store.encoder is None else encoder_number(connection, store.encoder)
    connection.execute(
        "INSERT INTO stores (id, owner, name, created_s, last_active_s, description, metadata, expires_after_days, "
        "encoder, terms) VALUES (?,?,?,?,?,?,?,?,?,?)",
        (
            store.id,
            store.owner,
            store.name,
            store.created_s,
            store.last_active_s,
            store.description,
            json.dumps(dict(store.metadata)),
            store.expires_after_days,
            encoder,
            TERMS_VERSION,
        ),
    )


def find(connection: sqlite3.Connection, owner: str, store_id: str) -> VectorStore | None:
    row = connection.execute(f"{_SELECT} WHERE s.id = ? AND s.owner = ?", (store_id, owner)).fetchone()
    return row and vector_store(connection, row)


def range_of(connection: sqlite3.Connection, owner: str, part: ListRange) -> list[VectorStore]:
    rows = listed(connection, _SELECT, ["s.owner = $1"], [owner], part=part, keys=("s.created_s", "s.id"))
    return [vector_store(connection, row) for row in rows]


def position(connection: sqlite3.Connection, kind: ListKind, list_id: str, row_id: str) -> Position | None:
    row = connection.execute(
        f"{_CREATED[kind]} UNION ALL SELECT created_s FROM past_positions WHERE kind = ?3 AND list = ?1 AND id = ?2 "
        "LIMIT 1",
        (list_id, row_id, kind),
    ).fetchone()
    return row and Position(row[0], row_id)


def forget_past(connection: sqlite3.Connection) -> None:
    """Drop the positions of what was deleted more than a day ago."""
    connection.execute(
        "DELETE FROM past_positions WHERE deleted_s < CAST(strftime('%s', 'now') AS INTEGER) - ?", (PAST_S,)
    )


def update(connection: sqlite3.Connection, store: VectorStore) -> bool:
    changed = connection.execute(
        "UPDATE stores SET name = ?, description = ?, metadata = ?, expires_after_days = ?, last_active_s = ? "
        "WHERE id = ? AND owner = ?",
        (
            store.name,
            store.description,
            json.dumps(dict(store.metadata)),
            store.expires_after_days,
            store.last_active_s,
            store.id,
            store.owner,
        ),
    )
    return changed.rowcount > 0


def touch(connection: sqlite3.Connection, store_id: str, now_s: float) -> None:
    connection.execute("UPDATE stores SET last_active_s = max(last_active_s, ?) WHERE id = ?", (now_s, store_id))


def delete(connection: sqlite3.Connection, owner: str, store_id: str) -> int | None:
    """The number of the store that was deleted; None: there was none."""
    row = connection.execute("SELECT number FROM stores WHERE id = ? AND owner = ?", (store_id, owner)).fetchone()
    if row is None:
        return None
    hide_store(connection, row[0])
    return int(row[0])


def expired(connection: sqlite3.Connection, now_s: float) -> list[VectorStore]:
    rows = connection.execute(
        f"{_SELECT} WHERE s.expires_after_days IS NOT NULL AND s.last_active_s + s.expires_after_days * ? <= ?",
        (_DAY_S, now_s),
    ).fetchall()
    return [vector_store(connection, row) for row in rows]


def reembedding_with(connection: sqlite3.Connection, encoder: EncoderIdentity) -> list[VectorStore]:
    rows = connection.execute(f"{_SELECT} WHERE n.fingerprint = ? ORDER BY s.number", (encoder.fingerprint,)).fetchall()
    return [vector_store(connection, row) for row in rows]


def attribute_names(connection: sqlite3.Connection, store_id: str, limit: int = 100) -> list[str]:
    rows = connection.execute(
        "SELECT DISTINCT name FROM attributes WHERE store = (SELECT number FROM stores WHERE id = ?) "
        "ORDER BY name LIMIT ?",
        (store_id, limit),
    )
    return [name for (name,) in rows]


def attribute_types(connection: sqlite3.Connection, store_id: str, names: Sequence[str]) -> dict[str, set[str]]:
    types: dict[str, set[str]] = {}
    for name in names:
        row = connection.execute(
            "WITH s AS (SELECT number FROM stores WHERE id = ?1) SELECT "
            + ", ".join(
                "EXISTS (SELECT 1 FROM attributes a JOIN s ON a.store = s.number "
                f"WHERE a.name = ?2 AND a.{column} IS NOT NULL)"
                for column in ("number", "text", "flag")
            ),
            (store_id, name),
        ).fetchone()
        types[name] = {kind for kind, is_there in zip(ATTRIBUTE_TYPES, row, strict=True) if is_there}
    return types
