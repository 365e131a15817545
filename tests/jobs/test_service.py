"""Jobs from submission to their end, in one process."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest

from backend.documents.records import DocumentAnswer, DocumentOptions
from backend.errors import DeviceLost, NotInstalled, Overloaded, Unavailable, UnreadableFile
from backend.jobs.memory_store import MemoryJobStore
from backend.jobs.records import Progress
from backend.jobs.runner import JobPolicy
from backend.lanes.cache.store import Enter, cached_for, owner_scope, share_with_all
from backend.lanes.work_queue import Priority
from tests.fakes import ManualClock
from tests.jobs.replica import FakeProcess, JobReplica
from tests.jobs.samples import LIMITS, NOW_S, TTL_S


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_S)


@pytest.fixture
async def open_replica(clock: ManualClock) -> AsyncIterator[Callable[..., JobReplica]]:
    """Start a replica without Redis; all are closed after the test."""
    replicas: list[JobReplica] = []

    async def start(process: FakeProcess | None = None, **policy: float) -> JobReplica:
        chosen = replace(JobPolicy(workers=1, limit_s=60.0, ttl_s=TTL_S), **policy)
        store = MemoryJobStore(100, 10_000_000, LIMITS, clock)
        replica = JobReplica(store, process or FakeProcess(), chosen, now=clock)
        replicas.append(replica)
        await replica.service.start()
        return replica

    yield start
    for replica in replicas:
        await replica.service.close()


async def test_a_job_succeeds(open_replica):
    """It is processed in the background with its options, and has the document that /v1/documents answers."""
    replica = await open_replica()
    options = DocumentOptions(features=frozenset({"text", "words"}), pages="1-2", languages=("es", "en"))
    before_s = time.monotonic()
    job = await replica.ended(await replica.submit(options=options, name="factura.pdf"))

    assert ("succeeded", 1) == (job.status, job.attempts)
    assert Progress("done", 2, 2, 0) == job.progress
    assert ("factura.pdf", 12, "pdf") == (job.file.name, job.file.size_bytes, job.file.kind)
    [(content, processed_options, urgency)] = replica.process.calls
    assert (b"%PDF-1.7 one", options) == (content, processed_options)
    assert Priority.BULK == urgency.priority
    assert before_s + 60 <= urgency.deadline_s < math.inf
    result = await replica.service.result(job)
    assert ["page1", "page2"] == [page.text for page in result.document.pages]
    assert options == result.answer.options
    assert 1 == replica.count('document_jobs_total{status="succeeded"}')
    assert 2 == replica.count("document_job_pages_total")
    assert 0 == replica.count('document_jobs_live{state="running"}')


async def test_a_page_that_fails_is_counted(open_replica):
    replica = await open_replica(FakeProcess(pages=3, fails_at=2))
    job = await replica.ended(await replica.submit())

    assert Progress("done", 3, 3, 1) == job.progress


async def test_cancel_while_it_runs(open_replica):
    """The work ends at once, and the pages so far are kept."""
    replica = await open_replica(FakeProcess(stops_at=2))
    job = await replica.submit()
    await replica.process.started.get()
    async for event in replica.service.events(job, ""):
        if event.kind == "page":
            break
    cancelled = await replica.service.cancel(job.id, "")
    ended = await replica.ended(job)

    assert ("cancelled", "cancelled") == (cancelled.status, ended.status)
    result = await replica.service.result(ended)
    assert (None, ["page1"]) == (result.answer, [page.text for page in result.document.pages])
    other = await replica.submit(b"%PDF-1.7 other")
    await replica.process.started.get()  # the worker is free again
    assert 1 == replica.process.cancelled
    assert "running" == (await replica.service.find(other.id, "")).status
    assert 1 == replica.count('document_jobs_total{status="cancelled"}')


async def test_cancel_while_it_waits(open_replica):
    replica = await open_replica(FakeProcess(stops_at=1))
    first = await replica.submit()
    await replica.process.started.get()
    second = await replica.submit(b"%PDF-1.7 two")
    await replica.service.cancel(second.id, "")
    await replica.service.cancel(first.id, "")
    third = await replica.submit(b"%PDF-1.7 three")
    await replica.process.started.get()

    assert "running" == (await replica.service.find(third.id, "")).status
    assert [b"%PDF-1.7 one", b"%PDF-1.7 three"] == [content for content, _, _ in replica.process.calls]
    assert await replica.service.result(await replica.service.find(second.id, "")) is None


async def test_a_deadline(open_replica):
    """A job over its time limit fails, and keeps its pages; no job has more time than the service gives."""
    replica = await open_replica(FakeProcess(stops_at=2))
    job = await replica.ended(await replica.submit(limit_s=0.05))

    assert ("failed", "deadline_exceeded", 504) == (job.status, job.failure.code, job.failure.status)
    assert "0.05 s" in job.failure.message
    assert "deadline_s" in job.failure.message
    assert 1 == replica.process.cancelled
    assert ["page1"] == [page.text for page in (await replica.service.document(job)).pages]
    assert 60.0 == (await replica.submit(b"%PDF-1.7 two", limit_s=1e6)).limit_s  # the service's own


@pytest.mark.parametrize(
    ("error", "code", "status"),
    [
        pytest.param(UnreadableFile("file: it is broken"), "unreadable_file", 422, id="ours"),
        pytest.param(ValueError("secret"), "inference_failed", 500, id="foreign"),
        pytest.param(Overloaded(1, 1, 1.0), "overloaded", 429, id="retryable"),
    ],
)
async def test_a_failure(open_replica, error, code, status, caplog):
    """Its error is that of /v1/documents; the text of a foreign error is only in the log."""
    replica = await open_replica(FakeProcess(error=error))
    job = await replica.ended(await replica.submit())

    assert ("failed", code, status) == (job.status, job.failure.code, job.failure.status)
    assert (code == "overloaded") == job.failure.retryable
    assert "secret" not in job.failure.message
    assert (code == "inference_failed") == ("secret" in caplog.text)
    following = await replica.submit()
    assert following.id != job.id  # what failed is tried again


async def test_a_password_is_in_no_record(open_replica):
    """It reaches the processing and the page images only."""
    replica = await open_replica(FakeProcess())
    job = await replica.ended(await replica.submit(options=DocumentOptions(password="s3cret")))

    assert "s3cret" == replica.process.calls[0][1].password
    assert "s3cret" not in repr(job)
    assert b"12 1 90 110 s3cret" == await replica.service.page_image(job, 1, 110)


async def test_the_document_of_a_job(open_replica):
    """With the metadata of the file, and words even where they were not requested."""
    replica = await open_replica()
    job = await replica.ended(await replica.submit(options=DocumentOptions(features=frozenset({"language"}))))
    document = await replica.service.document(job)

    assert (2, "pdf", {"title": "Test"}) == (document.page_count, document.kind, document.metadata)
    assert ["page1", "page2"] == [page.text for page in document.pages]
    assert ["page1"] == [word.text for word in document.pages[0].words]


async def test_workers_run_in_parallel(open_replica):
    replica = await open_replica(FakeProcess(stops_at=1), workers=2)
    jobs = [await replica.submit(b"%%PDF-1.7 %d" % number) for number in range(3)]
    for _ in range(2):
        await replica.process.started.get()
    await asyncio.sleep(0)

    assert ["running", "running", "queued"] == [(await replica.service.find(job.id, "")).status for job in jobs]
    assert (2, 1) == (replica.service.report()["running"], replica.count('document_jobs_live{state="queued"}'))


async def test_stopping_ends_every_job_that_lives_here_alone(open_replica):
    """Also those that wait: failed, to be sent again, and found until the store is closed; new ones are refused."""
    replica = await open_replica(FakeProcess(stops_at=1))
    jobs = [await replica.submit(b"%%PDF-1.7 %d" % number) for number in range(3)]
    await replica.process.started.get()
    await replica.service.drain()
    ended = [await replica.ended(job) for job in jobs]

    assert [("failed", "unavailable", True)] * 3 == [
        (job.status, job.failure.code, job.failure.retryable) for job in ended
    ]
    assert "send it again" in ended[0].failure.message
    assert 1 == replica.process.cancelled
    assert 3 == replica.count('document_jobs_total{status="failed"}')
    with pytest.raises(Unavailable, match=r"shutting down.*REDIS_URL.*another replica"):
        await replica.submit(b"%PDF-1.7 late")


async def test_a_lost_device_ends_the_jobs_of_this_process(open_replica):
    """No later job is begun on it; the report says why."""
    process = FakeProcess(stops_at=1, error=DeviceLost("the card fell off the bus"))
    replica = await open_replica(process)
    jobs = [await replica.submit(b"%%PDF-1.7 %d" % number) for number in range(2)]
    await process.started.get()
    process.gate.set()
    ended = [await replica.ended(job) for job in jobs]

    assert [("device_lost", True), ("unavailable", True)] == [
        (job.failure.code, job.failure.retryable) for job in ended
    ]
    assert 1 == len(process.calls)
    assert "fell off the bus" in replica.service.degraded()[0]
    with pytest.raises(Unavailable, match="fell off the bus"):
        await replica.submit(b"%PDF-1.7 late")


async def test_a_file_that_cannot_be_read_here_ends_its_job_alone(open_replica):
    """A recording where there is no speech model: the others are worked on, and it is not tried again."""
    process = FakeProcess(stops_at=1, error=NotInstalled("no speech model: install it"))
    replica = await open_replica(process)
    recording = await replica.submit(b"%PDF-1.7 recording")
    await process.started.get()
    process.gate.set()
    failed = await replica.ended(recording)
    process.error = None
    other = await replica.ended(await replica.submit(b"%PDF-1.7 other"))

    assert ("failed", "not_installed", False) == (failed.status, failed.failure.code, failed.failure.retryable)
    assert ("succeeded", ()) == (other.status, replica.service.degraded())
    assert 2 == len(process.calls)


class FaultyStore(MemoryJobStore):
    """Raises what nobody expects, at the first call of one method."""

    def __init__(self, method: str, clock: ManualClock) -> None:
        super().__init__(100, 10_000_000, LIMITS, clock)
        works, faults = getattr(self, method), [KeyError("broken on purpose")]

        async def fail_once(*arguments: object) -> object:
            if faults:
                raise faults.pop()
            return await works(*arguments)

        setattr(self, method, fail_once)


@pytest.mark.parametrize(
    ("method", "task"), [pytest.param("take", "take_jobs"), pytest.param("write_progress", "write_progress")]
)
async def test_a_fault_that_nobody_expects_costs_no_job(clock, method, task):
    """The task that met it goes on; the fault is counted."""
    policy = JobPolicy(workers=1, limit_s=60.0, ttl_s=TTL_S)
    replica = JobReplica(FaultyStore(method, clock), FakeProcess(), policy, now=clock)
    await replica.service.start()
    try:
        jobs = [await replica.ended(await replica.submit(b"%%PDF-1.7 %d" % number)) for number in range(2)]
    finally:
        await replica.service.close()

    assert {"succeeded"} == {job.status for job in jobs}
    assert 1 == replica.count(f'background_failures_total{{task="{task}"}}')


async def test_cancellations_are_watched_again_after_a_fault(clock):
    """As when Redis sends an entry without its field."""

    class DeafOnce(MemoryJobStore):
        times = 0
        heard = asyncio.Event()

        async def cancellations(self) -> AsyncIterator[str]:
            self.times += 1
            if self.times == 1:
                raise KeyError("job")
            self.heard.set()
            async for job_id in super().cancellations():
                yield job_id

    store = DeafOnce(100, 10_000_000, LIMITS, clock)
    replica = JobReplica(store, FakeProcess(), now=clock)
    await replica.service.start()
    async with asyncio.timeout(10):
        await store.heard.wait()
    await replica.service.close()

    assert 1 == replica.count('background_failures_total{task="watch_cancellations"}')


@pytest.mark.parametrize(("enter", "expected"), [(cached_for, [b"a", b"b"]), (share_with_all, [b"", b""])])
async def test_whose_cache_a_job_uses(enter: Enter, expected: list[bytes]):
    """With CACHE_SCOPE=key its owner's alone, in the tasks that it starts too; between jobs nobody's."""
    scopes: list[bytes] = []

    class Watching(FakeProcess):
        async def __call__(self, *call: Any, owner: str) -> DocumentAnswer:
            scopes.append(await asyncio.create_task(scope()))
            return await super().__call__(*call, owner=owner)

    async def scope() -> bytes:
        return owner_scope()

    replica = JobReplica(MemoryJobStore(5, 1_000_000, LIMITS, lambda: NOW_S), Watching(), enter=enter)
    await replica.service.start()
    for owner in ("a", "b"):
        await replica.ended(await replica.submit(owner=owner), owner)
    await replica.service.close()

    assert expected == scopes
    assert b"" == owner_scope()
