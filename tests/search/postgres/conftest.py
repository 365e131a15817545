"""The storage under test, on a database of its own."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

import asyncpg
import pytest

from backend.files.limits import FileLimits
from backend.search.postgres.storage import PostgresSearchStorage
from tests.fakes import ManualClock


class ServerClock(ManualClock):
    """Leases are by the server's clock: instead of it, what it is compared with is moved."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url

    def advance(self, seconds: float) -> None:
        super().advance(seconds)
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, self._move_leases(seconds)).result()

    async def _move_leases(self, seconds: float) -> None:
        connection = await asyncpg.connect(self._url)
        await connection.execute(
            "UPDATE financia.store_files SET claimed_until = claimed_until - $1 * interval '1 second'", seconds
        )
        await connection.close()


@pytest.fixture
def clock(postgres_url: str) -> ServerClock:
    return ServerClock(postgres_url)


@pytest.fixture
async def open_storage(postgres_url: str) -> AsyncIterator[Callable[[], Awaitable[PostgresSearchStorage]]]:
    """Opens storages over the same database, as replicas do; all are closed after the test."""
    opened = []

    async def open_one() -> PostgresSearchStorage:
        storage = PostgresSearchStorage(postgres_url, FileLimits())
        await storage.start()
        opened.append(storage)
        return storage

    yield open_one
    for storage in opened:
        await storage.close()


@pytest.fixture
async def storage(open_storage: Callable[[], Awaitable[PostgresSearchStorage]]) -> PostgresSearchStorage:
    return await open_storage()


@pytest.fixture
async def reopen(
    storage: PostgresSearchStorage, open_storage: Callable[[], Awaitable[PostgresSearchStorage]]
) -> Callable[[], Awaitable[PostgresSearchStorage]]:
    """Closes the storage and opens another over the same data."""

    async def again() -> PostgresSearchStorage:
        await storage.close()
        return await open_storage()

    return again
