"""Shared classifiers after losses: of values in the store, of a disk, of another release; nothing wrong is restored."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from backend.errors import Forbidden, Unavailable
from backend.replicas.records import Index, Version
from backend.text import classifier_sync
from backend.text.classifier_sync import KIND
from tests.replicas.conftest import OpenRecords, open_records
from tests.text.classification_setup import random_head, write_bundled_head
from tests.text.test_classifier_sync import (
    EXAMPLES,
    EXPECTED,
    ONE,
    OTHER_ENCODER,
    OTHER_EXAMPLES,
    TWO,
    Start,
    on_redis,
    start,
    start_on,
)

__all__ = ("on_redis", "open_records", "start", "start_on")


@pytest.fixture
def store_address(redis_server) -> tuple[str, str]:
    """PostgreSQL loses no values."""
    return "redis", redis_server.url


def labels_of(examples: Any) -> set[str]:
    return {label for example in examples for label in example.labels}


def evict(redis_server: Any, name: str) -> None:
    """What a Redis with the policy ``allkeys-lru`` does."""
    assert redis_server.client.delete(*redis_server.client.scan_iter(f"test:shared:classifiers:{name}:*"))


def refuse_disk(monkeypatch: pytest.MonkeyPatch, state_dir: Any) -> None:
    write = classifier_sync.write_folder

    def refuse(root: Any, *arguments: Any, **options: Any) -> None:
        if root.is_relative_to(state_dir):
            raise OSError(28, "No space left on device")
        write(root, *arguments, **options)

    monkeypatch.setattr(classifier_sync, "write_folder", refuse)


async def test_a_full_disk_restores_no_old_examples(start: Start, redis_server, monkeypatch):
    """It has the old version, the memory the new one: the store gets the new one's examples back."""
    one, two = await start("one"), await start("two")
    await one.service.train_classifier("mail", EXAMPLES)
    await two.look()
    refuse_disk(monkeypatch, two.state_dir)
    await one.service.train_classifier("mail", OTHER_EXAMPLES)
    await two.look()
    redis_server.client.flushall()
    for replica in (two, one, two):
        await replica.look()
    three = await start("three")

    assert {"yes", "no"} == labels_of(await three.sync.examples("mail")) == labels_of(await two.sync.examples("mail"))
    assert one.sync.version("mail") == three.sync.version("mail")


async def test_a_folder_that_another_replica_has_moved_on(start: Start):
    """Examples of a version that this replica does not know yet are not taken for those that it knows."""
    one = await start("one")
    await one.service.train_classifier("mail", EXAMPLES)
    one.sync.registry._entries["mail"].version = Version(9, "ab" * 8)
    examples = asyncio.create_task(one.sync.examples("mail"))

    with pytest.raises(Exception, match="another version"):
        await examples


async def test_values_that_nobody_has(start: Start, redis_server):
    """The name stays its owner's, who may teach it again; nobody else takes it."""
    one = await start("one")
    await one.service.train_classifier("mail", EXAMPLES, caller=ONE)
    await one.service.close()
    evict(redis_server, "mail")
    two = await start("two")
    await two.look()
    with pytest.raises(Unavailable):
        two.sync.registry.find("mail")
    with pytest.raises(Forbidden):
        await two.service.train_classifier("mail", EXAMPLES, caller=TWO)
    told = two.sync.degraded()
    await two.service.train_classifier("mail", EXAMPLES, caller=ONE)
    await two.look()

    assert "the store has lost its examples" in " ".join(told)
    assert EXPECTED == await two.predictions()
    assert () == two.sync.degraded()


async def test_older_copies_answer_on_while_newer_values_are_lost(start: Start, redis_server):
    """And what is taught then is not refused for ever."""
    one, two = await start("one"), await start("two")
    await one.service.train_classifier("mail", EXAMPLES)
    await two.look()
    await one.service.train_classifier("mail", OTHER_EXAMPLES)
    await one.service.close()
    evict(redis_server, "mail")
    await two.look()
    await two.look()
    answered = await two.predictions()
    await two.service.train_classifier("mail", OTHER_EXAMPLES)

    assert EXPECTED == answered
    assert ("yes", "no") == two.sync.registry.find("mail").head.labels


async def test_a_record_of_a_later_release(start: Start, open_records: OpenRecords, redis_server):
    """It is left alone: not written back in this release's words, and not asked for four times a second."""
    records = await open_records()
    one = await start("one")
    await one.service.train_classifier("mail", EXAMPLES)
    header = orjson.dumps({"format": 99, "owner": "somebody"})
    version = one.sync.version("mail")
    await records.write(KIND, "mail", "cd" * 8, expected=version, header=header, parts={"examples": b"?"})
    await one.look()
    redis_server.client.flushall()
    reads, index = list[str](), one.sync.records.index

    async def counting(kind: str) -> Index:
        reads.append(kind)
        return await index(kind)

    one.sync.records.index = counting  # type: ignore[method-assign]
    for _ in range(10):
        await one.look()

    assert {} == (await records.index(KIND)).entries
    assert 2 == len(reads)


async def test_faults_do_not_grow(start: Start, tmp_path):
    """A name that is bundled here and taught elsewhere is told once, and its examples are not read each time."""
    one = await start("one")
    await one.service.train_classifier("mail", EXAMPLES)
    write_bundled_head(tmp_path, "mail", random_head("a" * 64))
    two = await start("two")
    for number in range(3):
        await one.service.train_classifier(f"other-{number}", OTHER_EXAMPLES)
        await one.service.train_classifier("mail", OTHER_EXAMPLES)
        await two.look()

    assert 1 == len(two.sync.registry.faults)


async def test_what_is_taught_meanwhile_is_learnt_before_what_waits(start: Start, monkeypatch):
    """A classifier that cannot be learnt yet keeps none of the others pending."""
    one, two = await start("one"), await start("two", **OTHER_ENCODER)
    await one.service.train_classifier("first", EXAMPLES)
    trainer, waits = two.service._trainer, asyncio.Event()
    retrain = trainer._retrain

    async def first_waits(name: str) -> float | None:
        if name == "first":
            waits.set()
            return 0.0
        return await retrain(name)

    monkeypatch.setattr(trainer, "_retrain", first_waits)
    await two.look()
    await waits.wait()
    await one.service.train_classifier("second", EXAMPLES)
    await two.look()
    async with asyncio.timeout(120):
        while "second" not in two.names:
            await two.look()

    assert EXPECTED == await two.predictions("second")


async def test_requests_at_the_end(start: Start, redis_server, monkeypatch):
    """One that waits for the store while the replica stops gets 503, which says to try another."""
    one = await start("one")
    hangs = asyncio.Event()

    async def hanging(_kind: str) -> str:
        hangs.set()
        await asyncio.Event().wait()
        return ""

    monkeypatch.setattr(one.sync.records, "mark", hanging)
    request = asyncio.create_task(one.sync.refresh())
    await hangs.wait()
    await one.sync.close()

    with pytest.raises(Unavailable, match="this replica stops"):
        await request
