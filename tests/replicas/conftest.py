"""The two stores of shared records, each over a real server; several stores are several replicas."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from backend.replicas.records import SharedRecords
from backend.replicas.redis_records import RedisRecords
from backend.search.postgres.shared_records import PostgresRecords

OpenRecords = Callable[[], Awaitable[SharedRecords]]
StartOn = Callable[..., Awaitable[Any]]


async def never(_seconds: float) -> None:
    """A pause of a background task that the test takes itself."""
    await asyncio.Event().wait()


@pytest.fixture(params=["redis", "postgres"])
def store_address(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Which store, and where it is."""
    server: Any = request.getfixturevalue("redis_server" if request.param == "redis" else "postgres_url")
    return request.param, server.url if request.param == "redis" else server


@pytest.fixture
async def open_records(store_address: tuple[str, str]) -> AsyncIterator[OpenRecords]:
    """Opens stores over the same data, as replicas do; all are closed after the test."""
    opened: list[SharedRecords] = []
    store, url = store_address

    async def open_one() -> SharedRecords:
        records: SharedRecords
        records = RedisRecords(url, "test") if store == "redis" else PostgresRecords(url)
        await records.start()
        opened.append(records)
        return records

    yield open_one
    for records in opened:
        await records.close()


@pytest.fixture
async def start(start_on: StartOn, open_records: OpenRecords) -> Callable[..., Awaitable[Any]]:
    """Starts a replica, as the test's own ``start_on`` makes one, with a connection of its own to the store."""

    async def run(name: str, **options: Any) -> Any:
        return await start_on(await open_records(), name, **options)

    return run


@pytest.fixture
async def records(open_records: OpenRecords) -> SharedRecords:
    return await open_records()
