"""Calls that change the same rows at the same time wait for one another, and never in a circle."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from backend.search.postgres import stores
from backend.search.postgres.storage import PostgresSearchStorage
from backend.search.records import KeywordQuery
from tests.search.postgres.server import PostgresServer
from tests.search.samples import (
    ENCODER,
    LEASE_S,
    OTHER_ENCODER,
    add_indexed,
    current,
    indexed,
    store_file,
    unit_vectors,
    upload,
)
from tests.search.samples import vector_store as new_store


@pytest.fixture
async def other(postgres_server: PostgresServer, postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection that holds locks while the storage's calls queue up behind it."""
    connection = await postgres_server.connect(postgres_url.rpartition("/")[2])
    yield connection
    await connection.close()


async def test_a_file_leaves_while_its_vectors_come(storage: PostgresSearchStorage, other: asyncpg.Connection):
    """Both calls are answered: `detach` takes the file and then its store, and so does `put_vectors`."""
    await storage.add_store(new_store())
    await add_indexed(storage, "file-1", ["alpha"])
    await storage.begin_reembedding("vs_1", OTHER_ENCODER)
    ((chunk, _),) = await storage.unembedded("vs_1", OTHER_ENCODER, 10)
    vectors = unit_vectors(1, width=OTHER_ENCODER.width)
    async with other.transaction():
        await other.execute("SELECT FROM financia.store_files FOR UPDATE")
        detaching = await _waiting(other, 1, storage.detach("vs_1", "file-1"))
        putting = await _waiting(other, 2, storage.put_vectors("vs_1", OTHER_ENCODER, [chunk], vectors))

    assert [True, None] == await asyncio.gather(detaching, putting)
    await storage.swept()
    assert 0 == await other.fetchval("SELECT count(*) FROM financia.vectors")


async def test_files_are_attached_anew_while_one_is_finished(storage: PostgresSearchStorage, other: asyncpg.Connection):
    """`attach` takes all its files before a deletion among them takes their store, which `finish` waits for."""
    await storage.add_store(new_store())
    await add_indexed(storage, "file-1", ["alpha"])
    await upload(storage, "file-2")
    await storage.attach([store_file("file-2")])
    claim = await storage.claim(ENCODER, LEASE_S)
    assert claim is not None
    async with other.transaction():
        await other.execute("SELECT FROM financia.stores FOR UPDATE")
        attaching = await _waiting(other, 1, storage.attach([store_file("file-1"), store_file("file-2")]))
        finishing = await _waiting(other, 2, storage.finish(claim, indexed(["beta"])))

    assert [None, False] == await asyncio.gather(attaching, finishing)
    assert {"in_progress": 2} == (await current(storage)).counts


async def test_a_large_file_is_removed_in_slices(
    storage: PostgresSearchStorage, other: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
):
    """A deletion waits for none of its chunks, nobody finds them from then on, and others write between two slices."""
    monkeypatch.setattr(stores, "SLICE_ROWS", 10)
    await storage.add_store(new_store())
    await add_indexed(storage, "file-1", [f"alpha {n}" for n in range(35)])
    await add_indexed(storage, "file-2", ["alpha"])
    store, query = await current(storage), unit_vectors(1)[0]
    counts = "SELECT count(*) FROM financia.chunks", "SELECT count(*) FROM financia.vectors"
    async with other.transaction():
        await other.execute("SELECT FROM financia.chunks FOR UPDATE")  # the sweeper waits for it
        await storage.delete_file("ana", "file-1")
        near = await storage.nearest(store, query, None, 100)
        matching = await storage.matching(store, KeywordQuery(("alpha",)), None, 100)
        await upload(storage, "file-3")
        left = [await other.fetchval(count) for count in counts]
    await storage.swept()

    assert [1, 1] == [len(near), len(matching)]
    assert [36, 36] == left
    assert [1, 1] == [await other.fetchval(count) for count in counts]
    assert 0 == await other.fetchval("SELECT count(*) FROM financia.pending_deletes")


@pytest.mark.parametrize("way", ["detached", "deleted", "attached anew", "with its store"])
async def test_words_of_removed_files_do_not_stay(storage: PostgresSearchStorage, other: asyncpg.Connection, way: str):
    """Not in a live row of any table, of one file among many; the server's vacuum does the rest."""
    for store in ("vs_1", "vs_2"):
        await storage.add_store(new_store(store))
    await add_indexed(storage, "file-1", ["alpha", "alpha kept1"])
    await add_indexed(storage, "file-2", ["alpha", "alpha secret2"], store_id="vs_2", found={"tax_ids": ["secret2"]})
    before = await _tables_with(other, "secret2")
    if way == "deleted":
        await storage.delete_file("ana", "file-2")
    elif way == "detached":
        await storage.detach("vs_2", "file-2")
    elif way == "with its store":
        await storage.delete_store("ana", "vs_2")
    else:
        await storage.attach([store_file("file-2", "vs_2")])
    await storage.swept()

    assert {"chunks", "postings", "attributes", "store_files"} == before
    assert set() == await _tables_with(other, "secret2")
    assert {"chunks", "postings"} == await _tables_with(other, "kept1")


async def _tables_with(connection: asyncpg.Connection, word: str) -> set[str]:
    """The tables with a row that has the word, as text or as bytes."""
    tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'financia'")
    query = "SELECT count(*) FROM financia.{} row WHERE strpos(row::text, $1) + strpos(row::text, $2) > 0"
    counts = {name: await connection.fetchval(query.format(name), word, word.encode().hex()) for (name,) in tables}
    return {name for name, count in counts.items() if count}


async def _waiting(other: asyncpg.Connection, count: int, call: Any) -> asyncio.Task[Any]:
    """The call, begun; returns when so many calls wait for a lock."""
    task = asyncio.create_task(call)
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    while await other.fetchval(query) < count:
        assert not task.done(), task
        await other.execute("SELECT pg_stat_clear_snapshot()")
    return task
