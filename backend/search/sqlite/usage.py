"""Counts what is stored."""

from __future__ import annotations

import sqlite3

from backend.search.records import Usage


def usage(connection: sqlite3.Connection, owner: str | None) -> Usage:
    """What an owner has stored; None: what all have."""
    condition, values = ("1 = 1", ()) if owner is None else ("owner = ?", (owner,))
    kept = f"NOT is_deleted AND {condition}"
    files, file_bytes = connection.execute(
        f"SELECT count(*), coalesce(sum(size_bytes), 0) FROM files WHERE {condition}", values
    ).fetchone()
    (stores,) = connection.execute(f"SELECT count(*) FROM stores WHERE {kept}", values).fetchone()
    index_bytes, chunks, waiting = connection.execute(
        "SELECT coalesce(sum(usage_bytes), 0), coalesce(sum(chunks), 0), coalesce(sum(status = 'in_progress'), 0) "
        f"FROM store_files WHERE store IN (SELECT number FROM stores WHERE {kept})",
        values,
    ).fetchone()
    return Usage(files, file_bytes + index_bytes, chunks, stores, waiting)
