"""The contract of job stores, on both stores."""

import asyncio
import contextlib
import time

import pytest

from backend.errors import InvalidField, Overloaded
from backend.jobs.memory_store import MemoryJobStore
from backend.jobs.records import PageRecord, Progress
from backend.jobs.redis_store import RedisJobOptions, RedisJobStore
from tests.fakes import ManualClock
from tests.jobs.samples import CONTENT, LIMITS, NOW_S, job, moved, upload

PAGE = PageRecord(1, b"packed", b'{"number":1}')
MAX_JOBS = 3


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.redis)])
async def store(request):
    async with contextlib.AsyncExitStack() as stack:
        if request.param == "memory":
            made = MemoryJobStore(MAX_JOBS, 10_000_000, LIMITS, ManualClock(NOW_S))
        else:
            url = request.getfixturevalue("redis_server").url
            made = RedisJobStore(RedisJobOptions(url, limit_jobs=MAX_JOBS), LIMITS, monotonic=time.monotonic)
        stack.push_async_callback(made.close)
        await made.start()
        yield made


async def added(store, record, key=None, content=CONTENT):
    with contextlib.closing(upload(content)) as stored:
        return await store.add(record, stored, key, pinned=False)


async def started(store, record):
    """Add, take and start a job."""
    await added(store, record)
    claim = await store.take()
    running = moved(record, "start")
    assert "done" == await store.swap(record, running)
    return claim, running


async def events_of(store, job_id, after="", count=None):
    """Events from ``after`` to the end, or so many."""
    events = []
    async with contextlib.aclosing(store.events(job_id, after)) as received:
        async for event in received:
            events.append(event)
            if len(events) == count:
                break
    return events


async def test_add_find_and_take(store):
    """A new job has its file, and is taken in order."""
    first, second = job("one"), job("two")
    assert first == await added(store, first)
    assert second == await added(store, second)

    assert first == await store.find("one")
    assert await store.find("three") is None
    file = await store.file("two")
    with contextlib.closing(file):
        assert (CONTENT, upload().sha256) == (file.content(), file.sha256)
    assert await store.file("three") is None
    assert ["one", "two"] == [(await store.take()).job_id, (await store.take()).job_id]


async def test_places_in_the_queue(store):
    """Jobs that wait, in order; none of one that was taken or is not there."""
    for name in ("one", "two", "three"):
        await added(store, job(name))
    assert [1, 2, 3, None] == [await store.position(name) for name in ("one", "two", "three", "four")]
    await store.take()

    assert [None, 1, 2] == [await store.position(name) for name in ("one", "two", "three")]


async def test_ended_jobs_of_an_owner(store):
    """Not those that run, nor another's, nor those that were deleted."""
    _, running = await started(store, job("one"))
    other = job("two")
    await added(store, other)
    assert [] == await store.ended(running.owner)
    done = moved(running, "succeed")
    await store.swap(running, done, b"{}")

    assert ["one"] == await store.ended(running.owner)
    assert [] == await store.ended("nobody")
    await store.forget(done)
    assert [] == await store.ended(running.owner)


async def test_take_waits_for_a_job(store):
    taking = asyncio.create_task(store.take())
    await asyncio.sleep(0)
    await added(store, job())

    assert "one" == (await taking).job_id


async def test_swap_needs_the_current_version(store):
    """Of two changes of the same job, the second is stale."""
    claim, running = await started(store, job())
    cancelled, succeeded = moved(running, "cancel"), moved(running, "succeed")

    assert "done" == await store.swap(running, cancelled)
    assert "stale" == await store.swap(running, succeeded, b"{}")
    assert "gone" == await store.swap(job("nobody"), moved(job("nobody"), "start"))
    assert cancelled == await store.find("one")
    assert not await store.write_progress(running, Progress("reading", 1), PAGE)
    assert "taken" == await store.renew(claim, running)


async def test_progress_pages_and_result(store):
    """They are read back, with events in order; a page that is written twice has one event, fields have one each."""
    _, running = await started(store, job())
    assert await store.write_progress(running, Progress("reading", 0, 2), None)
    assert await store.write_progress(running, Progress("reading", 1, 2), PAGE)
    assert await store.write_progress(running, Progress("reading", 1, 2), PAGE)
    assert await store.write_progress(running, Progress("reading", 1, 2), None, b'{"fields":[]}')
    found = await store.find("one")
    assert Progress("reading", 1, 2) == found.progress
    done = moved(found, "succeed")
    assert "done" == await store.swap(running, done, b'{"object":"document"}')

    assert (b"packed", None) == (await store.page("one", 1), await store.page("one", 2))
    assert {1: b"packed"} == await store.pages("one")
    assert b'{"object":"document"}' == await store.result(done)
    events = await events_of(store, "one")
    kinds = [event.kind for event in events]
    read = ["progress", "progress", "progress", "page", "progress", "progress"]
    assert [*read, "fields", "progress", "progress", "end"] == kinds
    assert (PAGE.event, b'{"fields":[]}') == (events[3].data, events[6].data)
    assert sorted(event.id for event in events) == [event.id for event in events]


