"""A store is embedded anew in the background: the old vectors answer, nothing is lost, and it goes on after a stop."""

import asyncio
from typing import Any

import pytest

from backend.errors import NotFound, Unavailable
from backend.lanes.cache.store import Enter, cached_for, share_with_all
from backend.search import upkeep
from backend.search.document_chunks import PASSAGE, identity_of
from backend.search.records import VectorStore
from tests.fakes import TEST_TIMEOUT_S
from tests.search.search_stack import OTHER, OWNER, Paid, SearchStack
from tests.text.service_stack import FailingVectorEngine, GatedVectorEngine, VectorEngine, loaded_model

TEXTS = [f"Texto número {number}." for number in range(5)]


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "CHUNKS_AT_ONCE", 2)


async def filled(search: SearchStack) -> VectorStore:
    """A store with some files of the first model."""
    indexer = search.indexer()
    store = await search.store()
    for text in TEXTS:
        await search.ended(store.id, await search.add(store.id, text.encode()))
    await indexer.close()
    search.running.clear()
    return await search.stores.find(OWNER, store.id)


def swap(search: SearchStack, name: str, engine: Any = None) -> Any:
    model = loaded_model(engine or VectorEngine(), sha256=name)
    search.stack.catalog.replace(model)
    return model


async def switched(search: SearchStack, store: VectorStore, model: Any, owner: str = OWNER) -> VectorStore:
    """The store once it has the vectors of a model."""
    async with asyncio.timeout(TEST_TIMEOUT_S):
        while (now := await search.stores.find(owner, store.id)).encoder != identity_of(model):
            await search.storage.next_call.wait()
    return now


async def test_a_store_is_embedded_anew(search: SearchStack) -> None:
    store = await filled(search)
    model = swap(search, "second")
    search.reembedder()

    begun = await search.stores.reembed(OWNER, store.id)
    now = await switched(search, store, model)

    [vector] = (await search.stack.service.embed([TEXTS[3]], PASSAGE)).vectors
    [best] = await search.storage.nearest(now, vector, None, 1)
    [chunk] = await search.storage.chunks(store.id, [best.chunk_id])
    assert begun.reembedding is not None or begun.encoder == identity_of(model)
    assert now.reembedding is None
    assert TEXTS[3] == chunk.text
    assert best.score == pytest.approx(1.0, abs=0.02)
    assert 5 == search.stack.metric("reembedded_chunks_total")


async def test_it_goes_on_where_it_stopped(search: SearchStack) -> None:
    """Also when the storage failed in between."""
    store = await filled(search)
    model = swap(search, "second")
    first = search.reembedder(poll_s=1000.0)
    search.storage.errors["put_vectors"] = []
    await search.stores.reembed(OWNER, store.id)
    await search.storage.when("put_vectors")
    await first.close()
    search.storage.errors["unembedded"] = [Unavailable("away")]

    search.reembedder()
    await switched(search, store, model)

    assert 5 <= search.stack.metric("reembedded_chunks_total") <= 7  # a step that was cut off may be done again


async def test_the_old_vectors_answer_meanwhile(search: SearchStack) -> None:
    store = await filled(search)
    [old] = (await search.stack.service.embed([TEXTS[0]], PASSAGE)).vectors
    engine = GatedVectorEngine()
    model = swap(search, "second", engine)
    search.reembedder()
    await search.stores.reembed(OWNER, store.id)
    assert await asyncio.to_thread(engine.entered.wait, TEST_TIMEOUT_S)

    now = await search.stores.find(OWNER, store.id)
    [best] = await search.storage.nearest(now, old, None, 1)
    engine.gate.set()
    await switched(search, store, model)

    assert store.encoder == now.encoder
    assert (0, 5) == (now.reembedding.chunks_done, now.reembedding.chunks_total)
    assert best.score == pytest.approx(1.0, abs=0.02)


