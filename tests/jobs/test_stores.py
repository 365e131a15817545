"""What both stores promise, on both."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest

from backend.errors import InvalidField, Overloaded
from backend.jobs.memory_store import MemoryJobStore
from backend.jobs.records import PageNote, Progress
from backend.jobs.redis_options import RedisJobOptions
from backend.jobs.redis_store import RedisJobStore
from tests.fakes import ManualClock
from tests.jobs.samples import CONTENT, LIMITS, NOW_S, job, moved, upload

PAGE = PageNote(1, b"packed", b'{"number":1}')
MOST_JOBS = 3


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.redis)])
async def store(request):
    """An open, empty store."""
    async with contextlib.AsyncExitStack() as stack:
        if request.param == "memory":
            made = MemoryJobStore(MOST_JOBS, 10_000_000, ManualClock(NOW_S))
        else:
            url = request.getfixturevalue("redis_server").url
            made = RedisJobStore(RedisJobOptions(url, limit_jobs=MOST_JOBS), LIMITS, monotonic=time.monotonic)
        stack.push_async_callback(made.close)
        await made.start()
        yield made


async def added(store, one, key=None, content=CONTENT):
    with contextlib.closing(upload(content)) as stored:
        return await store.add(one, stored, key, here=False)


async def started(store, one):
    """The job, taken and running."""
    await added(store, one)
    claim = await store.take()
    running = moved(one, "start")
    assert "done" == await store.swap(one, running)
    return claim, running


async def heard(store, job_id, after="", count=None):
    """Events from ``after`` to the end, or so many."""
    events = []
    async with contextlib.aclosing(store.events(job_id, after)) as told:
        async for event in told:
            events.append(event)
            if len(events) == count:
                break
    return events


async def test_what_is_added_is_found_with_its_file(store):
    """And waits to be taken, in order."""
    one, two = job("one"), job("two")
    assert one == await added(store, one)
    assert two == await added(store, two)

    assert one == await store.find("one")
    assert await store.find("three") is None
    file = await store.file("two")
    with contextlib.closing(file):
        assert (CONTENT, upload().sha256) == (file.content(), file.sha256)
    assert await store.file("three") is None
    assert ["one", "two"] == [(await store.take()).job_id, (await store.take()).job_id]


async def test_take_waits_for_a_job(store):
    """Nobody polls: who waits is woken."""
    taking = asyncio.create_task(store.take())
    await asyncio.sleep(0)
    await added(store, job())

    assert "one" == (await taking).job_id


async def test_a_change_needs_the_job_as_it_is(store):
    """Of two that change the same job one is told that it is late."""
    claim, running = await started(store, job())
    cancelled, succeeded = moved(running, "cancel"), moved(running, "succeed")

    assert "done" == await store.swap(running, cancelled)
    assert "stale" == await store.swap(running, succeeded, b"{}")
    assert "gone" == await store.swap(job("nobody"), moved(job("nobody"), "start"))
    assert cancelled == await store.find("one")
    assert not await store.note(running, Progress("reading", 1), PAGE)
    assert not await store.renew(claim, running)


async def test_progress_pages_and_result(store):
    """What was written is read, and told in order; a page that was known is not told of twice."""
    _, running = await started(store, job())
    assert await store.note(running, Progress("reading", 0, 2), None)
    assert await store.note(running, Progress("reading", 1, 2), PAGE)
    assert await store.note(running, Progress("reading", 1, 2), PAGE)
    found = await store.find("one")
    assert found is not None
    assert Progress("reading", 1, 2) == found.progress
    done = moved(found, "succeed")
    assert "done" == await store.swap(running, done, b'{"object":"document"}')

    assert (b"packed", None) == (await store.page("one", 1), await store.page("one", 2))
    assert {1: b"packed"} == await store.pages("one")
    assert b'{"object":"document"}' == await store.result(done)
    events = await heard(store, "one")
    kinds = [event.kind for event in events]
    assert ["progress", "progress", "progress", "page", "progress", "progress", "progress", "end"] == kinds
    assert PAGE.event == events[3].data
    assert sorted(event.id for event in events) == [event.id for event in events]


async def test_a_reader_goes_on_where_it_was(store):
    """After an event's id come those after it; after the last one nothing, and no waiting."""
    _, running = await started(store, job())
    seen = await heard(store, "one", count=2)
    following = asyncio.create_task(heard(store, "one", seen[-1].id))
    await store.note(running, Progress("reading", 1, 2), PAGE)
    await store.swap(running, moved(running, "cancel"))

    rest = await following
    assert ["page", "progress", "progress", "end"] == [event.kind for event in rest]
    assert [] == await heard(store, "one", rest[-1].id)
    assert [] == await heard(store, "nobody")


