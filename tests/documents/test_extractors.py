"""Taught extractors: kept, owned, limited, known to all replicas."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from backend.callers.callers import ANYBODY, read_key_ring
from backend.documents import extractors
from backend.documents.extractors import Extractor, ExtractorStore, found
from backend.errors import Forbidden, InvalidField, NotFound, Unavailable
from backend.replicas.records import Index
from backend.replicas.redis_records import RedisRecords
from tests.replicas.conftest import OpenRecords, open_records, store_address

__all__ = ["open_records", "store_address"]

ONE, TWO, ADMIN = read_key_ring(("one=first-secret", "two=second-secret"), ("ops=admin-secret",)).callers
EXTRACTOR = Extractor("notes", None, '["plate"]', "[]", 3, 1767225600.5)
Open = Callable[[], Awaitable[ExtractorStore]]


@pytest.fixture
async def open_store(open_records: OpenRecords) -> Open:
    """Opens the store as a process does when it starts, and as another replica does."""

    async def open_one() -> ExtractorStore:
        return ExtractorStore(await open_records())

    return open_one


async def test_kept_for_good(open_store: Open) -> None:
    """What was taught is there after a restart, and for other replicas, until it is deleted."""
    first, second = await open_store(), await open_store()
    await first.save(EXTRACTOR, ANYBODY)
    changed = await second.save(replace(EXTRACTOR, schema='["km"]'), ANYBODY)

    assert [changed] == await first.all() == await (await open_store()).all()
    assert changed == await found(first, "notes")
    await first.delete("notes", ANYBODY)
    assert [] == await second.all()
    with pytest.raises(NotFound, match="there is no 'notes'"):
        await second.delete("notes", ANYBODY)


async def test_whose_it_is(open_store: Open) -> None:
    """Who taught it, and admins, may change it; it stays theirs whoever replaces it."""
    store = await open_store()
    await store.save(EXTRACTOR, ONE)

    with pytest.raises(Forbidden):
        await store.save(EXTRACTOR, TWO)
    with pytest.raises(Forbidden):
        await store.delete("notes", TWO)
    await store.save(EXTRACTOR, ADMIN)
    assert ONE.owner == (await found(store, "notes")).owner
    await store.delete("notes", ONE)


async def test_what_another_replica_taught_meanwhile(redis_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two teach the same name at once: the slower one is asked again whether it may replace what there is now."""
    records = [RedisRecords(redis_server.url, "test") for _ in range(2)]
    slow, quick = map(ExtractorStore, records)
    real = records[0].index

    async def overtaken(kind: str) -> Index:
        seen = await real(kind)
        if not seen.entries:
            await quick.save(EXTRACTOR, TWO)
        return seen

    for one in records:
        await one.start()
    monkeypatch.setattr(records[0], "index", overtaken)
    try:
        with pytest.raises(Forbidden, match="another key"):
            await slow.save(EXTRACTOR, ONE)
        assert [TWO.owner] == [kept.owner for kept in await quick.all()]
    finally:
        for one in records:
            await one.close()


async def test_no_more_than_may_be(open_store: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit holds for new names; what there is may be replaced."""
    monkeypatch.setattr(extractors, "EXTRACTORS_MAX", 1)
    store = await open_store()
    await store.save(EXTRACTOR, ANYBODY)
    await store.save(EXTRACTOR, ANYBODY)

    with pytest.raises(InvalidField, match="as many as there may be"):
        await store.save(replace(EXTRACTOR, name="other"), ANYBODY)


async def test_a_store_that_is_away(redis_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica answers from its copies, and neither teaches nor invents then."""
    records = RedisRecords(redis_server.url, "test")
    await records.start()
    store = ExtractorStore(records)
    await store.save(EXTRACTOR, ANYBODY)

    async def away(*_: object, **__: object) -> None:
        raise Unavailable("away")

    for name in ("mark", "index", "write"):
        monkeypatch.setattr(records, name, away)

    assert EXTRACTOR == await store.get("notes")
    for call in (partial(store.get, "other"), partial(store.save, EXTRACTOR, ANYBODY)):
        with pytest.raises(Unavailable):
            await call()
    await records.close()