async def test_files_added_meanwhile_are_there_afterwards(search: SearchStack) -> None:
    store = await filled(search)
    engine = GatedVectorEngine()
    model = swap(search, "second", engine)
    search.indexer()
    search.reembedder()
    await search.stores.reembed(OWNER, store.id)
    file_id = await search.add(store.id, b"Otro texto nuevo.")
    engine.gate.set()

    await search.ended(store.id, file_id)
    now = await switched(search, store, model)

    [vector] = (await search.stack.service.embed(["Otro texto nuevo."], PASSAGE)).vectors
    [best] = await search.storage.nearest(now, vector, None, 1)
    [chunk] = await search.storage.chunks(store.id, [best.chunk_id])
    assert 6 == now.chunks
    assert file_id == chunk.file_id


async def test_a_store_that_is_deleted_meanwhile(search: SearchStack) -> None:
    """Is gone; the next one is re-embedded."""
    doomed = await filled(search)
    engine = GatedVectorEngine()
    model = swap(search, "second", engine)
    search.reembedder()
    await search.stores.reembed(OWNER, doomed.id)
    assert await asyncio.to_thread(engine.entered.wait, TEST_TIMEOUT_S)

    await search.stores.delete(OWNER, doomed.id)
    engine.gate.set()
    await search.storage.when("reembedding_stores", 3)

    with pytest.raises(NotFound):
        await search.stores.find(OWNER, doomed.id)
    assert identity_of(model) == identity_of(search.stack.catalog.embedding())
    assert 0 == search.stack.metric("background_failures_total", task="reembed_stores")


async def test_the_model_is_swapped_again_meanwhile(search: SearchStack) -> None:
    """The second change waits for a new beginning, and none of its vectors is taken for the third model's."""
    store = await filled(search)
    swap(search, "second")
    search.storage.errors["put_vectors"] = [Unavailable("away")]
    search.reembedder(poll_s=1000.0)
    await search.stores.reembed(OWNER, store.id)
    await search.storage.when("put_vectors failed")
    third = swap(search, "third")

    await search.stores.reembed(OWNER, store.id)
    now = await switched(search, store, third)

    [vector] = (await search.stack.service.embed([TEXTS[1]], PASSAGE)).vectors
    [best] = await search.storage.nearest(now, vector, None, 1)
    assert best.score == pytest.approx(1.0, abs=0.02)


async def test_a_store_that_has_the_models_vectors_stays(search: SearchStack) -> None:
    """An empty one too."""
    store, empty = await filled(search), await search.store()

    again = [await search.stores.reembed(OWNER, one.id) for one in (store, empty)]

    assert [None, None] == [one.reembedding for one in again]
    assert 0 == search.storage.calls["begin_reembedding"]


async def test_a_step_that_fails_is_charged(search: SearchStack) -> None:
    """What lanes began for it: else a store that fails at each look computes for nothing."""
    store = await filled(search)
    search.meter = Paid()
    swap(search, "second", FailingVectorEngine())
    search.reembedder(poll_s=1000.0)
    await search.stores.reembed(OWNER, store.id)

    assert await search.meter.next_tokens() > 0
    assert 0 == search.stack.metric("reembedded_chunks_total")


@pytest.mark.parametrize(("enter", "expected"), [(cached_for, 2), (share_with_all, 1)])
async def test_whose_cache_a_store_uses(search: SearchStack, enter: Enter, expected: int) -> None:
    """With CACHE_SCOPE=key its owner's alone: equal chunks of two owners are embedded anew for each."""
    search.enter = enter
    indexer = search.indexer()
    stores = {owner: await search.indexed(owner, TEXTS[0].encode()) for owner in (OWNER, OTHER)}
    await indexer.close()
    search.running.clear()
    model = swap(search, "second")
    search.reembedder()
    for owner, store in stores.items():
        await search.stores.reembed(owner, store.id)
        await switched(search, store, model, owner)

    assert expected == sum(len(batch) for batch in model.engine.batches)
