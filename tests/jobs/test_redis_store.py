"""Faults that only a shared store can have: races, error replies, foreign content."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest

from backend.errors import BadSettings, TooLarge, Unavailable
from backend.jobs.redis_store import RedisJobOptions, RedisJobStore
from tests.jobs.samples import LIMITS, job, moved, upload

pytestmark = pytest.mark.redis


@pytest.fixture
async def connect(redis_server):
    """Open a store; all are closed after the test."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(**options):
            store = RedisJobStore(RedisJobOptions(redis_server.url, **options), LIMITS, monotonic=time.monotonic)
            stack.push_async_callback(store.close)
            await store.start()
            return store

        yield start


async def added(store, record, key=None):
    with contextlib.closing(upload()) as stored:
        return await store.add(record, stored, key, pinned=False)


async def test_equal_requests_at_once_are_one_job(connect, redis_server):
    """On all replicas; the files of the duplicates are removed."""
    stores = [await connect() for _ in range(3)]
    jobs = [job(str(number), same="same") for number in range(12)]
    kept = await asyncio.gather(
        *(added(stores[int(record.id) % 3], record, "key" if int(record.id) % 2 else None) for record in jobs)
    )

    assert 1 == len({record.id for record in kept})
    assert 1 == len(redis_server.client.keys("*:file"))
    assert 1 == redis_server.client.xlen("financia:jobs:queue")


async def test_each_job_is_taken_once(connect):
    stores = [await connect() for _ in range(3)]
    taken: asyncio.Queue[str] = asyncio.Queue()

    async def work(store: RedisJobStore) -> None:
        while True:
            taken.put_nowait((await store.take()).job_id)

    workers = [asyncio.create_task(work(store)) for store in stores]
    for number in range(12):
        await added(stores[number % 3], job(str(number)))
    found = [await asyncio.wait_for(taken.get(), 20) for _ in range(12)]
    for worker in workers:
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)

    assert {str(number) for number in range(12)} == set(found)
    assert taken.empty()


async def test_one_of_two_simultaneous_changes_wins(connect):
    here, there = await connect(), await connect()
    record = job()
    await added(here, record)
    verdicts = await asyncio.gather(
        here.swap(record, moved(record, "start")), there.swap(record, moved(record, "cancel"))
    )

    assert ["done", "stale"] == sorted(verdicts)


async def test_a_claim_that_was_taken_over_is_not_renewed(connect):
    """It belongs to the replica that took it over."""
    late, living = await connect(lease_s=0.1), await connect(lease_s=0.1)
    await added(late, job())
    claim = await late.take()
    new_claim = await asyncio.wait_for(living.take(), 20)

    assert claim == new_claim
    assert "taken" == await late.renew(claim, None)
    assert "kept" == await living.renew(new_claim, None)


async def test_a_full_redis_takes_no_jobs(connect, redis_server):
    """The error says what to do, and nothing is left half written."""
    store = await connect()
    redis_server.client.config_set("maxmemory", "1")

    with pytest.raises(Unavailable, match=r"takes no jobs \(.*maxmemory.*/v1/documents"):
        await added(store, job())
    redis_server.client.config_set("maxmemory", "0")
    assert await store.find("one") is None
    assert job() == await added(store, job())


async def test_a_result_has_a_limit(connect):
    store = await connect(result_bytes=10)
    record = job()
    await added(store, record)
    running = moved(record, "start")
    await store.swap(record, running)

    with pytest.raises(TooLarge, match="LIMIT_JOB_BYTES"):
        await store.swap(running, moved(running, "succeed"), b"12345678901")
    assert "done" == await store.swap(running, moved(running, "fail"))


async def test_watchers_leave_connections_for_jobs(connect):
    """As many watchers as there may be: jobs are still taken."""
    store = await connect(watchers=2, settle_s=0.2)
    await added(store, job())
    watchers = [store.events("one", "") for _ in range(2)]
    for watcher in watchers:
        assert "progress" == (await anext(watcher)).kind

    assert "one" == (await store.take()).job_id
    for watcher in watchers:
        await watcher.aclose()


async def test_cancellations_after_a_lost_connection(connect, redis_proxy, redis_server):
    disconnected = RedisJobStore(
        RedisJobOptions(redis_proxy.url, lease_s=0.2, settle_s=1.0), LIMITS, monotonic=time.monotonic
    )
    await disconnected.start()
    other = await connect()
    first, second = job("one"), job("two")
    for each in (first, second):
        await added(other, each)
    received: asyncio.Queue[str] = asyncio.Queue()

    async def listen() -> None:
        async for job_id in disconnected.cancellations():
            received.put_nowait(job_id)

    listening = asyncio.create_task(listen())
    await other.swap(first, moved(first, "cancel"))
    assert "one" == await asyncio.wait_for(received.get(), 20)
    redis_proxy.cut()
    await other.swap(second, moved(second, "cancel"))
    assert "two" == await asyncio.wait_for(received.get(), 20)
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    await disconnected.close()


@pytest.mark.parametrize("url", ["http://x", "redis://:p#w@host", "nonsense"])
def test_bad_urls(url):
    """The error names the setting, and not the password."""
    with pytest.raises(BadSettings, match="REDIS_URL") as received:
        RedisJobStore(RedisJobOptions(url), LIMITS, monotonic=time.monotonic)
    assert "p#w" not in str(received.value)


async def test_the_name_of_another_key_is_no_job(connect):
    """An id that a client made up of another's: a stream is no hash, and Redis says so."""
    store = await connect()
    await added(store, job("one"))

    assert None is await store.find("one:events")
