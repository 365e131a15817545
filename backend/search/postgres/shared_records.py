"""Shared records in PostgreSQL, beside the vector stores. Writes of one kind take turns on the row of their kind."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import asyncpg

from backend.errors import Unavailable
from backend.replicas.records import TOMBSTONES_MAX, Entry, Index, Outcome, Version, new_id
from backend.search.postgres.connections import ConnectionLimits, PostgresConnections

T = TypeVar("T")
_LIMITS = ConnectionLimits(connections=2, connect_s=3.0, command_s=10.0)
_ENTRY = "SELECT number, id, deleted, header FROM shared_entries WHERE kind = $1 AND name = $2"
_PUT_ENTRY = """
INSERT INTO shared_entries (kind, name, number, id, deleted, header) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (kind, name) DO UPDATE SET number = $3, id = $4, deleted = $5, header = $6, lost = false
"""
_FORGET_OLD_DELETIONS = """
WITH old AS (
    DELETE FROM shared_entries WHERE kind = $1 AND name IN (
        SELECT name FROM shared_entries WHERE kind = $1 AND deleted ORDER BY number DESC, name OFFSET $2
    ) RETURNING number
)
UPDATE shared_kinds SET floor = greatest(floor, (SELECT coalesce(max(number), 0) FROM old)) WHERE kind = $1
"""
_REPORT = """
INSERT INTO replicas (id, report, until) VALUES ($1, $2, clock_timestamp() + $3)
ON CONFLICT (id) DO UPDATE SET report = $2, until = clock_timestamp() + $3
"""
_PUT_TURN = """
INSERT INTO turns (what, replica, until) VALUES ($1, $2, clock_timestamp() + $3)
ON CONFLICT (what, replica) DO UPDATE SET until = clock_timestamp() + $3
"""


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind whose row this transaction holds."""

    connection: asyncpg.Connection
    name: str
    revision: int

    async def entry(self, name: str) -> Entry | None:
        row = await self.connection.fetchrow(_ENTRY, self.name, name)
        return None if row is None else _entry(row)

    async def live(self) -> int:
        query = "SELECT count(*) FROM shared_entries WHERE kind = $1 AND NOT deleted"
        count: int = await self.connection.fetchval(query, self.name)
        return count

    async def put(self, name: str, entry: Entry, parts: Mapping[str, bytes]) -> None:
        connection, kind, version = self.connection, self.name, entry.version
        await connection.execute(
            _PUT_ENTRY, kind, name, version.number, version.id, entry.is_deleted, bytes(entry.header)
        )
        await connection.execute("DELETE FROM shared_parts WHERE kind = $1 AND name = $2", kind, name)
        for part, content in parts.items():
            await connection.execute("INSERT INTO shared_parts VALUES ($1, $2, $3, $4)", kind, name, part, content)
        await connection.execute(_FORGET_OLD_DELETIONS, kind, TOMBSTONES_MAX)
        await self.changed(version.number)

    async def changed(self, number: int = 0) -> None:
        query = "UPDATE shared_kinds SET mark = $2, revision = greatest(revision, $3) WHERE kind = $1"
        await self.connection.execute(query, self.name, new_id(), number)


