"""Jobs of several replicas on one Redis: any replica answers, and no job is lost with its process."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing

import orjson
import pytest

from backend.documents.records import DocumentOptions
from backend.errors import DeviceLost, JobOfAnotherRelease, Unavailable, UnreadableFile
from backend.jobs.redis_store import RedisJobOptions, RedisJobStore
from backend.jobs.runner import JobPolicy
from backend.telemetry import Telemetry
from backend.tracing.spans import NO_TRACER, Active, Tracer
from tests.jobs.replica import FakeProcess, JobReplica
from tests.jobs.samples import LIMITS, TTL_S
from tests.traced import KeptSpans

pytestmark = pytest.mark.redis

LEASE_S = 0.4
TIMEOUT_S = 10.0


@pytest.fixture
async def open_replica(redis_server) -> AsyncIterator[Callable[..., JobReplica]]:
    """Start a replica; all are closed after the test."""
    replicas: list[JobReplica] = []

    async def start(
        process: FakeProcess | None = None,
        url: str = "",
        workers: int = 1,
        tracer: Tracer = NO_TRACER,
        **options: float,
    ) -> JobReplica:
        chosen = RedisJobOptions(url or redis_server.url, **{"lease_s": LEASE_S, **options})
        policy = JobPolicy(workers=workers, limit_s=60.0, ttl_s=TTL_S)
        store = RedisJobStore(chosen, LIMITS, monotonic=time.monotonic)
        replica = JobReplica(store, process or FakeProcess(), policy, Telemetry(tracer))
        replicas.append(replica)
        await replica.service.start()
        return replica

    yield start
    for replica in replicas:
        await replica.service.close()


async def idle(open_replica) -> JobReplica:
    """A replica whose workers take no jobs."""
    replica = await open_replica()
    replica.stop()
    return replica


async def first_page(replica, job) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        async with aclosing(replica.service.events(job, "")) as events:
            async for event in events:
                if event.kind == "page":
                    return


async def test_any_replica_answers(open_replica):
    """State, pages, file, result and events are shared."""
    here, there = await open_replica(), await idle(open_replica)
    content = b"%PDF-1.7 " + bytes(range(256)) * 12_000  # three chunks
    job = await there.submit(content)
    ended = await there.ended(job)

    assert "succeeded" == ended.status
    assert ended == await here.service.find(job.id, "")
    assert content == here.process.calls[0][0]
    document = await there.service.document(ended)
    assert document == await here.service.document(ended)
    assert ["page1", "page2"] == [page.text for page in document.pages]
    kinds = [event.kind async for event in there.service.events(job, "")]
    assert (2, "end") == (kinds.count("page"), kinds[-1])
    assert (job.id, True) == ((await here.submitted(content))[0].id, (await here.submitted(content))[1])


async def test_a_dead_replicas_job_is_taken_over(open_replica):
    """Another replica starts it again; pages that have an event get no second one."""
    dead = await open_replica(FakeProcess(stops_at=2))
    job = await dead.submit()
    await dead.process.started.get()
    await first_page(dead, job)
    dead.kill()
    living = await open_replica()
    ended = await living.ended(job)

    assert ("succeeded", 2) == (ended.status, ended.attempts)
    pages = [event async for event in living.service.events(job, "") if event.kind == "page"]
    assert [1, 2] == [orjson.loads(event.data)["number"] for event in pages]


@pytest.mark.slow
async def test_a_late_replica_cannot_change_its_job(open_replica):
    """Another one took it over: late writes do not count, and the late work ends."""
    late = await open_replica(FakeProcess(stops_at=1))
    job = await late.submit()
    await late.process.started.get()
    late.stop("renew_claims")
    living = await open_replica()
    ended = await living.ended(job)
    late.process.gate.set()
    async with asyncio.timeout(TIMEOUT_S):
        await asyncio.gather(*late.runs())

    assert ("succeeded", 2) == (ended.status, ended.attempts)
    assert ended == await living.service.find(job.id, "")
    assert 0 == late.count('document_jobs_total{status="succeeded"}')


async def test_a_lost_claim_ends_the_work(open_replica):
    """At the next renewal after another replica changed the job."""
    replica, other = await open_replica(FakeProcess(stops_at=1)), await idle(open_replica)
    replica.stop("watch_cancellations")  # deaf to cancellations
    job = await replica.submit()
    await replica.process.started.get()
    tasks = replica.runs()
    await other.service.cancel(job.id, "")
    async with asyncio.timeout(TIMEOUT_S):
        await asyncio.gather(*tasks)

    assert 1 == replica.process.cancelled


@pytest.mark.slow
async def test_a_job_is_given_up_after_three_attempts(open_replica):
    """A file that kills every process must not be tried for ever; deploys may have killed them too: send it again."""
    job = None
    for _ in range(3):
        replica = await open_replica(FakeProcess(stops_at=1))
        job = job or await replica.submit()
        await asyncio.wait_for(replica.process.started.get(), TIMEOUT_S)
        replica.kill()
    last = await open_replica()
    ended = await last.ended(job)

    assert ("failed", 3) == (ended.status, ended.attempts)
    assert "ended 3 times" in ended.failure.message
    assert ("unavailable", True) == (ended.failure.code, ended.failure.retryable)
    assert [] == last.process.calls


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_restart(open_replica, workers):
    """Running jobs are requeued at once without counting as an attempt; no worker of the same process takes them."""
    stopping = await open_replica(FakeProcess(stops_at=2), workers=workers, lease_s=1000.0)
    job = await stopping.submit()
    await stopping.process.started.get()
    await stopping.service.close()
    started = await open_replica(lease_s=1000.0)
    ended = await started.ended(job)

    assert ("succeeded", 1) == (ended.status, ended.attempts)
    assert 1 == stopping.process.cancelled


async def test_a_restart_while_the_store_is_away(open_replica):
    """That the file could not be read is no fault of the job: another replica reads it."""
    stopping = await open_replica(workers=2, lease_s=1000.0)
    asked, take = asyncio.Event(), stopping.store.take

    async def away(_job_id):
        asked.set()
        raise Unavailable("Redis does not answer")

    async def end_slowly():
        try:
            return await take()
        finally:
            for _ in range(100):
                await asyncio.sleep(0)

    stopping.store.file, stopping.store.take = away, end_slowly
    job = await stopping.submit()
    await asyncio.wait_for(asked.wait(), TIMEOUT_S)
    await stopping.service.close()
    ended = await (await open_replica(lease_s=1000.0)).ended(job)

    assert ("succeeded", 1) == (ended.status, ended.attempts)


async def test_cancel_by_another_replica(open_replica):
    """The work ends before the next renewal, and all replicas have the pages so far."""
    here, there = await open_replica(FakeProcess(stops_at=2), lease_s=1000.0), await idle(open_replica)
    job = await here.submit()
    await here.process.started.get()
    await first_page(there, job)
    tasks = here.runs()
    await there.service.cancel(job.id, "")
    async with asyncio.timeout(TIMEOUT_S):
        await asyncio.gather(*tasks)
    ended = await there.ended(job)

    assert ("cancelled", 1) == (ended.status, here.process.cancelled)
    assert ["page1"] == [page.text for page in (await there.service.document(ended)).pages]


@pytest.mark.slow
async def test_a_password_stays_in_its_process(open_replica, redis_server):
    """That replica runs the job, however busy; Redis never sees the password."""
    other = await open_replica()
    here = await open_replica(FakeProcess(stops_at=1))
    busy = await here.submit(b"%PDF-1.7 busy", options=DocumentOptions(password="s3cret"))
    await here.process.started.get()
    job = await here.submit(options=DocumentOptions(password="s3cret"))
    following = await other.ended(await other.submit(b"%PDF-1.7 three"))  # more than a lease may pass meanwhile
    await asyncio.sleep(2 * LEASE_S)
    assert "queued" == (await other.service.find(job.id, "")).status
    here.process.gate.set()

    assert {"succeeded"} == {(await other.ended(each)).status for each in (busy, job)} | {following.status}
    assert [b"%PDF-1.7 three"] == [content for content, _, _ in other.process.calls]
    assert b"s3cret" not in dump(redis_server)


async def test_a_claim_that_comes_to_the_same_process_twice(open_replica):
    """Its start took longer than a lease, as Redis was slow: the job still runs once."""
    replica = await open_replica(FakeProcess(stops_at=1), workers=2, lease_s=0.1)
    find, take = replica.store.find, replica.store.take
    gate, claims = asyncio.Event(), asyncio.Queue()

    async def slow_find(job_id):
        await gate.wait()
        return await find(job_id)

    async def seen():
        claim = await take()
        claims.put_nowait(claim)
        return claim

    replica.store.find, replica.store.take = slow_find, seen  # the first claim comes to a take that has begun
    job = await replica.submit()
    again = await asyncio.wait_for(claims.get(), TIMEOUT_S)
    gate.set()
    await asyncio.wait_for(replica.process.started.get(), TIMEOUT_S)
    replica.process.gate.set()
    ended = await replica.ended(job)

    assert job.id == again.job_id
    assert (1, 1) == (ended.attempts, len(replica.process.calls))


async def test_a_lost_password(open_replica):
    """The job fails, and the error says what to do."""
    dead = await open_replica(FakeProcess(stops_at=1))
    job = await dead.submit(options=DocumentOptions(password="s3cret"))
    await dead.process.started.get()
    dead.kill()
    living = await open_replica()
    ended = await living.ended(job)

    assert ("failed", "password_required", "password") == (ended.status, ended.failure.code, ended.failure.param)
    assert "send the file and its password again" in ended.failure.message


async def test_without_redis(open_replica, redis_server):
    """Jobs are refused with what to do, not kept in memory."""
    replica = await open_replica(settle_s=0.5)
    redis_server.kill()

    with pytest.raises(Unavailable, match=r"REDIS_URL.*/v1/documents"):
        await replica.submit()
    redis_server.start()
    ended = await replica.ended(await replica.submit())
    assert "succeeded" == ended.status


async def test_redis_comes_back_empty(open_replica, redis_server):
    """A job that ran meanwhile ends and is restored with its result."""
    replica = await open_replica(FakeProcess(stops_at=2), settle_s=0.5)
    job = await replica.submit()
    await replica.process.started.get()
    redis_server.kill()
    replica.process.gate.set()
    redis_server.start()
    async with asyncio.timeout(TIMEOUT_S):
        await asyncio.gather(*replica.runs())
    ended = await replica.service.find(job.id, "")

    assert "succeeded" == ended.status
    assert ["page1", "page2"] == [page.text for page in (await replica.service.document(ended)).pages]


async def test_a_job_of_another_release_waits_for_it(open_replica, redis_server):
    """A replica that cannot read it goes on with other jobs; it runs where it can be read."""
    older = await open_replica(FakeProcess(stops_at=1))
    busy = await older.submit(b"%PDF-1.7 busy")
    await older.process.started.get()
    job, client = await older.submit(), redis_server.client
    record = client.hget(f"financia:job:{job.id}", "record")
    client.hset(f"financia:job:{job.id}", "record", record.replace(b'"format":2', b'"format":9'))
    older.process.gate.set()
    await older.ended(busy)
    with pytest.raises(JobOfAnotherRelease):
        await older.service.find(job.id, "")
    assert "succeeded" == (await older.ended(await older.submit(b"%PDF-1.7 three"))).status
    assert 1 == client.xlen("financia:jobs:queue")
    client.hset(f"financia:job:{job.id}", "record", record)  # as a replica of the other release reads it
    ended = await older.ended(job)

    assert ("succeeded", 1) == (ended.status, ended.attempts)


async def test_options_of_a_later_release(open_replica, redis_server):
    """No replica reads a file without what was asked for."""
    older = await open_replica(FakeProcess(stops_at=1))
    await older.submit(b"%PDF-1.7 busy")
    await older.process.started.get()
    job, client = await older.submit(), redis_server.client
    record = client.hget(f"financia:job:{job.id}", "record")
    client.hset(f"financia:job:{job.id}", "record", record.replace(b'"top_phrases"', b'"later":1,"top_phrases"'))
    older.process.gate.set()
    await older.ended(await older.submit(b"%PDF-1.7 three"))

    assert ("queued", 0) == ((found := await older.service.find(job.id, "")).status, found.attempts)
    assert 2 == len(older.process.calls)


async def test_a_result_of_a_later_release(open_replica, redis_server):
    """It is there, and another replica can read it: not 404."""
    replica = await open_replica()
    ended = await replica.ended(await replica.submit())
    key = f"financia:job:{ended.id}:result:{ended.version}"
    redis_server.client.lset(key, -1, b"packed otherwise")

    with pytest.raises(JobOfAnotherRelease, match="ask again"):
        await replica.service.result(ended)


@pytest.mark.slow
async def test_redis_does_not_answer_for_a_while(open_replica, redis_proxy):
    replica = await open_replica(FakeProcess(stops_at=2), url=redis_proxy.url, settle_s=0.2, lease_s=1000.0)
    job = await replica.submit()
    await replica.process.started.get()
    redis_proxy.open.clear()
    replica.process.gate.set()
    with pytest.raises(Unavailable):
        await replica.service.find(job.id, "")
    redis_proxy.open.set()
    ended = await replica.ended(job)

    assert "succeeded" == ended.status
    assert {1, 2} == set(await replica.store.pages(job.id))


def dump(server) -> bytes:
    client, received = server.client, b""
    for key in client.keys("*"):
        kind = client.type(key)
        read = {
            b"hash": client.hgetall,
            b"stream": client.xrange,
            b"string": client.get,
            b"set": client.smembers,
            b"zset": lambda name: client.zrange(name, 0, -1),
            b"list": lambda name: client.lrange(name, 0, -1),
        }[kind]
        received += key + repr(read(key)).encode()
    return received


async def test_redis_restarts_empty_while_a_job_runs(open_replica, redis_server):
    """Renewals find neither claim nor job: the work goes on, and its end restores the job."""
    replica = await open_replica(FakeProcess(stops_at=2))
    job = await replica.submit()
    await replica.process.started.get()
    renewals: asyncio.Queue[None] = asyncio.Queue()
    renew = replica.store.renew

    async def counted(claim, running):
        try:
            return await renew(claim, running)
        finally:
            renewals.put_nowait(None)

    replica.store.renew = counted
    redis_server.client.flushall()
    async with asyncio.timeout(TIMEOUT_S):
        for _ in range(3):
            await renewals.get()
        replica.process.gate.set()
        await asyncio.gather(*replica.runs())
    ended = await replica.service.find(job.id, "")

    assert ("succeeded", 0) == (ended.status, replica.process.cancelled)
    assert ["page1", "page2"] == [page.text for page in (await replica.service.document(ended)).pages]


async def test_stopping_after_redis_lost_the_job(open_replica, redis_server):
    """Its file was in Redis alone: the client learns that it must send it again."""
    replica = await open_replica(FakeProcess(stops_at=2), lease_s=1000.0)
    job = await replica.submit()
    await replica.process.started.get()
    redis_server.client.flushall()
    await replica.service.drain()
    ended = await (await open_replica(lease_s=1000.0)).ended(job)

    assert ("failed", "unavailable", True) == (ended.status, ended.failure.code, ended.failure.retryable)


async def test_stopping_while_a_job_is_being_started(open_replica):
    """It goes back into the queue at once, and counts no attempt."""
    stopping = await open_replica(lease_s=1000.0)
    starting, go_on, swap = asyncio.Event(), asyncio.Event(), stopping.store.swap

    async def slow_swap(old, new, result=None, **claim):
        if new.status == "running":
            starting.set()
            await go_on.wait()
        return await swap(old, new, result, **claim)

    stopping.store.swap = slow_swap
    job = await stopping.submit()
    async with asyncio.timeout(TIMEOUT_S):
        await starting.wait()
    closing = asyncio.create_task(stopping.service.drain())
    await asyncio.sleep(0)
    go_on.set()
    await closing
    ended = await (await open_replica(lease_s=1000.0)).ended(job)

    assert ("succeeded", 1) == (ended.status, ended.attempts)
    assert [] == stopping.process.calls


async def test_a_claim_that_was_never_read_goes_back(open_replica, redis_server):
    """Redis gave it to a read that the stop cancelled: without this it would wait for the lease."""
    stopping = await open_replica(FakeProcess(stops_at=1), lease_s=1000.0)
    await stopping.submit(b"%PDF-1.7 busy")
    await stopping.process.started.get()  # its one worker is busy: nothing is read from the queue
    job = await stopping.submit()
    queue = stopping.store.queue
    taken = redis_server.client.xreadgroup("workers", queue.consumer, {queue.shared: ">"})
    await stopping.service.drain()
    ended = await (await open_replica(lease_s=1000.0)).ended(job)

    assert 1 == len(taken)
    assert ("succeeded", 1) == (ended.status, ended.attempts)


async def test_a_replica_that_stops_still_accepts_what_others_can_run(open_replica):
    """A job lands in the queue; one with a password is refused, as that stays in the process."""
    stopping = await open_replica(lease_s=1000.0)
    await stopping.service.drain()
    job = await stopping.submit()
    with pytest.raises(Unavailable, match="password"):
        await stopping.submit(options=DocumentOptions(password="s3cret"))
    ended = await (await open_replica(lease_s=1000.0)).ended(job)

    assert ("succeeded", 1) == (ended.status, ended.attempts)
    assert [] == stopping.process.calls


async def test_stopping_ends_waiting_jobs_with_a_password(open_replica):
    """Nobody else can run them, so they fail at once and can be sent again, not after a lease."""
    stopping = await open_replica(FakeProcess(stops_at=1), lease_s=1000.0)
    await stopping.submit(b"%PDF-1.7 busy")
    await stopping.process.started.get()
    job = await stopping.submit(options=DocumentOptions(password="s3cret"))
    await stopping.service.drain()
    ended = await stopping.service.find(job.id, "")

    assert ("failed", "unavailable", True) == (ended.status, ended.failure.code, ended.failure.retryable)


async def test_a_lost_device_passes_its_jobs_on(open_replica):
    """The attempt counts, as the file may be the cause; the replica takes no other job."""
    lost = await open_replica(FakeProcess(stops_at=1, error=DeviceLost("the card fell off the bus")), lease_s=1000.0)
    jobs = [await lost.submit(b"%%PDF-1.7 %d" % number) for number in range(2)]
    await lost.process.started.get()
    lost.process.gate.set()
    other = await open_replica(lease_s=1000.0)
    ended = [await other.ended(job) for job in jobs]

    assert [("succeeded", 2), ("succeeded", 1)] == [(job.status, job.attempts) for job in ended]
    assert 1 == len(lost.process.calls)
    assert "fell off the bus" in lost.service.degraded()[0]


async def test_claims_are_renewed_after_a_fault_that_nobody_expects(open_replica):
    """The renewing task goes on: else every job of this replica would be taken over while it runs."""
    replica = await open_replica(FakeProcess(stops_at=1))
    renewed, renew, faults = asyncio.Queue[None](), replica.store.renew, [KeyError("broken on purpose")]

    async def fail_once(claim, job):
        if faults:
            raise faults.pop()
        renewed.put_nowait(None)
        return await renew(claim, job)

    replica.store.renew = fail_once
    await replica.submit()
    await asyncio.wait_for(renewed.get(), TIMEOUT_S)

    assert 1 == replica.count('background_failures_total{task="renew_claims"}')


async def test_giving_back_a_dead_replicas_job_keeps_its_attempt(open_replica, redis_server):
    """Else a file that kills every process would be tried for ever while replicas are replaced."""
    dead = await open_replica(FakeProcess(stops_at=1), lease_s=1000.0)
    job = await dead.submit()
    await dead.process.started.get()
    dead.kill()
    stopping = await idle(open_replica)
    queue = stopping.store.queue
    redis_server.client.xautoclaim(queue.shared, "workers", queue.consumer, 0)  # taken over, and never begun
    await stopping.service.drain()
    ended = await (await open_replica(lease_s=1000.0)).ended(job)

    assert ("succeeded", 2) == (ended.status, ended.attempts)


async def test_a_trace_goes_on_in_another_replica(open_replica):
    """The job's record carries it from the process that took the file to the one that reads it."""
    front, kept = await idle(open_replica), KeptSpans()
    with Active(kept.tracer.start("POST /v1/jobs", "server")) as request:
        job = await front.submit()
    worker = await open_replica(tracer=kept.tracer)
    await worker.ended(job)
    async with asyncio.timeout(TIMEOUT_S):
        while "job" not in kept.names:  # noqa: ASYNC110 - a turn of the loop, no time
            await asyncio.sleep(0)
    span = kept.one("job")

    assert ("consumer", request.span.context, "") == (span.kind, span.parent, span.error)
    assert (job.id, 1) == (span.attributes["financia.job.id"], span.attributes["financia.job.attempt"])


async def test_a_job_that_fails_says_so_in_its_span(open_replica):
    """By the code of its failure; a job without a trace begins one."""
    kept = KeptSpans()
    replica = await open_replica(FakeProcess(error=UnreadableFile("broken")), tracer=kept.tracer)
    job = await replica.submit()
    ended = await replica.ended(job)
    async with asyncio.timeout(TIMEOUT_S):
        while "job" not in kept.names:  # noqa: ASYNC110 - a turn of the loop, no time
            await asyncio.sleep(0)

    assert (None, ended.failure.code) == (kept.one("job").parent, kept.one("job").error)
