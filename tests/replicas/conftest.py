"""The stores of records, over a real server or in a folder; several stores are several replicas."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from backend.replicas.folder_records import FolderRecords
from backend.replicas.records import SharedRecords
from backend.replicas.redis_records import RedisRecords
from backend.search.postgres.shared_records import PostgresRecords

OpenRecords = Callable[[], Awaitable[Any]]
StartOn = Callable[..., Awaitable[Any]]


async def never(_seconds: float) -> None:
    """A pause of a background task that the test takes itself."""
    await asyncio.Event().wait()


def address_of(request: pytest.FixtureRequest) -> tuple[str, Any]:
    """Which store, and where it is."""
    if request.param == "folder":
        return "folder", request.getfixturevalue("tmp_path") / "records"
    server: Any = request.getfixturevalue("redis_server" if request.param == "redis" else "postgres_url")
    return request.param, server.url if request.param == "redis" else server


@pytest.fixture(params=["folder", "redis", "postgres"])
def store_address(request: pytest.FixtureRequest) -> tuple[str, Any]:
    return address_of(request)


@pytest.fixture
async def open_records(store_address: tuple[str, Any]) -> AsyncIterator[OpenRecords]:
    """Opens stores over the same data, as replicas do (of a folder there is one); all are closed after the test."""
    opened: list[Any] = []
    store, url = store_address
    kept = FolderRecords(url) if store == "folder" else None

    async def open_one() -> Any:
        if kept is not None:
            return kept
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
async def records(open_records: OpenRecords) -> Any:
    return await open_records()