class PostgresRecords:
    """`SharedRecords` in the database of SEARCH_URL. Belongs to the event loop. Raises: BadSettings for a bad URL."""

    store = "postgres"

    def __init__(self, url: str) -> None:
        self._postgres = PostgresConnections(url, _LIMITS, clock=time.monotonic, what="classifiers and wished models")
        self.address = self._postgres.address
        self.start, self.close = self._postgres.start, self._postgres.close

    async def mark(self, kind: str) -> str:
        return await self._postgres.fetchval("SELECT mark FROM shared_kinds WHERE kind = $1", kind) or ""

    async def index(self, kind: str) -> Index:
        async with self._postgres.transaction(isolation="repeatable_read", readonly=True) as connection:
            row = await connection.fetchrow("SELECT mark FROM shared_kinds WHERE kind = $1", kind)
            query = "SELECT name, number, id, deleted, header FROM shared_entries WHERE kind = $1 ORDER BY name"
            rows = await connection.fetch(query, kind)
        entries = {each["name"]: _entry(each) for each in rows}
        return Index("" if row is None else row["mark"], entries)

    async def write(
        self,
        kind: str,
        name: str,
        write_id: str,
        *,
        expected: Version | None,
        header: bytes,
        parts: Mapping[str, bytes] | None,
        limit: int = 0,
    ) -> Outcome:
        async def once() -> Outcome:
            async with self._changing(kind) as state:
                now = await state.entry(name)
                if now is not None and now.version.id == write_id:
                    return Outcome("done", now)
                if (None if now is None else now.version) != expected:
                    return Outcome("other", now)
                is_new = now is None or now.is_deleted
                if limit and is_new and parts is not None and await state.live() >= limit:
                    return Outcome("full")
                number = max(state.revision, 0 if now is None else now.version.number) + 1
                entry = Entry(Version(number, write_id), parts is None, header)
                await state.put(name, entry, parts or {})
                return Outcome("done", entry)

        return await _twice(once)

    async def part(self, kind: str, name: str, version: Version, part: str) -> bytes | None:
        query = (
            "SELECT content FROM shared_parts JOIN shared_entries USING (kind, name) "
            "WHERE kind = $1 AND name = $2 AND number = $3 AND id = $4 AND part = $5"
        )
        content: bytes | None = await self._postgres.fetchval(query, kind, name, version.number, version.id, part)
        return content

    async def add_part(self, kind: str, name: str, version: Version, part: str, value: bytes) -> bool:
        async def once() -> bool:
            async with self._changing(kind) as state:
                now = await state.entry(name)
                if now is None or now.version != version or now.is_deleted:
                    return False
                query = "INSERT INTO shared_parts VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING RETURNING true"
                if not await state.connection.fetchval(query, kind, name, part, value):
                    return False
                await state.changed()
                return True

        return await _twice(once)

    async def report(self, replica: str, payload: bytes, keep_s: float) -> dict[str, bytes]:
        async with self._postgres.connection() as connection:
            await connection.execute(_REPORT, replica, payload, timedelta(seconds=keep_s))
            await connection.execute("DELETE FROM replicas WHERE until < clock_timestamp()")
            rows = await connection.fetch("SELECT id, report FROM replicas ORDER BY id")
        return {row["id"]: row["report"] for row in rows}

    async def leave(self, replica: str) -> None:
        async with self._postgres.connection() as connection:
            await connection.execute("DELETE FROM replicas WHERE id = $1", replica)
            await connection.execute("DELETE FROM turns WHERE replica = $1", replica)

    async def take_turn(self, what: str, replica: str, *, at_once: int, lease_s: float) -> bool:
        async with self._changing("turns") as state:
            connection = state.connection
            await connection.execute("DELETE FROM turns WHERE what = $1 AND until < clock_timestamp()", what)
            query = "SELECT count(*) FROM turns WHERE what = $1 AND replica <> $2"
            if await connection.fetchval(query, what, replica) >= at_once:
                return False
            await connection.execute(_PUT_TURN, what, replica, timedelta(seconds=lease_s))
            return True

    async def end_turn(self, what: str, replica: str) -> None:
        async with self._postgres.connection() as connection:
            await connection.execute("DELETE FROM turns WHERE what = $1 AND replica = $2", what, replica)

    @asynccontextmanager
    async def _changing(self, kind: str) -> AsyncIterator[_Kind]:
        """A transaction that has this kind to itself."""
        async with self._postgres.transaction() as connection:
            insert = "INSERT INTO shared_kinds VALUES ($1, '', 0, 0) ON CONFLICT DO NOTHING"
            await connection.execute(insert, kind)
            query = "SELECT revision FROM shared_kinds WHERE kind = $1 FOR UPDATE"
            row = await connection.fetchrow(query, kind)
            yield _Kind(connection, kind, row["revision"])


async def _twice(once: Callable[[], Awaitable[T]]) -> T:
    """Once more where the answer may have been lost: what was done is then recognised by its id."""
    try:
        return await once()
    except Unavailable:
        return await once()


def _entry(row: asyncpg.Record) -> Entry:
    return Entry(Version(row["number"], row["id"]), row["deleted"], row["header"])