async def test_a_slow_reader_misses_nothing(store):
    """What happens while it looks at an event comes after that, the end too."""
    _, running = await started(store, job())
    kinds = []
    async with contextlib.aclosing(store.events("one", "")) as told:
        async for event in told:
            if not kinds:
                await store.note(running, Progress("reading", 1, 1), PAGE)
                await store.swap(running, moved(running, "succeed"), b"{}")
            kinds.append(event.kind)

    assert ["progress", "progress", "page", "progress", "progress", "end"] == kinds


async def test_what_is_queued_again_is_taken_again(store):
    """Behind those that wait."""
    _, running = await started(store, job())
    await added(store, job("two"))
    queued = moved(running, "requeue")

    assert "done" == await store.swap(running, queued)
    assert ["two", "one"] == [(await store.take()).job_id, (await store.take()).job_id]


async def test_a_cancelled_job_leaves_the_queue(store):
    """It keeps no place that another could have."""
    one = job()
    await added(store, one)
    await store.swap(one, moved(one, "cancel"))
    await added(store, job("two"))

    assert "two" == (await store.take()).job_id


async def test_equal_requests_are_one_job(store):
    """While it lives or was answered; a key finds it too, and belongs to it."""
    one = job("one", same="same")
    await added(store, one, "key")

    assert "one" == (await added(store, job("two", same="same"))).id
    assert "one" == (await added(store, job("three", same="same"), "key")).id
    assert "one" == (await added(store, job("four", same="same"), "another key")).id
    with pytest.raises(InvalidField):
        await added(store, job("five", same="other"), "another key")
    await store.swap(one, moved(one, "cancel"))
    assert "six" == (await added(store, job("six", same="same"))).id
    assert "one" == (await added(store, job("seven", same="same"), "key")).id


async def test_no_more_than_may_live(store):
    """Too many are refused with numbers; the end of one makes room."""
    jobs = [job(str(number)) for number in range(MOST_JOBS)]
    for one in jobs:
        await added(store, one)

    with pytest.raises(Overloaded, match=r"3 jobs .* limit of 3 \(LIMIT_JOBS\)"):
        await added(store, job("late"))
    await store.swap(jobs[0], moved(jobs[0], "cancel"))
    assert "late" == (await added(store, job("late"))).id


async def test_what_is_forgotten_is_gone(store):
    """With all that belonged to it."""
    _, running = await started(store, job())
    await store.note(running, Progress("reading", 1, 1), PAGE)
    done = moved(running, "succeed")
    await store.swap(running, done, b"{}")
    await store.forget(done)

    assert await store.find("one") is None
    assert await store.file("one") is None
    assert ({}, None) == (await store.pages("one"), await store.result(done))
    assert job("again", same="same-one") == await added(store, job("again", same="same-one"))


async def test_a_claim_without_a_job_is_settled(store):
    """What was forgotten while it waited keeps nobody busy."""
    await added(store, job())
    claim = await store.take()
    await store.forget(job())
    await store.settle(claim)
    await added(store, job("two"))

    assert "two" == (await store.take()).job_id


def test_reports_say_where_jobs_are(store):
    """For GET /v1/system."""
    report = store.report()

    assert report["store"] in ("memory", "redis")
    assert "REDIS_URL" in report["why"]
