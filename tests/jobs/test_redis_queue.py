"""Claims, leases and lives of jobs in the queue of Redis, between replicas and after Redis lost everything; races."""

import asyncio
import contextlib
import time
from dataclasses import replace

import pytest

from backend.errors import BadSettings, JobOfAnotherRelease, TooLarge, Unavailable
from backend.jobs import redis_queue
from backend.jobs.document_codec import RECORD_FORMAT
from backend.jobs.records import PageRecord, Progress
from backend.jobs.redis_store import RedisJobOptions, RedisJobStore
from tests.fakes import TEST_TIMEOUT_S, ManualClock
from tests.jobs.samples import LIMITS, job, moved, upload

pytestmark = pytest.mark.redis

DAY_S = 86_400
PAGE = PageRecord(1, b"packed", b'{"number":1}')


@pytest.fixture
async def connect(redis_server):
    """Open a store; all are closed after the test."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(monotonic=time.monotonic, **options):
            store = RedisJobStore(RedisJobOptions(redis_server.url, **options), LIMITS, monotonic=monotonic)
            stack.push_async_callback(store.close)
            await store.start()
            return store

        yield start


async def added(store, record, key=None, *, pinned=False):
    with contextlib.closing(upload()) as stored:
        return await store.add(record, stored, key, pinned=pinned)


async def started(store, record=None):
    """Add, take and start a job."""
    record = record or job()
    await added(store, record)
    claim = await asyncio.wait_for(store.take(), 20)
    assert "done" == await store.swap(record, moved(record, "start"), claim=claim)
    return claim, moved(record, "start")


def keys_of(client, job_id="one"):
    names = ("same", "key")
    return [key for key in client.keys("*") if f":job:{job_id}".encode() in key or key.split(b":")[2].decode() in names]


# A job lives as long as it waits or runs, and JOB_TTL_S after its end.


async def test_a_live_job_outlives_its_time_to_live(connect, redis_server):
    """With its file, its events, and the keys that lead to it, also one that came later."""
    store = await connect()
    await added(store, job(same="same"), "first")
    await added(store, job("two", same="same"), "second")
    for record in (job(same="same"), moved(job(same="same"), "start")):
        assert all(redis_server.client.ttl(key) > 7 * DAY_S for key in keys_of(redis_server.client))
        await store.swap(record, moved(record, "start"))

    assert 7 == len(keys_of(redis_server.client))  # job, file, events, names, same, both keys


async def test_the_time_to_live_counts_from_the_end(connect, redis_server):
    store = await connect()
    _, running = await started(store)
    await added(store, job("two", same=running.same), "key")
    await store.write_progress(running, Progress("reading", 1, 1), PAGE)
    done = moved(running, "succeed")
    await store.swap(running, done, b"{}")

    expiries = {redis_server.client.pexpiretime(key) for key in keys_of(redis_server.client)}
    assert {round(done.expires_s * 1000)} == expiries
    assert 8 == len(keys_of(redis_server.client))


async def test_jobs_that_wait_for_long_are_kept(connect, redis_server, monkeypatch):
    """The sweep extends the lives of all their keys, a few jobs at each renewal; it comes again after an hour."""
    monkeypatch.setattr(redis_queue, "ENTRIES", 2)
    clock = ManualClock()
    store, client = await connect(clock), redis_server.client
    for job_id in ("one", "two", "three", "four"):
        await added(store, job(job_id), f"key-{job_id}", pinned=job_id == "one")
    for _ in range(2):
        keys = [key for key in client.keys("*") if client.ttl(key) > 0]
        for key in keys:
            client.expire(key, 1000)
        for _ in range(3):  # two, one, and the pinned one
            await store.renew_waiting()
        clock.advance(3600.0)

        assert 4 * 6 == len(keys)  # job, file, events, names, same, key
        assert all(client.ttl(key) > 7 * DAY_S for key in keys)


async def test_the_name_of_a_newer_job_is_left_alone(connect, redis_server):
    """An old job's end does not shorten the life of the key that leads to its successor."""
    store = await connect()
    old, new = job("old", same="same"), job("new", same="same")
    await added(store, old)
    running = moved(old, "start")
    await store.swap(old, running)
    await store.swap(running, moved(running, "fail"))
    await added(store, new)
    await store.forget(moved(running, "fail"))

    assert b"new" == redis_server.client.get("financia:jobs:same:same")
    assert redis_server.client.ttl("financia:jobs:same:same") > 7 * DAY_S


