"""Whose results a cache key stands for."""

import asyncio

from backend.lanes.cache.store import KEY_BYTES, CacheNamespace, cached_for, entry, owner_scope

KEYS = CacheNamespace("model", "task")


def test_each_owner_has_keys_of_its_own():
    """Of texts, ids and files; without an owner they are those of before."""
    shared = [KEYS.key("text", "a"), KEYS.key("ids", [1]), KEYS.key("file", b"a")]
    owned = []
    for owner in ("a" * 32, "b" * 32):
        with cached_for(owner):
            owned += [KEYS.key("text", "a"), KEYS.key("ids", [1]), KEYS.key("file", b"a")]
            with cached_for(""):
                assert shared == [KEYS.key("text", "a"), KEYS.key("ids", [1]), KEYS.key("file", b"a")]
            assert owned[-3:] == [KEYS.key("text", "a"), KEYS.key("ids", [1]), KEYS.key("file", b"a")]

    assert 9 == len({*shared, *owned})
    assert {KEY_BYTES} == {len(key) for key in owned}
    assert shared == [KEYS.key("text", "a"), KEYS.key("ids", [1]), KEYS.key("file", b"a")]


async def test_a_task_keeps_the_owner_that_it_was_started_for():
    """Also when another owner's work runs between."""
    seen: list[tuple[bytes, bytes]] = []

    async def work(owner: str) -> None:
        before = owner_scope()
        await asyncio.sleep(0)
        seen.append((before, owner_scope()))
        assert owner.encode() == before

    tasks = []
    for owner in ("a", "b", "a"):
        with cached_for(owner):
            tasks.append(asyncio.create_task(work(owner)))
    await asyncio.gather(*tasks)

    assert [(b"a", b"a"), (b"b", b"b"), (b"a", b"a")] == seen
    assert b"" == owner_scope()


def test_the_setting():
    """`service` shares everything."""
    for scope, expected in (("service", b""), ("key", b"a")):
        with entry(scope)("a"):  # type: ignore[arg-type]  # a literal
            assert expected == owner_scope()
