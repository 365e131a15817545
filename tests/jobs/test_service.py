"""Jobs from their acceptance to their end, in one process."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import orjson
import pytest

from backend.batching.work_item import Priority
from backend.errors import NotFound, UnreadableFile, WrongMediaType
from backend.jobs.memory_store import MemoryJobStore
from backend.jobs.records import Progress
from backend.jobs.runner import JobPolicy
from backend.services.documents.records import DocumentOptions
from tests.fakes import ManualClock
from tests.jobs.job_desk import FakeReading, JobDesk
from tests.jobs.samples import NOW_S, TTL_S


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_S)


@pytest.fixture
async def open_desk(clock: ManualClock) -> AsyncIterator[Callable[..., JobDesk]]:
    """Start a replica without Redis; all are closed after the test."""
    desks: list[JobDesk] = []

    async def start(reading: FakeReading | None = None, **policy: float) -> JobDesk:
        chosen = replace(JobPolicy(workers=1, limit_s=60.0, ttl_s=TTL_S), **policy)
        store = MemoryJobStore(100, 10_000_000, clock)
        desk = JobDesk(store, reading or FakeReading(), chosen, now=clock)
        desks.append(desk)
        await desk.service.start()
        return desk

    yield start
    for desk in desks:
        await desk.service.close()


async def test_a_job_is_done(open_desk):
    """It is read with what was asked for, urgent for nobody, and has the document that /v1/documents answers."""
    desk = await open_desk()
    options = DocumentOptions(features=frozenset({"text", "words"}), pages="1-2", languages=("es", "en"))
    before_s = time.monotonic()
    job = await desk.ended(await desk.submit(options=options, name="factura.pdf"))

    assert ("succeeded", 1) == (job.status, job.attempts)
    assert Progress("done", 2, 2, 0) == job.progress
    assert ("factura.pdf", 12, "pdf") == (job.file.name, job.file.size_bytes, job.file.kind)
    [(content, asked, urgency)] = desk.reading.calls
    assert (b"%PDF-1.7 one", options) == (content, asked)
    assert Priority.BULK == urgency.priority
    assert before_s + 60 <= urgency.deadline_s < math.inf
    result = orjson.loads(await desk.service.result(job))
    assert ["page1", "page2"] == [page["text"] for page in result["pages"]]
    assert "partial" not in result
    assert 1 == desk.count('document_jobs_total{status="succeeded"}')
    assert 2 == desk.count("document_job_pages_total")
    assert 0 == desk.count('document_jobs_live{state="running"}')


async def test_the_first_page_is_seen_while_the_second_is_read(open_desk):
    """Progress is written as it happens."""
    desk = await open_desk(FakeReading(stops_at=2))
    job = await desk.submit()
    await desk.reading.started.get()
    kinds = []
    async for event in desk.service.events(job, ""):
        kinds.append(event.kind)
        if event.kind == "page":
            break

    assert "text" in orjson.loads(event.data)
    found = await desk.service.find(job.id, "")
    assert ("running", 1) == (found.status, found.progress.pages_done)
    assert await desk.service.result(found) is None
    assert 1 == desk.count('document_jobs_live{state="running"}')


async def test_a_page_that_fails_is_counted(open_desk):
    """The others are read."""
    desk = await open_desk(FakeReading(pages=3, fails_at=2))
    job = await desk.ended(await desk.submit())

    assert Progress("done", 3, 3, 1) == job.progress


async def test_cancelled_while_it_runs(open_desk):
    """Its work ends at once, and the pages it had read are kept."""
    desk = await open_desk(FakeReading(stops_at=2))
    job = await desk.submit()
    await desk.reading.started.get()
    async for event in desk.service.events(job, ""):
        if event.kind == "page":
            break
    cancelled = await desk.service.cancel(job.id, "")
    ended = await desk.ended(job)

    assert ("cancelled", "cancelled") == (cancelled.status, ended.status)
    result = orjson.loads(await desk.service.result(ended))
    assert (True, ["page1"], "page1") == (
        result["partial"],
        [page["text"] for page in result["pages"]],
        result["text"],
    )
    other = await desk.submit(b"%PDF-1.7 other")
    await desk.reading.started.get()  # the worker is free again
    assert 1 == desk.reading.cancelled
    assert "running" == (await desk.service.find(other.id, "")).status
    assert 1 == desk.count('document_jobs_total{status="cancelled"}')


async def test_cancelled_while_it_waits(open_desk):
    """It is never begun."""
    desk = await open_desk(FakeReading(stops_at=1))
    first = await desk.submit()
    await desk.reading.started.get()
    second = await desk.submit(b"%PDF-1.7 two")
    await desk.service.cancel(second.id, "")
    await desk.service.cancel(first.id, "")
    third = await desk.submit(b"%PDF-1.7 three")
    await desk.reading.started.get()

    assert "running" == (await desk.service.find(third.id, "")).status
    assert [b"%PDF-1.7 one", b"%PDF-1.7 three"] == [content for content, _, _ in desk.reading.calls]
    assert await desk.service.result(await desk.service.find(second.id, "")) is None


async def test_an_ended_job_is_forgotten(open_desk):
    """Deleting it again finds nothing."""
    desk = await open_desk()
    job = await desk.ended(await desk.submit())

    assert await desk.service.cancel(job.id, "") is None
    with pytest.raises(NotFound):
        await desk.service.cancel(job.id, "")


async def test_a_deadline(open_desk):
    """What takes longer than it may ends, and keeps what it has."""
    desk = await open_desk(FakeReading(stops_at=2))
    job = await desk.ended(await desk.submit(limit_s=0.05))

    assert ("failed", "deadline_exceeded", 504) == (job.status, job.failure.code, job.failure.status)
    assert "0.05 s" in job.failure.message
    assert "deadline_s" in job.failure.message
    assert 1 == desk.reading.cancelled
    assert ["page1"] == [page["text"] for page in orjson.loads(await desk.service.result(job))["pages"]]


async def test_nobody_gets_more_time_than_there_is(open_desk):
    """LIMIT_JOB_S caps deadline_s."""
    desk = await open_desk(limit_s=0.05)
    job = await desk.submit(limit_s=1e6)

    assert 0.05 == job.limit_s


@pytest.mark.parametrize(
    ("error", "code", "status"),
    [
        pytest.param(UnreadableFile("file: it is broken"), "unreadable_file", 422, id="ours"),
        pytest.param(ValueError("secret"), "inference_failed", 500, id="foreign"),
    ],
)
async def test_a_failure(open_desk, error, code, status, caplog):
    """Its error is the one that /v1/documents would answer; a foreign one says nothing of itself, but to the log."""
    desk = await open_desk(FakeReading(error=error))
    job = await desk.ended(await desk.submit())

    assert ("failed", code, status) == (job.status, job.failure.code, job.failure.status)
    assert "secret" not in job.failure.message
    assert (code == "inference_failed") == ("secret" in caplog.text)
    following = await desk.submit()
    assert following.id != job.id  # what failed is tried again


async def test_equal_files_are_one_job(open_desk):
    """Of one owner, with the same options; else they are several."""
    desk = await open_desk()
    job, replayed = await desk.submitted()
    again = await desk.submitted()
    others = [
        await desk.submitted(owner="key"),
        await desk.submitted(options=DocumentOptions(pages="1")),
        await desk.submitted(b"%PDF-1.7 two"),
        await desk.submitted(encoding_format="base64"),
        await desk.submitted(format="pdf"),
    ]

    assert (False, (job.id, True)) == (replayed, (again[0].id, again[1]))
    assert 6 == len({job.id, *(other.id for other, _ in others)})
    assert not any(replayed for _, replayed in others)


async def test_a_stranger_sees_nothing(open_desk):
    """A job of another key is as absent as one that never was, and the message says no more."""
    desk = await open_desk()
    job = await desk.submit(owner="mine")

    assert job.id == (await desk.service.find(job.id, "mine")).id
    assert "mine" not in repr(job)
    for job_id, owner in ((job.id, "yours"), (job.id, ""), ("none", "mine")):
        with pytest.raises(NotFound) as told:
            await desk.service.find(job_id, owner)
        assert "100 s after their end (JOB_TTL_S), and without REDIS_URL" in str(told.value)
        with pytest.raises(NotFound):
            await desk.service.cancel(job_id, owner)


async def test_expiry(open_desk, clock):
    """Some time after its end a job is not there any more."""
    desk = await open_desk()
    clock.advance(50)
    job = await desk.ended(await desk.submit())
    clock.advance(TTL_S - 1)
    assert job == await desk.service.find(job.id, "")
    clock.advance(1)

    with pytest.raises(NotFound):
        await desk.service.find(job.id, "")


async def test_foreign_files_are_refused_at_once(open_desk):
    """Nobody needs to wait for that."""
    desk = await open_desk()

    with pytest.raises(WrongMediaType):
        await desk.submit(b"not a document")


async def test_a_password_stays_here(open_desk):
    """It reaches the reading and the pictures, and no record."""
    desk = await open_desk(FakeReading())
    job = await desk.ended(await desk.submit(options=DocumentOptions(password="s3cret")))

    assert "s3cret" == desk.reading.calls[0][1].password
    assert "s3cret" not in repr(job)
    assert b"12 1 90 110 s3cret" == await desk.service.picture(job, 1, 110)


async def test_pictures_are_turned_as_the_page_was_read(open_desk):
    """One that was not read stands as it is."""
    desk = await open_desk()
    job = await desk.ended(await desk.submit())

    assert b"12 2 90 72 None" == await desk.service.picture(job, 2, 72)
    assert b"12 9 0 72 None" == await desk.service.picture(job, 9, 72)


async def test_other_formats_have_the_pages(open_desk):
    """With what the file says of itself."""
    desk = await open_desk()
    job = await desk.ended(await desk.submit(options=DocumentOptions(features=frozenset({"language"}))))
    document = await desk.service.document(job)

    assert (2, "pdf", {"title": "Test"}) == (document.page_count, document.kind, document.metadata)
    assert ["page1", "page2"] == [page.text for page in document.pages]
    assert ["page1"] == [word.text for word in document.pages[0].words]


async def test_no_pages_no_document(open_desk):
    """A job that lives or read nothing has no other format either."""
    desk = await open_desk(FakeReading(stops_at=1))
    job = await desk.submit()
    await desk.reading.started.get()

    with pytest.raises(NotFound, match="running"):
        await desk.service.document(await desk.service.find(job.id, ""))


async def test_stopping_without_redis(open_desk):
    """What runs fails clearly, for nobody could go on with it."""
    desk = await open_desk(FakeReading(stops_at=2))
    job = await desk.submit()
    await desk.reading.started.get()
    await desk.service._runner.close()
    ended = await desk.service.find(job.id, "")

    assert ("failed", "unavailable") == (ended.status, ended.failure.code)
    assert "send it again" in ended.failure.message
    assert 1 == desk.reading.cancelled


async def test_workers_run_side_by_side(open_desk):
    """As many as were asked for and no more."""
    desk = await open_desk(FakeReading(stops_at=1), workers=2)
    jobs = [await desk.submit(b"%%PDF-1.7 %d" % number) for number in range(3)]
    for _ in range(2):
        await desk.reading.started.get()
    await asyncio.sleep(0)

    assert ["running", "running", "queued"] == [(await desk.service.find(job.id, "")).status for job in jobs]
    assert (2, 1) == (desk.service.report()["running"], desk.count('document_jobs_live{state="queued"}'))
