"""The stores of records keep their promises: one order of writes, and each done once."""

import asyncio

import pytest

from backend.replicas import folder_records, redis_records
from backend.replicas.records import Entry, Index, Outcome, Version, new_id
from backend.search.postgres import shared_records as postgres_records

KIND = "classifiers"
PARTS = {"examples": b"\x00\xff text\n", "head": b"x" * 300_000}


async def write(records, name="a", expected=None, *, header=b'{"owner": "me"}\n ', parts=PARTS, **more) -> Outcome:
    return await records.write(KIND, name, new_id(), expected=expected, header=header, parts=parts, **more)


def kept(outcome: Outcome) -> Entry:
    """What a write that was done has written."""
    assert "done" == outcome.status
    assert outcome.entry is not None
    return outcome.entry


async def test_what_one_writes_all_see(open_records):
    """Header and parts, byte for byte; the mark changes with every change and only then."""
    one, two = await open_records(), await open_records()
    marks = [await two.mark(KIND)]
    written = kept(await write(one))
    marks += [await two.mark(KIND), await two.mark(KIND)]
    index = await two.index(KIND)
    parts = {part: await two.part(KIND, "a", written.version, part) for part in (*PARTS, "none")}

    assert "" == marks[0] != marks[1] == marks[2] == index.mark
    assert {"a": written} == index.entries
    assert ({**PARTS, "none": None}, b'{"owner": "me"}\n ', False) == (parts, written.header, written.is_deleted)
    assert Index() == await two.index("models")


async def test_the_second_of_two_writers_is_told(open_records):
    """Two replicas replace the same version at once: one does, the other gets to know what stands now."""
    one, two = await open_records(), await open_records()
    first = kept(await write(one))
    outcomes = await asyncio.gather(*(write(each, expected=first.version, header=b"n") for each in (one, two)))
    (winner,) = [outcome for outcome in outcomes if outcome.status == "done"]
    (loser,) = [outcome for outcome in outcomes if outcome.status == "other"]

    assert winner.entry == loser.entry == (await one.index(KIND)).entries["a"]
    assert first.version.number + 1 == winner.entry.version.number
    assert None is await two.part(KIND, "a", first.version, "head"), "the old version takes no room"


async def test_a_record_that_was_never_there_is_no_version(records):
    """A record that the store has lost is not replaced by whoever still knows it, but by whoever knows that."""
    outcome = await write(records, expected=Version(7, "ab"))
    again = kept(await write(records))

    assert Outcome("other", None) == outcome
    assert Outcome("other", again) == await write(records, expected=None)


async def test_a_write_whose_answer_was_lost_is_done_once(records):
    """The same id again changes nothing."""
    same = new_id()
    outcomes = [await records.write(KIND, "a", same, expected=None, header=b"", parts=PARTS, limit=1) for _ in range(2)]

    assert outcomes[0] == outcomes[1]
    assert 1 == kept(outcomes[0]).version.number


async def test_a_deletion_is_remembered(records):
    """It has a version of its own, and counts for no limit."""
    first = kept(await write(records, limit=1))
    gone = kept(await write(records, expected=first.version, header=b"", parts=None))
    other = await write(records, "b", limit=1)
    back = await write(records, expected=gone.version, limit=2)

    assert (True, 2) == (gone.is_deleted, gone.version.number)
    assert ("done", "done") == (other.status, back.status)
    assert 4 == kept(back).version.number


async def test_a_limit(records):
    """Only a new record can be one too many."""
    first = kept(await write(records, limit=1))

    assert Outcome("full") == await write(records, "b", limit=1)
    assert "done" == (await write(records, expected=first.version, limit=1)).status


async def test_parts_are_added_to_the_version_that_stands(records):
    """One that is there is not replaced; a version that was replaced takes none. Each is a change."""
    first = kept(await write(records))
    marks = [await records.mark(KIND)]
    verdicts = [await records.add_part(KIND, "a", first.version, "more", value) for value in (b"1", b"2")]
    marks += [await records.mark(KIND)]
    second = kept(await write(records, expected=first.version))
    verdicts.append(await records.add_part(KIND, "a", first.version, "more", b"3"))

    assert [True, False, False] == verdicts
    assert marks[0] != marks[1]
    assert None is await records.part(KIND, "a", second.version, "more")


async def test_old_deletions_are_forgotten(records, monkeypatch):
    """So that the store does not grow."""
    for module in (folder_records, redis_records, postgres_records):
        monkeypatch.setattr(module, "TOMBSTONES_MAX", 2)
    entries = {name: kept(await write(records, name)) for name in "abcd"}
    for name, entry in entries.items():
        await write(records, name, entry.version, header=b"", parts=None)

    assert ["c", "d"] == sorted((await records.index(KIND)).entries)


@pytest.mark.parametrize("store_address", ["redis", "postgres"], indirect=True)
async def test_replicas_and_turns(open_records):
    """Who says that it runs is known to all until it leaves or falls silent; turns are bounded, and renewed."""
    one, two = await open_records(), await open_records()
    await one.report("gone", b"\n{}", keep_s=0.0)
    await one.report("one", b"\n{}", keep_s=600.0)
    told = await two.report("two", b"2", keep_s=600.0)
    turns = [
        await each.take_turn("embeddings", name, at_once=1, lease_s=600)
        for each, name in ((one, "one"), (two, "two"), (one, "one"))
    ]
    await one.end_turn("embeddings", "one")
    turns.append(await two.take_turn("embeddings", "two", at_once=1, lease_s=0))
    turns.append(await one.take_turn("embeddings", "one", at_once=1, lease_s=600))
    await one.leave("one")

    assert {"one": b"\n{}", "two": b"2"} == told
    assert [True, False, True, True, True] == turns
    assert {"two": b"3"} == await two.report("two", b"3", keep_s=600.0)


@pytest.mark.parametrize("raw", [b"", b"nonsense", b"12 zz", b"\xff \xfe 1 x"])
async def test_foreign_bytes_in_redis(redis_server, raw):
    """They are a version older than all, which a write replaces; nothing fails."""
    redis_server.client.hset("test:shared:classifiers", "a", raw)
    records = redis_records.RedisRecords(redis_server.url, "test")
    entry = (await records.index(KIND)).entries["a"]
    outcome = await write(records, expected=entry.version, limit=5)
    await records.close()

    assert Version(0, "") == entry.version
    assert 1 == kept(outcome).version.number


async def test_no_key_of_a_record_expires(redis_server):
    """A Redis that is full drops what expires first: vectors and ended jobs, and never a classifier."""
    records = redis_records.RedisRecords(redis_server.url, "test")
    await write(records)
    await records.close()

    assert {-1} == {redis_server.client.ttl(key) for key in redis_server.client.scan_iter()}


async def test_a_redis_that_is_full_changes_nothing(redis_server):
    """Unavailable with its words; the version before stands, whole."""
    records = redis_records.RedisRecords(redis_server.url, "test")
    first = kept(await write(records))
    redis_server.client.config_set("maxmemory", "1mb")
    redis_server.client.config_set("maxmemory-policy", "noeviction")
    with pytest.raises(postgres_records.Unavailable, match=r"refuses .*maxmemory"):
        await write(records, expected=first.version, parts={"head": b"y" * 4_000_000})
    redis_server.client.config_set("maxmemory", "0")
    index, part = await records.index(KIND), await records.part(KIND, "a", first.version, "head")
    await records.close()

    assert ({"a": first}, PARTS["head"]) == (index.entries, part)
