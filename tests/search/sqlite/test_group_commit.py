"""Writes that wait at the same time share one transaction, and fail alone."""

import asyncio
import sqlite3
import threading
from pathlib import Path

import pytest

from backend.errors import Unavailable
from backend.search.sqlite.database import Database


async def test_waiting_writes_share_a_transaction(tmp_path: Path) -> None:
    """One that fails is undone alone; the others are there, also for a reader."""
    database = Database(tmp_path / "search", check_new=lambda: None, prepare=lambda _: None)
    await database.open()
    began, gate = threading.Event(), threading.Event()
    commits: list[str] = []

    def hold(connection: sqlite3.Connection) -> None:
        connection.execute("CREATE TABLE numbers (number INTEGER UNIQUE)")
        connection.set_trace_callback(lambda sql: commits.append(sql) if sql == "COMMIT" else None)
        began.set()
        gate.wait(10.0)

    def insert(number: int, connection: sqlite3.Connection) -> int:
        connection.execute("INSERT INTO numbers VALUES (?)", (-number,))
        connection.execute("INSERT INTO numbers VALUES (?)", (number,))
        return number

    first = asyncio.create_task(database.write(hold))
    await asyncio.to_thread(began.wait, 10.0)
    others = [asyncio.create_task(database.write(lambda one, n=n: insert(n, one))) for n in (1, 2, 2, 3)]  # type: ignore[misc]
    await asyncio.sleep(0)
    gate.set()
    results = await asyncio.gather(first, *others, return_exceptions=True)
    kept = await database.read(lambda one: [n for (n,) in one.execute("SELECT number FROM numbers ORDER BY number")])
    await database.close()

    assert [None, 1, 2, 3] == [one for one in results if not isinstance(one, BaseException)]
    assert isinstance(results[3], Unavailable)
    assert [-3, -2, -1, 1, 2, 3] == kept
    assert 2 == len(commits)


async def test_a_transaction_that_cannot_be_kept_fails_all_its_writes(tmp_path: Path) -> None:
    database = Database(tmp_path / "search", check_new=lambda: None, prepare=lambda _: None)
    await database.open()

    def end(connection: sqlite3.Connection) -> None:
        connection.execute("ROLLBACK")
        raise sqlite3.OperationalError("interrupted")

    with pytest.raises(Unavailable):
        await database.write(end)
    again = await database.write(lambda one: one.execute("SELECT 1").fetchone())
    await database.close()

    assert (1,) == again
