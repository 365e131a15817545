"""QUOTA_JOBS: how many jobs of one owner may be queued or running, in either store; and what jobs are charged."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from backend.callers.callers import Caller, Quotas
from backend.callers.quotas import Meters
from backend.documents.records import DocumentAnswer, DocumentEvent
from backend.errors import InferenceFailed, Overloaded, QuotaExceeded
from backend.jobs.memory_store import MemoryJobStore
from backend.jobs.records import Job, JobQuota, Progress
from backend.jobs.redis_store import RedisJobOptions, RedisJobStore
from backend.jobs.runner import ProgressWriter
from backend.retry import StoreRetry
from backend.supervision import Supervisor
from backend.telemetry import Telemetry
from tests.fakes import ManualClock
from tests.jobs.replica import FakeProcess, JobReplica, page
from tests.jobs.samples import LIMITS, NOW_S, job, upload
from tests.redis_server import RedisServer

TEAM = Caller("team", "team-owner", quotas=Quotas(jobs=2))
OTHER = Caller("other", "other-owner", quotas=Quotas(jobs=2))


class UnderstandingProcess(FakeProcess):
    """Finds seven tokens in every document."""

    async def __call__(self, *call: Any, owner: str) -> DocumentAnswer:
        answer = await super().__call__(*call, owner=owner)
        return replace(answer, understood=replace(answer.understood, tokens=7))


@dataclass
class Desk:
    """A replica whose jobs wait at their second page, and the meters of its callers."""

    replica: JobReplica
    process: FakeProcess
    telemetry: Telemetry
    clock: ManualClock

    async def submit(self, content: str, caller: Caller = TEAM) -> Job:
        return await self.replica.submit(content.encode(), owner=caller.owner, quota=JobQuota(2))

    async def submitted(self, content: str, **fields: Any) -> tuple[Job, bool]:
        return await self.replica.submitted(content.encode(), owner=TEAM.owner, quota=JobQuota(2), **fields)

    def used(self, metric: str) -> float:
        return self.telemetry.registry.get_sample_value(f"financia_{metric}", {"key": TEAM.name}) or 0.0


@pytest.fixture(params=["memory", "redis"])
async def desk(request: pytest.FixtureRequest) -> AsyncIterator[Desk]:
    """Jobs in memory, and jobs in Redis."""
    clock, telemetry = ManualClock(NOW_S), Telemetry()
    if request.param == "memory":
        store: MemoryJobStore | RedisJobStore = MemoryJobStore(5, 1_000_000, LIMITS, clock)
    else:
        server: RedisServer = request.getfixturevalue("redis_server")
        store = RedisJobStore(RedisJobOptions(server.url, limit_jobs=5, lease_s=6.0), LIMITS, monotonic=clock)
    process = UnderstandingProcess(stops_at=2)
    meters = Meters(telemetry)
    meters.open([TEAM, OTHER])
    replica = JobReplica(store, process, telemetry=telemetry, now=clock, meter_of=meters.of)
    await replica.service.start()
    yield Desk(replica, process, telemetry, clock)
    process.gate.set()
    await replica.service.close()


async def test_as_many_as_the_quota(desk: Desk):
    """The third is refused, whether the others run or wait; another owner's is taken."""
    await desk.submit("%PDF one")
    await desk.submit("%PDF two")

    with pytest.raises(QuotaExceeded, match=r"jobs: 2 of this key .* quota is 2 \(QUOTA_JOBS\)"):
        await desk.submit("%PDF three")
    await desk.submit("%PDF three", OTHER)
    refused = {"key": "team", "quota": "jobs"}
    assert 1 == desk.telemetry.registry.get_sample_value("financia_quota_exceeded_total", refused)


async def test_live_jobs_are_told(desk: Desk):
    """Of each owner its own; those that have ended no longer. To ask takes no place."""
    first = await desk.submit("%PDF one")
    await desk.submit("%PDF two")
    await desk.submit("%PDF three", OTHER)
    live = [await desk.replica.service.live(owner) for owner in (TEAM.owner, OTHER.owner, "nobody")]
    await desk.replica.service.cancel(first.id, TEAM.owner)
    await desk.replica.ended(first, TEAM.owner)

    assert [2, 1, 0] == live
    assert 1 == await desk.replica.service.live(TEAM.owner)


