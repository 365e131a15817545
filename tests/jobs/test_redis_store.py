"""What only a shared store can get wrong: races, refusals, foreign content."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest

from backend.errors import BadSettings, Overloaded, TooLarge, Unavailable
from backend.jobs.records import PageNote
from backend.jobs.redis_options import RedisJobOptions
from backend.jobs.redis_store import RedisJobStore
from tests.jobs.samples import LIMITS, NOW_S, job, moved, upload

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


async def added(store, one, key=None):
    with contextlib.closing(upload()) as stored:
        return await store.add(one, stored, key, here=False)


async def test_equal_requests_at_once_are_one_job(connect, redis_server):
    """Whichever replica takes them; the files of the others do not stay behind."""
    stores = [await connect() for _ in range(3)]
    jobs = [job(str(number), same="same") for number in range(12)]
    kept = await asyncio.gather(
        *(added(stores[int(one.id) % 3], one, "key" if int(one.id) % 2 else None) for one in jobs)
    )

    assert 1 == len({one.id for one in kept})
    assert 1 == len(redis_server.client.keys("*:file"))
    assert 1 == redis_server.client.xlen("financia:jobs:queue")


async def test_each_job_is_taken_once(connect):
    """By whichever replica is free."""
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


async def test_one_of_two_changes_wins(connect):
    """Whatever they are and however close."""
    here, there = await connect(), await connect()
    one = job()
    await added(here, one)
    verdicts = await asyncio.gather(here.swap(one, moved(one, "start")), there.swap(one, moved(one, "cancel")))

    assert ["done", "stale"] == sorted(verdicts)


async def test_a_claim_that_was_taken_over_is_not_renewed(connect):
    """Its new owner keeps it."""
    late, living = await connect(lease_s=0.1), await connect(lease_s=0.1)
    await added(late, job())
    claim = await late.take()
    taken_over = await asyncio.wait_for(living.take(), 20)

    assert claim == taken_over
    assert not await late.renew(claim, None)
    assert await living.renew(taken_over, None)


async def test_what_belongs_to_a_job_lives_as_long(connect, redis_server):
    """A job that ran for long must not lose its file before its end."""
    store = await connect()
    one = job()
    await added(store, one)
    running = moved(one, "start", now_s=NOW_S + 50)
    await store.swap(one, running)
    await store.note(running, running.progress, PageNote(1, b"packed", b"{}"))
    done = moved(running, "succeed", now_s=NOW_S + 500)
    await store.swap(running, done, b"{}")
    keys = [key for key in redis_server.client.keys("*") if b":job:" in key or b":same:" in key]

    assert 6 == len(keys)
    assert {round(done.expires_s * 1000)} == {redis_server.client.pexpiretime(key) for key in keys}


async def test_a_full_redis_takes_no_jobs(connect, redis_server):
    """503 with what to do, and nothing half kept."""
    store = await connect()
    redis_server.client.config_set("maxmemory", "1")

    with pytest.raises(Unavailable, match=r"takes no jobs \(.*maxmemory.*/v1/documents"):
        await added(store, job())
    redis_server.client.config_set("maxmemory", "0")
    assert await store.find("one") is None
    assert job() == await added(store, job())


async def test_a_result_has_a_limit(connect):
    """The job can then be ended in another way."""
    store = await connect(result_bytes=10)
    one = job()
    await added(store, one)
    running = moved(one, "start")
    await store.swap(one, running)

    with pytest.raises(TooLarge, match="LIMIT_JOB_BYTES"):
        await store.swap(running, moved(running, "succeed"), b"12345678901")
    assert "done" == await store.swap(running, moved(running, "fail"))


async def test_what_another_version_wrote_is_no_job(connect, redis_server):
    """It is not guessed at."""
    store = await connect()
    await added(store, job())
    redis_server.client.hset("financia:job:one", "record", b'{"id":"one"}')

    assert await store.find("one") is None


async def test_watchers_leave_room_for_work(connect):
    """Each holds a connection: too many are refused, and jobs are taken all the same."""
    store = await connect(watchers=2, settle_s=0.2)
    await added(store, job())
    watchers = [store.events("one", "") for _ in range(3)]
    for watcher in watchers[:2]:
        assert "progress" == (await anext(watcher)).kind
    with pytest.raises(Overloaded, match=r"3 clients .* limit of 2"):
        await anext(watchers[2])

    assert "one" == (await store.take()).job_id
    for watcher in watchers:
        await watcher.aclose()
    async with contextlib.aclosing(store.events("one", "")) as again:
        assert "progress" == (await anext(again)).kind


async def test_an_emptied_redis_gets_its_queue_again(connect, redis_server):
    """Who waits for jobs goes on waiting, and gets the next."""
    store = await connect(lease_s=0.2)
    taking = asyncio.create_task(store.take())
    await asyncio.sleep(0)
    redis_server.client.flushall()
    await added(store, job())

    assert "one" == (await asyncio.wait_for(taking, 20)).job_id


async def test_stops_are_heard_after_a_break(connect, redis_proxy, redis_server):
    """What was cancelled while the connection was down is told of when it is back."""
    deaf = RedisJobStore(RedisJobOptions(redis_proxy.url, lease_s=0.2, settle_s=1.0), LIMITS, monotonic=time.monotonic)
    await deaf.start()
    other = await connect()
    one, two = job("one"), job("two")
    for each in (one, two):
        await added(other, each)
    heard: asyncio.Queue[str] = asyncio.Queue()

    async def listen() -> None:
        async for job_id in deaf.stops():
            heard.put_nowait(job_id)

    listening = asyncio.create_task(listen())
    await other.swap(one, moved(one, "cancel"))
    assert "one" == await asyncio.wait_for(heard.get(), 20)
    redis_proxy.cut()
    await other.swap(two, moved(two, "cancel"))
    assert "two" == await asyncio.wait_for(heard.get(), 20)
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    await deaf.close()


@pytest.mark.parametrize("url", ["http://x", "redis://:p#w@host", "nonsense"])
def test_no_address(url):
    """The start says which setting it is, and not the password."""
    with pytest.raises(BadSettings, match="REDIS_URL") as told:
        RedisJobStore(RedisJobOptions(url), LIMITS, monotonic=time.monotonic)
    assert "p#w" not in str(told.value)