async def test_the_sweep_removes_what_belongs_to_no_job(connect, redis_server):
    """An entry whose job is gone takes no place under LIMIT_JOBS; a pinned one that nobody has is taken by somebody."""
    store, client = await connect(), redis_server.client
    _, running = await started(store, job("ended"))
    await store.swap(running, moved(running, "fail"))
    client.xadd("financia:jobs:queue", {"job": "ended"})
    await added(store, job("one"))
    await added(store, job("lost"))
    await added(store, job("torn"), pinned=True)
    client.delete("financia:job:lost")
    client.xgroup_destroy("financia:jobs:kept", "workers")  # as if the claim had not been written
    client.xgroup_create("financia:jobs:kept", "workers", "$")
    store.queue._pinned_claims.clear()
    for _ in range(4):
        await store.renew_waiting()

    assert [b"one"] == [fields[b"job"] for _, fields in client.xrange("financia:jobs:queue")]
    assert "torn" == (await (await connect()).take()).job_id


async def test_processes_that_ended_are_forgotten(connect, redis_server, monkeypatch):
    """Each start adds a consumer to the group; those with jobs to be taken over stay."""
    monkeypatch.setattr(redis_queue, "CONSUMER_IDLE_S", -1.0)
    client = redis_server.client
    client.xgroup_create("financia:jobs:queue", "workers", "0", mkstream=True)
    for consumer in ("ended", "died"):
        client.xgroup_createconsumer("financia:jobs:queue", "workers", consumer)
    store = await connect()
    await added(store, job())
    client.xreadgroup("workers", "died", {"financia:jobs:queue": ">"}, count=1)
    for _ in range(4):
        await store.renew_waiting()

    assert [b"died"] == [consumer["name"] for consumer in client.xinfo_consumers("financia:jobs:queue", "workers")]


# Redis comes back empty.


async def test_a_running_job_that_redis_lost_is_written_again(connect, redis_server):
    """With the next renewal: it is seen, has a place in the queue of its own, ends, and takes its result along."""
    store, other = await connect(), await connect()
    claim, running = await started(store)
    redis_server.client.flushall()
    assert "kept" == await store.renew(claim, running)
    assert "kept" == await store.renew(claim, running)

    assert replace(running, progress=Progress()) == await other.find("one")
    await other.renew_waiting()
    assert 1 == other.waiting()
    watching = asyncio.create_task(kinds_of(other, "one"))
    done = moved(running, "succeed")
    assert "done" == await store.swap(running, done, b"{}")
    assert "end" == (await asyncio.wait_for(watching, 20))[-1]
    assert b"{}" == await other.result(done)
    await other.renew_waiting()
    assert 0 == other.waiting()


async def kinds_of(store, job_id):
    return [event.kind async for event in store.events(job_id, "")]


async def test_a_job_that_was_written_again_just_before_its_end(connect, redis_server):
    """Between the last change, which found it lost, and the restoring: the end counts."""
    store = await connect()
    claim, running = await started(store)
    done = moved(running, "succeed")
    redis_server.client.flushall()
    assert "gone" == await store.swap(running, done, b"{}")
    assert "kept" == await store.renew(claim, running)
    await store.write_progress(running, Progress("reading", 1, 1), PAGE)
    await store.restore(done, b"{}")

    assert done == await store.find("one")
    assert b"{}" == await store.result(done)
    assert {round(done.expires_s * 1000)} == {
        redis_server.client.pexpiretime(key) for key in keys_of(redis_server.client)
    }
    await store.renew_waiting()
    assert 0 == store.waiting()


