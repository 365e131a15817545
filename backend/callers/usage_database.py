"""The callers' usage in an SQLite file of STATE_DIR: of one machine, where there is no Redis."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from backend.callers.usage_records import KEPT_MONTHS, Batch, Counts, Usage, stamps, usage_of
from backend.errors import Unavailable

_BUSY_S = 5.0  # another process of this machine may be writing; a write takes milliseconds
_SCHEMA = (
    """
CREATE TABLE IF NOT EXISTS used (
    owner TEXT, period TEXT, stamp INTEGER,
    requests INTEGER NOT NULL, tokens INTEGER NOT NULL, pages INTEGER NOT NULL, refused INTEGER NOT NULL,
    PRIMARY KEY (owner, period, stamp)
) WITHOUT ROWID
""",
    "CREATE TABLE IF NOT EXISTS told (source TEXT PRIMARY KEY, number INTEGER NOT NULL, minute INTEGER NOT NULL)",
)
# Changes no row where this batch, or a later one of its process, is in the file.
_TELL = """
INSERT INTO told VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET number = excluded.number, minute = excluded.minute
WHERE excluded.number > number
"""
_ADD = """
INSERT INTO used VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET requests = requests + excluded.requests,
tokens = tokens + excluded.tokens, pages = pages + excluded.pages, refused = refused + excluded.refused
"""
_FORGET = "DELETE FROM used WHERE period = ? AND stamp < ?"
_FORGET_SOURCES = "DELETE FROM told WHERE minute < ?"
_TOLD_MINUTES = 1440  # a process tells a batch again within seconds of its store's return
_READ = "SELECT period, stamp, requests, tokens, pages, refused FROM used WHERE owner = ?"


class UsageDatabase:
    """A `UsageStore`. Each call opens the file on a thread: there is one a second at most.

    Args:
        now_s: Unix seconds.
    """

    shared_by = "the processes that share STATE_DIR"

    def __init__(self, path: Path, *, now_s: Callable[[], float] = lambda: datetime.now(UTC).timestamp()) -> None:
        self._path, self._now_s = path, now_s

    async def add(self, batch: Batch) -> None:
        """All of a batch or nothing, in one transaction, and once.

        A call that is cancelled goes on in its thread: told again meanwhile, the second waits for the first.
        """
        await asyncio.to_thread(self._add, batch)

    async def read(self, owners: Sequence[str]) -> Mapping[str, Usage]:
        return await asyncio.to_thread(self._read, owners)

    async def close(self) -> None: ...

    def _add(self, batch: Batch) -> None:
        now_s = self._now_s()
        rows = [
            (one.owner, period, stamp, *one.counts)
            for one in batch.slices
            for period, stamp in stamps(now_s - one.age_s)._asdict().items()
        ]
        now = stamps(now_s)
        old = (("minute", now.minute - 1), ("day", now.day - 1), ("month", now.month - KEPT_MONTHS + 1))
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with closing(self._open()) as connection, connection:
                for table in _SCHEMA:
                    connection.execute(table)
                if connection.execute(_TELL, (batch.source, batch.number, now.minute)).rowcount:
                    connection.executemany(_ADD, rows)
                connection.executemany(_FORGET, old)
                connection.execute(_FORGET_SOURCES, (now.minute - _TOLD_MINUTES,))
        except (sqlite3.Error, OSError) as error:
            raise self._away(error) from error

    def _read(self, owners: Sequence[str]) -> dict[str, Usage]:
        now_s = self._now_s()
        if not self._path.exists():
            return {owner: Usage(now_s) for owner in owners}
        try:
            with closing(self._open()) as connection:
                found = {owner: connection.execute(_READ, (owner,)).fetchall() for owner in owners}
        except (sqlite3.Error, OSError) as error:
            raise self._away(error) from error
        return {
            owner: usage_of(now_s, {(row[0], row[1]): Counts(*row[2:]) for row in found[owner]}) for owner in owners
        }

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=_BUSY_S)

    def _away(self, error: Exception) -> Unavailable:
        return Unavailable(f"the usage of callers is not kept: {self._path.name} in STATE_DIR: {error}")
