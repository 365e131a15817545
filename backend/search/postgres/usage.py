"""Counts what is stored, also while others of the same owner who add something wait."""

from __future__ import annotations

import asyncpg

from backend.search.records import Usage

_USAGE = """
SELECT
    (SELECT count(*) FROM files WHERE {who}),
    (SELECT coalesce(sum(size_bytes), 0) FROM files WHERE {who})
        + (SELECT coalesce(sum(f.usage_bytes), 0) FROM store_files f JOIN stores s ON s.id = f.store_id WHERE {who}),
    (SELECT coalesce(sum(chunks), 0) FROM stores WHERE {who}),
    (SELECT count(*) FROM stores WHERE {who}),
    (SELECT count(*) FROM store_files f JOIN stores s ON s.id = f.store_id WHERE f.status = 'in_progress' AND {who})
"""
_LOCK = "SELECT pg_advisory_xact_lock(1398035456, hashtext($1))"  # "STOR", so that no other lock of the database is met


async def usage(connection: asyncpg.Connection, owner: str | None) -> Usage:
    """What an owner has stored, with what this transaction has added; None: what all have."""
    arguments = () if owner is None else (owner,)
    row = await connection.fetchrow(_USAGE.format(who="true" if owner is None else "owner = $1"), *arguments)
    assert row is not None
    return Usage(*map(int, row))


async def usage_alone(connection: asyncpg.Connection, owner: str) -> Usage:
    """`usage`; until the transaction ends nobody else gets it for this owner, so that two do not take the last room."""
    await connection.execute(_LOCK, owner)
    return await usage(connection, owner)