async def test_progress_of_a_job_that_redis_lost(connect, redis_server):
    """The next page writes the job again, with the page."""
    store = await connect()
    _, running = await started(store)
    redis_server.client.flushall()

    assert await store.write_progress(running, Progress("reading", 1, 2), PAGE)
    assert {1: b"packed"} == await store.pages("one")
    assert ("running", 1) == ((found := await store.find("one")).status, found.progress.pages_done)


async def test_a_job_that_was_written_again_is_cancelled(connect, redis_server):
    """By any replica; the one that runs it learns of it."""
    store, other = await connect(), await connect()
    claim, running = await started(store)
    redis_server.client.flushall()
    await store.renew(claim, running)
    assert "done" == await other.swap(running, moved(running, "cancel"))

    assert "taken" == await store.renew(claim, running)
    assert "stale" == await store.swap(running, moved(running, "succeed"), b"{}")
    assert 0 == redis_server.client.xlen("financia:jobs:kept")


async def test_a_job_that_was_written_again_is_taken_over(connect, redis_server):
    """When its process dies too; its file is lost, and the job says so when it is read."""
    dead, living = await connect(lease_s=0.1), await connect(lease_s=0.1)
    claim, running = await started(dead)
    redis_server.client.flushall()
    await dead.renew(claim, running)
    taken = await asyncio.wait_for(living.take(), 20)

    assert "one" == taken.job_id
    assert "done" == await living.swap(running, moved(running, "start"), claim=taken)
    assert await living.file("one") is None
    assert "taken" == await dead.renew(claim, running)


async def test_only_the_queue_is_lost(connect, redis_server):
    """The job gets a new place."""
    store = await connect()
    claim, running = await started(store)
    redis_server.client.delete("financia:jobs:queue", "financia:jobs:kept")

    assert "kept" == await store.renew(claim, running)
    await store.renew_waiting()
    assert 1 == store.waiting()


async def test_renewals_and_settling_in_an_empty_redis(connect, redis_server):
    """No group, no queue: nothing raises, and pinned jobs that are lost are forgotten."""
    store = await connect()
    await added(store, job())
    claim = await asyncio.wait_for(store.take(), 20)
    await added(store, job("pinned"), pinned=True)
    redis_server.client.flushall()

    assert "gone" == await store.renew(claim, None)
    await store.settle(claim)
    for _ in range(4):
        await store.renew_waiting()
    assert 0 == store.waiting()
    await added(store, job("two"), pinned=True)
    assert "two" == (await asyncio.wait_for(store.take(), 20)).job_id


# Claims that another replica took over.


async def test_a_stale_claim_starts_nothing(connect):
    """The job runs where it was taken over, once."""
    late, living = await connect(lease_s=0.1), await connect(lease_s=0.1)
    await added(late, job())
    old = await asyncio.wait_for(late.take(), 20)
    new = await asyncio.wait_for(living.take(), 20)

    assert "lost" == await late.swap(job(), moved(job(), "start"), claim=old)
    assert "done" == await living.swap(job(), moved(job(), "start"), claim=new)
    assert job() != await late.find("one")


async def test_a_claim_on_an_earlier_place_starts_nothing(connect):
    """The job was queued again, and waits for somebody else at its new place."""
    store, other = await connect(), await connect()
    claim, running = await started(store)
    queued = moved(running, "requeue")
    await store.swap(running, queued)

    assert "lost" == await store.swap(queued, moved(queued, "start"), claim=claim)
    again = await asyncio.wait_for(other.take(), 20)
    assert "done" == await other.swap(queued, moved(queued, "start"), claim=again)


async def test_an_entry_that_came_for_no_worker_is_left_to_others(connect):
    """A password job took the last worker while a read of the shared queue was under way."""
    here, there = await connect(), await connect()
    taking = asyncio.create_task(here.take())
    await asyncio.sleep(0)
    await added(here, job("pinned"), pinned=True)
    assert "pinned" == (await asyncio.wait_for(taking, 20)).job_id
    read = here.queue._read_task
    assert read is not None
    await added(there, job("shared"))
    await asyncio.wait_for(asyncio.shield(read), 20)
    await here.renew_waiting()

    claim = await asyncio.wait_for(there.take(), 20)
    assert "shared" == claim.job_id
    assert "done" == await there.swap(job("shared"), moved(job("shared"), "start"), claim=claim)


