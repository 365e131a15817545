"""The limits of the store in memory."""

import contextlib
import tracemalloc
from pathlib import Path

import pytest

from backend.errors import Overloaded
from backend.jobs.memory_store import MemoryJobStore
from backend.jobs.records import PageRecord
from tests.fakes import ManualClock
from tests.jobs.samples import LIMITS, NOW_S, TTL_S, job, moved, upload

FILE = b"x" * 40_000


def descriptors() -> int:
    return len(list(Path("/dev/fd").iterdir()))


async def added(store, record):
    with contextlib.closing(upload(FILE)) as stored:
        return await store.add(record, stored, None, pinned=False)


async def ended(store, record, result=b""):
    """Add a job that has succeeded."""
    await added(store, record)
    running, done = moved(record, "start"), moved(record, "start", "succeed")
    await store.swap(record, running)
    await store.swap(running, done, result)


async def test_the_oldest_ended_job_is_dropped_first():
    """Files, pages and results count together; live jobs stay."""
    store = MemoryJobStore(10, 200_000, LIMITS, ManualClock(NOW_S))
    await added(store, job("live"))
    await ended(store, job("old"))
    await ended(store, job("new"))
    await added(store, job("last"))

    assert [True, False, True, True] == [
        await store.find(record) is not None for record in ("live", "old", "new", "last")
    ]
    assert store.report()["bytes"] <= 200_000


async def test_one_callers_jobs_do_not_push_out_anothers():
    """Of the owner with the most bytes the oldest goes, though another's is older."""
    store = MemoryJobStore(10, 200_000, LIMITS, ManualClock(NOW_S))
    await ended(store, job("theirs", owner="other"), b"their result")
    for number in range(20):
        await ended(store, job(f"mine-{number}", owner="busy"))

    assert b"their result" == await store.result(job("theirs"))
    assert await store.find("mine-0") is None
    assert await store.find("mine-19") is not None


async def test_a_job_keeps_no_descriptor_and_its_record_counts():
    """3,000 broken images of 48 bytes took 3,000 descriptors for a day, and 17 kB each that counted as 255 bytes."""
    store = MemoryJobStore(2_000, 100_000_000, LIMITS, ManualClock(NOW_S))
    before = descriptors()
    tracemalloc.start()
    for number in range(500):
        await ended(store, job(f"{number:032}", owner="o"))
        await added(store, job(f"{number:030}-w", owner="o"))
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert before == descriptors()
    assert taken < store.report()["bytes"] < 1.5 * taken


async def test_a_large_result_drops_older_jobs():
    store = MemoryJobStore(10, 200_000, LIMITS, ManualClock(NOW_S))
    await ended(store, job("old"))
    await ended(store, job("large"), b"y" * 120_000)

    assert await store.find("old") is None
    assert b"y" * 120_000 == await store.result(moved(job("large"), "start", "succeed"))


async def test_a_store_full_of_live_jobs():
    """New jobs are refused with the numbers and the setting."""
    store = MemoryJobStore(10, 100_000, LIMITS, ManualClock(NOW_S))
    await added(store, job("one"))
    await store.write_progress(job("one"), job().progress, PageRecord(1, b"z" * 20_000, b"{}"))

    with pytest.raises(Overloaded, match=r"limit of 100000 \(LIMIT_JOB_BYTES\)"):
        await added(store, job("two"))
    assert await store.find("two") is None


async def test_expiry():
    """The time to live counts from the end: a job that waits or runs does not expire, however long."""
    clock = ManualClock(NOW_S)
    store = MemoryJobStore(10, 1_000_000, LIMITS, clock)
    await ended(store, job("done"))
    await added(store, job("waits"))
    clock.advance(TTL_S)

    assert await store.find("done") is None
    assert job("waits") == await store.find("waits")
