"""Jobs of several replicas on one Redis: whoever is asked answers, and none is lost with the process that runs it.

A lease is short here, so that what takes a lease takes part of a second; nothing else passes in real time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing

import orjson
import pytest

from backend.errors import Unavailable
from backend.jobs.redis_options import RedisJobOptions
from backend.jobs.redis_store import RedisJobStore
from backend.jobs.runner import JobPolicy
from backend.services.documents.records import DocumentOptions
from tests.jobs.job_desk import FakeReading, JobDesk
from tests.jobs.samples import LIMITS, TTL_S

pytestmark = pytest.mark.redis

LEASE_S = 0.4
PATIENT_S = 10.0


@pytest.fixture
async def open_desk(redis_server) -> AsyncIterator[Callable[..., JobDesk]]:
    """Start a replica; all are closed after the test."""
    desks: list[JobDesk] = []

    async def start(reading: FakeReading | None = None, url: str = "", workers: int = 1, **options: float) -> JobDesk:
        chosen = RedisJobOptions(url or redis_server.url, **{"lease_s": LEASE_S, **options})
        policy = JobPolicy(workers=workers, limit_s=60.0, ttl_s=TTL_S)
        desk = JobDesk(RedisJobStore(chosen, LIMITS, monotonic=time.monotonic), reading or FakeReading(), policy)
        desks.append(desk)
        await desk.service.start()
        return desk

    yield start
    for desk in desks:
        await desk.service.close()


async def idle(open_desk) -> JobDesk:
    """A replica that takes no jobs."""
    desk = await open_desk()
    for service in desk.service._runner._services:
        service.cancel()
    return desk


async def first_page(desk, job) -> None:
    """Wait until a page was read."""
    async with asyncio.timeout(PATIENT_S):
        async with aclosing(desk.service.events(job, "")) as events:
            async for event in events:
                if event.kind == "page":
                    return


async def test_any_replica_answers(open_desk):
    """State, pages, file, result and events are where all find them."""
    here, there = await open_desk(), await idle(open_desk)
    content = b"%PDF-1.7 " + bytes(range(256)) * 12_000  # three chunks
    job = await there.submit(content)
    ended = await there.ended(job)

    assert "succeeded" == ended.status
    assert ended == await here.service.find(job.id, "")
    assert content == here.reading.calls[0][0]
    result = await there.service.result(ended)
    assert result == await here.service.result(ended)
    assert ["page1", "page2"] == [page["text"] for page in orjson.loads(result)["pages"]]
    kinds = [event.kind async for event in there.service.events(job, "")]
    assert (2, "end") == (kinds.count("page"), kinds[-1])
    assert (job.id, True) == ((await here.submitted(content))[0].id, (await here.submitted(content))[1])


async def test_a_dead_replicas_job_is_taken_over(open_desk):
    """By another, from the beginning; pages that were told of are not told of again."""
    dead = await open_desk(FakeReading(stops_at=2))
    job = await dead.submit()
    await dead.reading.started.get()
    await first_page(dead, job)
    dead.die()
    living = await open_desk()
    ended = await living.ended(job)

    assert ("succeeded", 2) == (ended.status, ended.attempts)
    pages = [event async for event in living.service.events(job, "") if event.kind == "page"]
    assert [1, 2] == [orjson.loads(event.data)["number"] for event in pages]


async def test_a_replica_that_wakes_up_late_is_not_believed(open_desk):
    """Its job was taken over: what it says of it no longer counts, and its work is ended."""
    late = await open_desk(FakeReading(stops_at=1))
    job = await late.submit()
    await late.reading.started.get()
    beat = late.service._runner._services.pop()
    beat.cancel()
    living = await open_desk()
    ended = await living.ended(job)
    late.reading.gate.set()
    async with asyncio.timeout(PATIENT_S):
        await asyncio.gather(*late.service._runner._tasks)

    assert ("succeeded", 2) == (ended.status, ended.attempts)
    assert ended == await living.service.find(job.id, "")
    assert 0 == late.count('document_jobs_total{status="succeeded"}')


async def test_a_lost_claim_ends_the_work(open_desk):
    """The next beat after somebody else has changed the job."""
    desk, other = await open_desk(FakeReading(stops_at=1)), await idle(open_desk)
    desk.service._runner._services[1].cancel()  # deaf to cancellations
    job = await desk.submit()
    await desk.reading.started.get()
    tasks = list(desk.service._runner._tasks)
    await other.service.cancel(job.id, "")
    async with asyncio.timeout(PATIENT_S):
        await asyncio.gather(*tasks)

    assert 1 == desk.reading.cancelled


async def test_it_is_given_up_after_three_times(open_desk):
    """What ends every process that touches it must not go round for ever."""
    job = None
    for _ in range(3):
        desk = await open_desk(FakeReading(stops_at=1))
        job = job or await desk.submit()
        await asyncio.wait_for(desk.reading.started.get(), PATIENT_S)
        desk.die()
    last = await open_desk()
    ended = await last.ended(job)

    assert ("failed", 3) == (ended.status, ended.attempts)
    assert "ended 3 times" in ended.failure.message
    assert [] == last.reading.calls


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_restart(open_desk, workers):
    """What runs goes back into the queue at once, and that counts as no attempt; a free worker does not get it."""
    stopping = await open_desk(FakeReading(stops_at=2), workers=workers, lease_s=1000.0)
    job = await stopping.submit()
    await stopping.reading.started.get()
    await stopping.service.close()
    started = await open_desk(lease_s=1000.0)
    ended = await started.ended(job)

    assert ("succeeded", 1) == (ended.status, ended.attempts)
    assert 1 == stopping.reading.cancelled


async def test_cancelled_from_elsewhere(open_desk):
    """Its work ends at once, without waiting for the next beat; the pages it had read can be had anywhere."""
    here, there = await open_desk(FakeReading(stops_at=2), lease_s=1000.0), await idle(open_desk)
    job = await here.submit()
    await here.reading.started.get()
    await first_page(there, job)
    tasks = list(here.service._runner._tasks)
    await there.service.cancel(job.id, "")
    async with asyncio.timeout(PATIENT_S):
        await asyncio.gather(*tasks)
    ended = await there.ended(job)

    assert ("cancelled", 1) == (ended.status, here.reading.cancelled)
    assert ["page1"] == [page["text"] for page in orjson.loads(await there.service.result(ended))["pages"]]


async def test_a_password_stays_with_who_took_it(open_desk, redis_server):
    """That replica runs the job, however busy; Redis never sees the password."""
    other = await open_desk()
    here = await open_desk(FakeReading(stops_at=1))
    busy = await here.submit(b"%PDF-1.7 busy", options=DocumentOptions(password="s3cret"))
    await here.reading.started.get()
    job = await here.submit(options=DocumentOptions(password="s3cret"))
    following = await other.ended(await other.submit(b"%PDF-1.7 three"))  # more than a lease may pass meanwhile
    await asyncio.wait_for(other.service._runner._patience.ends_within(2 * LEASE_S), PATIENT_S)
    assert "queued" == (await other.service.find(job.id, "")).status
    here.reading.gate.set()

    assert {"succeeded"} == {(await other.ended(one)).status for one in (busy, job)} | {following.status}
    assert [b"%PDF-1.7 three"] == [content for content, _, _ in other.reading.calls]
    assert b"s3cret" not in dump(redis_server)


async def test_a_password_that_is_lost(open_desk):
    """Its job fails, and says what to do."""
    dead = await open_desk(FakeReading(stops_at=1))
    job = await dead.submit(options=DocumentOptions(password="s3cret"))
    await dead.reading.started.get()
    dead.die()
    living = await open_desk()
    ended = await living.ended(job)

    assert ("failed", "password_required", "password") == (ended.status, ended.failure.code, ended.failure.param)
    assert "send the file and its password again" in ended.failure.message


async def test_without_redis(open_desk, redis_server):
    """Jobs are refused with what to do, not kept where no other replica would find them."""
    desk = await open_desk(settle_s=0.5)
    redis_server.kill()

    with pytest.raises(Unavailable, match=r"REDIS_URL.*/v1/documents"):
        await desk.submit()
    redis_server.start()
    ended = await desk.ended(await desk.submit())
    assert "succeeded" == ended.status


async def test_redis_comes_back_empty(open_desk, redis_server):
    """A job that ran meanwhile goes on to its end and is there again with its result."""
    desk = await open_desk(FakeReading(stops_at=2), settle_s=0.5)
    job = await desk.submit()
    await desk.reading.started.get()
    redis_server.kill()
    desk.reading.gate.set()
    redis_server.start()
    async with asyncio.timeout(PATIENT_S):
        await asyncio.gather(*desk.service._runner._tasks)
    ended = await desk.service.find(job.id, "")

    assert "succeeded" == ended.status
    assert ["page1", "page2"] == [page["text"] for page in orjson.loads(await desk.service.result(ended))["pages"]]


async def test_redis_is_silent_for_a_while(open_desk, redis_proxy):
    """What was read meanwhile is written when it answers again."""
    desk = await open_desk(FakeReading(stops_at=2), url=redis_proxy.url, settle_s=0.2, lease_s=1000.0)
    job = await desk.submit()
    await desk.reading.started.get()
    redis_proxy.open.clear()
    desk.reading.gate.set()
    with pytest.raises(Unavailable):
        await desk.service.find(job.id, "")
    redis_proxy.open.set()
    ended = await desk.ended(job)

    assert "succeeded" == ended.status
    assert {1, 2} == set(await desk.store.pages(job.id))


async def test_nothing_stays_for_ever(open_desk, redis_server):
    """Every key of a job expires; the queue is empty once all have ended."""
    desk = await open_desk()
    await desk.ended(await desk.submit(key="mine"))
    client = redis_server.client
    keys = [key for key in client.keys("*") if b":job:" in key or b":same:" in key or b":key:" in key]

    assert 7 == len(keys)  # job, file, pages, result, events, same, key
    assert all(client.pttl(key) > 0 for key in keys)
    assert 0 == client.xlen("financia:jobs:queue")
    assert 0 == client.xpending("financia:jobs:queue", "workers")["pending"]


def dump(server) -> bytes:
    """Everything that is in a server, more or less."""
    client, told = server.client, b""
    for key in client.keys("*"):
        kind = client.type(key)
        read = {
            b"hash": client.hgetall,
            b"stream": client.xrange,
            b"string": client.get,
            b"list": lambda name: client.lrange(name, 0, -1),
        }[kind]
        told += key + repr(read(key)).encode()
    return told