async def test_a_late_settlement_removes_no_waiting_job(connect, redis_server):
    """Only an entry that no job stands at."""
    store = await connect()
    await added(store, job())
    claim = await asyncio.wait_for(store.take(), 20)
    await store.settle(claim)
    assert 1 == redis_server.client.xlen("financia:jobs:queue")
    redis_server.client.delete("financia:job:one")
    await store.settle(claim)
    assert 0 == redis_server.client.xlen("financia:jobs:queue")


# A rolling upgrade.


def age(client, job_id, record_format=RECORD_FORMAT + 1):
    """Rewrite a job as another release would."""
    packed = client.hget(f"financia:job:{job_id}", "record")
    changed = packed.replace(b'"format":%d' % RECORD_FORMAT, b'"format":%d' % record_format)
    assert packed != changed
    client.hset(f"financia:job:{job_id}", mapping={"record": changed, "format": record_format})


async def test_a_job_of_another_release_is_not_absent(connect, redis_server):
    """Its key is not free for another job, and it is not deleted; an equal request without a key gets a new job."""
    store = await connect()
    await added(store, job(same="same"), "key")
    age(redis_server.client, "one")

    with pytest.raises(JobOfAnotherRelease, match="job 'one'"):
        await store.find("one")
    with pytest.raises(JobOfAnotherRelease):
        await added(store, job("two", same="same"), "key")
    assert "three" == (await added(store, job("three", same="same"))).id
    assert 2 == redis_server.client.xlen("financia:jobs:queue")


async def test_the_sweep_leaves_jobs_that_no_release_reads_to_expire(connect, redis_server):
    store, client = await connect(), redis_server.client
    for job_id in ("one", "two"):
        await added(store, job(job_id))
        client.expire(f"financia:job:{job_id}", 1000)
    age(client, "two")
    await store.renew_waiting()

    assert client.ttl("financia:job:one") > 7 * DAY_S
    assert client.ttl("financia:job:two") <= 1000
    assert 2 == client.xlen("financia:jobs:queue")


# Closing


async def test_a_worker_that_has_just_begun_to_wait_is_stopped(connect):
    """At any moment, with a blocking read of minutes: the read ends with the worker, not after its time."""
    store = await connect(lease_s=1000.0)
    store.queue._reclaimed_s = time.monotonic()  # it goes to the blocking read at once
    for turns in range(24):
        worker = asyncio.create_task(store.take())
        for _ in range(turns):
            await asyncio.sleep(0)
        worker.cancel()
        await asyncio.wait({worker}, timeout=TEST_TIMEOUT_S)

        assert worker.done(), f"after {turns} turns of the loop"
        assert worker.cancelled()


async def test_closing_a_store_whose_redis_is_silent(redis_proxy, monkeypatch):
    """A claim that cannot be given back is left to its lease, and what waits for Redis ends."""
    monkeypatch.setattr(redis_queue, "CLOSE_S", 0.05)
    options = RedisJobOptions(redis_proxy.url, lease_s=1000.0, settle_s=1000.0)
    store = RedisJobStore(options, LIMITS, monotonic=time.monotonic)
    await store.start()
    await added(store, job())
    queue = store.queue
    words = ("XREADGROUP", "GROUP", redis_queue.GROUP, queue.consumer, "COUNT", "1")
    queue._read_task = asyncio.create_task(store._redis.read(*words, streams={queue.shared: ">"}))
    await queue._read_task
    redis_proxy.open.clear()
    asking = asyncio.create_task(store.find("one"))
    async with asyncio.timeout(TEST_TIMEOUT_S):
        await store.close()

        with pytest.raises(Unavailable):
            await asking


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