async def test_events_continue_after_an_id(store):
    """After the last one there is nothing, and no waiting."""
    _, running = await started(store, job())
    seen = await events_of(store, "one", count=2)
    following = asyncio.create_task(events_of(store, "one", seen[-1].id))
    await store.write_progress(running, Progress("reading", 1, 2), PAGE)
    await store.swap(running, moved(running, "cancel"))

    rest = await following
    assert ["page", "progress", "progress", "end"] == [event.kind for event in rest]
    assert [] == await events_of(store, "one", rest[-1].id)
    assert [] == await events_of(store, "nobody")


@pytest.mark.parametrize("beyond", ["9223372036854775807", "9223372036854775807-9223372036854775807"])
async def test_an_event_id_beyond_the_end_waits_for_it(store, beyond):
    """Nothing is told after it while the job lives; when it has ended, so have the events."""
    _, running = await started(store, job("one"))
    waiting = asyncio.create_task(events_of(store, "one", beyond))
    for _ in range(3):
        await store.find("one")  # the store has answered others meanwhile
    assert not waiting.done()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await store.swap(running, moved(running, "succeed"), b"result")

    assert [] == await events_of(store, "one", beyond)


async def test_a_slow_reader_misses_nothing(store):
    """Events that come while it handles one follow after it."""
    _, running = await started(store, job())
    kinds = []
    async with contextlib.aclosing(store.events("one", "")) as received:
        async for event in received:
            if not kinds:
                await store.write_progress(running, Progress("reading", 1, 1), PAGE)
                await store.swap(running, moved(running, "succeed"), b"{}")
            kinds.append(event.kind)

    assert ["progress", "progress", "page", "progress", "progress", "end"] == kinds


async def test_a_requeued_job_is_taken_again(store):
    _, running = await started(store, job())
    await added(store, job("two"))
    queued = moved(running, "requeue")

    assert "done" == await store.swap(running, queued)
    assert ["two", "one"] == [(await store.take()).job_id, (await store.take()).job_id]


async def test_a_cancelled_job_leaves_the_queue(store):
    record = job()
    await added(store, record)
    await store.swap(record, moved(record, "cancel"))
    await added(store, job("two"))

    assert "two" == (await store.take()).job_id


async def test_equal_requests_are_one_job(store):
    """While it lives or after it succeeded; an Idempotency-Key finds it too, and belongs to it."""
    record = job("one", same="same")
    await added(store, record, "key")

    assert "one" == (await added(store, job("two", same="same"))).id
    assert "one" == (await added(store, job("three", same="same"), "key")).id
    assert "one" == (await added(store, job("four", same="same"), "another key")).id
    with pytest.raises(InvalidField):
        await added(store, job("five", same="other"), "another key")
    await store.swap(record, moved(record, "cancel"))
    assert "six" == (await added(store, job("six", same="same"))).id
    assert "one" == (await added(store, job("seven", same="same"), "key")).id


async def test_the_limit_of_live_jobs(store):
    """More are refused with numbers; the end of one makes space."""
    jobs = [job(str(number)) for number in range(MAX_JOBS)]
    for record in jobs:
        await added(store, record)

    with pytest.raises(Overloaded, match=r"3 jobs .* limit of 3 \(LIMIT_JOBS\)"):
        await added(store, job("late"))
    await store.swap(jobs[0], moved(jobs[0], "cancel"))
    assert "late" == (await added(store, job("late"))).id


async def test_forget(store):
    """Drops the job with everything that belongs to it."""
    _, running = await started(store, job())
    await store.write_progress(running, Progress("reading", 1, 1), PAGE)
    done = moved(running, "succeed")
    await store.swap(running, done, b"{}")
    await store.forget(done)

    assert await store.find("one") is None
    assert await store.file("one") is None
    assert ({}, None) == (await store.pages("one"), await store.result(done))
    assert job("again", same="same-one") == await added(store, job("again", same="same-one"))


async def test_a_deleted_job_is_not_lost(store):
    """A replica that comes late with its result does not bring it back."""
    _, running = await started(store, job())
    cancelled, done = moved(running, "cancel"), moved(running, "succeed")
    await store.swap(running, cancelled)
    await store.forget(cancelled)

    assert "stale" == await store.swap(running, done, b"{}")
    assert not await store.write_progress(running, Progress("reading", 1), PAGE)
    await store.restore(done, b"{}")
    assert await store.find("one") is None
    assert ({}, None) == (await store.pages("one"), await store.result(done))


async def test_settle_a_claim_without_a_job(store):
    await added(store, job())
    claim = await store.take()
    await store.forget(job())
    await store.settle(claim)
    await added(store, job("two"))

    assert "two" == (await store.take()).job_id


async def test_held_claims(store):
    """Those that keep jobs from other processes: of running jobs, and of what was given out and never started."""
    claim, running = await started(store, job())
    await added(store, job("two"))
    given = await store.take()

    assert {claim.job_id, given.job_id} == {held.job_id for held in await store.held()}
    await store.swap(running, moved(running, "succeed"))
    await store.swap(job("two"), moved(job("two"), "cancel"))
    assert [] == await store.held()


def test_report(store):
    report = store.report()

    assert report["store"] in ("memory", "redis")
    assert "REDIS_URL" in report["why"]