async def test_a_place_is_free_again(desk: Desk):
    """Once a job has ended, was cancelled, or was forgotten."""
    first, second = await desk.submit("%PDF one"), await desk.submit("%PDF two")
    desk.process.gate.set()
    await desk.replica.ended(first, TEAM.owner)
    await desk.replica.ended(second, TEAM.owner)
    desk.process.gate.clear()

    third, fourth = await desk.submit("%PDF three"), await desk.submit("%PDF four")
    await desk.replica.service.cancel(third.id, TEAM.owner)
    fifth = await desk.submit("%PDF five")
    for _ in range(2):
        await desk.replica.service.cancel(fourth.id, TEAM.owner)
    await desk.submit("%PDF six")
    assert fifth.owner == TEAM.owner
    with pytest.raises(QuotaExceeded):
        await desk.submit("%PDF seven")


async def test_the_same_request_again(desk: Desk):
    """It is the job there is, and needs no place of its own."""
    first = await desk.submit("%PDF one")
    again, replayed = await desk.submitted("%PDF one")
    await desk.submit("%PDF two")
    full, replayed_when_full = await desk.submitted("%PDF one")

    assert [first.id] * 2 == [again.id, full.id]
    assert (True, True) == (replayed, replayed_when_full)


async def test_a_job_that_is_refused_takes_no_place(desk: Desk):
    """Neither for a full queue."""
    for number in range(5):
        await desk.replica.submit(f"%PDF {number}".encode(), owner="unlimited")
    for _ in range(3):
        with pytest.raises(Overloaded):
            await desk.submit("%PDF one")


async def test_many_at_once(desk: Desk):
    """Requests that come together get as many places as there are, not more."""
    outcomes = await asyncio.gather(*(desk.submit(f"%PDF {number}") for number in range(6)), return_exceptions=True)

    assert 2 == sum(isinstance(outcome, Job) for outcome in outcomes)
    assert 4 == sum(isinstance(outcome, QuotaExceeded) for outcome in outcomes)


async def test_a_key_whose_job_has_ended(desk: Desk):
    """Its job is the answer under a full quota too; another job that has ended makes no place for it."""
    first, _ = await desk.submitted("%PDF one", key="k")
    desk.process.gate.set()
    await desk.replica.ended(first, TEAM.owner)
    desk.process.gate.clear()
    await desk.submit("%PDF two")
    await desk.submit("%PDF three")

    assert (first.id, True) == ((await desk.submitted("%PDF one", key="k"))[0].id, True)
    with pytest.raises(QuotaExceeded):
        await desk.submit("%PDF four")


async def test_what_a_job_is_charged(desk: Desk):
    """Its pages and the tokens of their text, to its owner, wherever it runs."""
    job = await desk.submit("%PDF one")
    desk.process.gate.set()

    assert "succeeded" == (await desk.replica.ended(job, TEAM.owner)).status
    assert (2, 7) == (desk.used("key_pages_total"), desk.used("key_tokens_total"))


async def test_pages_are_charged_as_they_are_read(desk: Desk):
    """Those of a job that fails too."""
    job = await desk.submit("%PDF one")
    await desk.process.started.get()
    assert 1 == desk.used("key_pages_total")
    desk.process.error = InferenceFailed("broken")
    desk.process.gate.set()

    assert "failed" == (await desk.replica.ended(job, TEAM.owner)).status
    assert 2 == desk.used("key_pages_total")


async def test_another_attempt_charges_new_pages_only(desk: Desk):
    """A job that another replica takes over after a crash reads its pages again; its owner paid for them."""
    job = await desk.submit("%PDF one")
    await desk.process.started.get()
    again = replace(job, progress=Progress("reading", 1, 2))
    writer = ProgressWriter(
        again,
        desk.replica.store,
        StoreRetry(),
        desk.telemetry,
        supervisor=Supervisor(desk.telemetry),
        meter=desk.replica.meter_of(TEAM.owner),
    )
    before = desk.used("key_pages_total")
    for number in (1, 2):
        writer.on_event(DocumentEvent("reading", number, 2, page(number)))
    writer.cancel()

    assert before + 1 == desk.used("key_pages_total")


async def test_the_count_of_an_owner_expires(redis_server: RedisServer):
    """Nothing stays in Redis for ever; and a job that Redis has lost is no longer counted."""
    store = RedisJobStore(RedisJobOptions(redis_server.url), LIMITS, monotonic=ManualClock())
    with contextlib.closing(upload()) as stored:
        await store.add(job("lost", owner="o"), stored, None, pinned=False, quota=JobQuota(1))
    [key] = redis_server.client.keys("*live*")
    lives_s = redis_server.client.ttl(key)
    redis_server.client.delete("financia:job:lost")

    assert 0 < lives_s
    assert 0 == await store.live("o")
    await store.close()
