"""Vector stores in the database."""

from __future__ import annotations

import sqlite3

from backend.search.document_sql import PAST_S
from backend.search.records import EncoderIdentity
from backend.search.sqlite.pending_deletes import hide_store

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
