"""Stores, the files in them and batches: limits, wrong input, expiry, and nobody sees what is another's."""

import pytest

from backend.errors import NotFound, QuotaExceeded, TooLarge, WrongEncoder
from backend.search.limits import SearchLimits
from backend.search.records import ListPage
from backend.search.upkeep import ExpiryTask
from backend.search.vector_stores import NewFile, StoreChange
from tests.search.conftest import Open
from tests.search.samples import stored
from tests.search.search_stack import OTHER, OWNER, SearchStack
from tests.text.service_stack import VectorEngine, loaded_model


async def test_a_change_is_activity(search: SearchStack) -> None:
    store = await search.store(expires_after_days=7)
    search.clock.advance(10)
    changed = await search.stores.change(OWNER, store.id, StoreChange(name="Otra"))

    assert 10 == changed.last_active_s - store.last_active_s


LIMITS = [
    pytest.param({"vector_stores": 1}, "LIMIT_VECTOR_STORES", id="stores"),
    pytest.param({"stored_files": 1}, "LIMIT_STORED_FILES", id="files"),
    pytest.param({"stored_bytes": 20}, "LIMIT_STORED_BYTES", id="bytes"),
    pytest.param({"stored_chunks": 1}, "LIMIT_STORED_CHUNKS", id="chunks"),
]


@pytest.mark.parametrize(("limits", "setting"), LIMITS)
async def test_limits_name_their_setting(open_search: Open, limits: dict[str, int], setting: str) -> None:
    """And are those of one key."""
    search = await open_search(limits=SearchLimits(**limits))
    search.indexer()
    store = await search.store()
    await search.ended(store.id, await search.add(store.id))

    with pytest.raises(TooLarge, match=setting):
        await search.add((await search.store()).id)
    await search.upload(owner=OTHER)


async def test_files_that_wait_are_limited(open_search: Open) -> None:
    """The next ones are refused until some are indexed, also those of a batch and of a new store."""
    search = await open_search(limits=SearchLimits(waiting_files=2))
    store = await search.store()
    waiting, other = [await search.add(store.id) for _ in range(2)], await search.upload()

    for call in (
        search.stores.add_files(OWNER, store.id, [NewFile(other)]),
        search.stores.add_batch(OWNER, store.id, [NewFile(other)]),
        search.stores.create(OWNER, files=[NewFile(other)]),
    ):
        with pytest.raises(QuotaExceeded, match="LIMIT_WAITING_FILES"):
            await call
    stores = (await search.stores.list_stores(OWNER, ListPage()))[0]
    search.indexer()
    for file_id in waiting:
        await search.ended(store.id, file_id)
    await search.stores.add_files(OWNER, store.id, [NewFile(other)])

    assert [store.id] == [one.id for one in stores]


async def test_many_files_are_looked_up_in_one_call(search: SearchStack) -> None:
    store = await search.store()
    file_ids = [await search.upload() for _ in range(5)]
    search.storage.calls.clear()

    await search.stores.add_batch(OWNER, store.id, [NewFile(file_id) for file_id in file_ids])

    assert (1, 0) == (search.storage.calls["files_of"], search.storage.calls["file"])


async def test_a_batch_outlives_its_files(search: SearchStack) -> None:
    """Whoever polls it finds it on, also when its only file was added again, or taken out of the store."""
    store = await search.store()
    file = NewFile(await search.upload())
    first = await search.stores.add_batch(OWNER, store.id, [file])
    second = await search.stores.add_batch(OWNER, store.id, [file])
    replaced = await search.stores.batch(OWNER, store.id, first.id)
    await search.stores.remove_file(OWNER, store.id, file.file_id)
    removed = await search.stores.batch(OWNER, store.id, second.id)

    assert ("in_progress", 1) == (second.status, second.counts["in_progress"])
    assert [("completed", {})] * 2 == [(batch.status, batch.counts) for batch in (replaced, removed)]


async def test_what_has_expired_is_gone_and_then_deleted(search: SearchStack) -> None:
    """A store counts from its last activity, a file from its upload."""
    store, kept = await search.store(expires_after_days=1), await search.store()
    with stored(b"Hola") as content:
        record = await search.files.upload(OWNER, content, "a.txt", "user_data", expires_after_s=3600)
    expiry = ExpiryTask(search.storage, search.stack.telemetry, search.supervisor, now=search.clock)  # type: ignore[arg-type]
    search.clock.advance(86_000)
    await search.add(store.id)  # activity
    search.clock.advance(3_600)
    await expiry.look()
    still_there = await search.stores.find(OWNER, store.id)
    search.clock.advance(86_400)

    with pytest.raises(NotFound):
        await search.stores.find(OWNER, store.id)
    with pytest.raises(NotFound):
        await search.files.find(OWNER, record.id)
    await expiry.look()

    assert still_there.id == store.id
    assert await search.storage.store(OWNER, store.id) is None
    assert await search.storage.file(OWNER, record.id) is None
    assert [kept.id] == [row.id for row in (await search.stores.list_stores(OWNER, ListPage()))[0]]
    assert 1 == search.stack.metric("vector_stores")
    assert 1 == search.stack.metric("stored_files")


async def test_lists_that_are_deleted_page_by_page(search: SearchStack) -> None:
    """Every row is seen once: the last one of the page before need not be there any more."""
    store = await search.store()
    file_ids = [await search.upload() for _ in range(5)]
    await search.stores.add_files(OWNER, store.id, [NewFile(file_id) for file_id in file_ids])
    seen: dict[str, list[str]] = {"store": [], "files": []}
    after, has_more = None, True
    while has_more:
        rows, has_more = await search.stores.list_files(OWNER, store.id, ListPage(limit=2, after=after))
        seen["store"] += [row.file_id for row in rows]
        after = rows[-1].file_id
        for row in rows:
            await search.stores.remove_file(OWNER, store.id, row.file_id)
    after, has_more = None, True
    while has_more:
        files, has_more = await search.files.list_files(OWNER, ListPage(limit=2, after=after))
        seen["files"] += [file.id for file in files]
        after = files[-1].id
        for file in files:
            await search.files.delete(OWNER, file.id)

    assert {"store": sorted(file_ids), "files": sorted(file_ids)} == {name: sorted(ids) for name, ids in seen.items()}


async def test_a_page_stands_upright(search: SearchStack) -> None:
    """Of a file that no store has read, as a viewer shows it."""
    file_id = await search.upload()

    assert b"3 at 110" == await search.files.page_image(OWNER, file_id, 3, 110)
    assert [0] == search.rotations


async def test_a_store_of_another_model_takes_no_files(search: SearchStack) -> None:
    """They would wait for ever; once it is being re-embedded it does."""
    search.indexer()
    store = await search.store()
    await search.ended(store.id, await search.add(store.id))
    search.stack.catalog.replace(loaded_model(VectorEngine(), sha256="other"))

    with pytest.raises(WrongEncoder, match="reembed"):
        await search.add(store.id)
    await search.stores.reembed(OWNER, store.id)

    file = await search.ended(store.id, await search.add(store.id))
    assert "completed" == file.status
