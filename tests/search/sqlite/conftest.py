"""Storages in temporary folders."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from backend.search.sqlite.storage import SqliteOptions, SqliteStorage
from tests.fakes import ManualClock


@pytest.fixture
def opened(tmp_path: Path, clock: ManualClock) -> list[SqliteStorage]:
    """The storages that a test has opened; the last one is in use."""
    return [SqliteStorage(SqliteOptions(tmp_path / "search"), clock=clock)]


@pytest.fixture
async def storage(opened: list[SqliteStorage]) -> AsyncIterator[SqliteStorage]:
    await opened[0].start()
    yield opened[0]
    await opened[-1].close()


@pytest.fixture
def reopen(opened: list[SqliteStorage], tmp_path: Path, clock: ManualClock) -> Callable[[], Awaitable[SqliteStorage]]:
    async def close_and_open() -> SqliteStorage:
        await opened[-1].close()
        opened.append(SqliteStorage(SqliteOptions(tmp_path / "search"), clock=clock))
        await opened[-1].start()
        return opened[-1]

    return close_and_open
