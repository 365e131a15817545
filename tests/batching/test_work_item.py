"""Who waits for a job, and until when."""

from __future__ import annotations

import asyncio
import math

import pytest

from backend.batching.work_item import Job, Priority
from tests.fakes import EchoEngine


@pytest.fixture
async def job() -> Job:
    """A job with one caller and a deadline at 10 s."""
    future = asyncio.get_running_loop().create_future()
    return Job(EchoEngine(), "text", 1, Priority.INTERACTIVE, 10.0, 0.0, future)


async def test_abandoned_by_its_only_caller(job):
    """A job without callers is not wanted and its future has ended, silently."""
    job.abandon()

    assert not job.is_wanted(0.0)
    assert job.future.cancelled()


async def test_abandoned_by_one_of_two(job):
    """The other caller keeps the job alive."""
    assert job.join()
    job.abandon()

    assert job.is_wanted(0.0)
    job.abandon()
    assert not job.is_wanted(0.0)


async def test_nobody_joins_a_job_that_was_given_up(job):
    """A newcomer must submit its own."""
    job.abandon()

    assert not job.join()


async def test_abandoning_too_often_changes_nothing(job):
    """An answered job may be abandoned by a caller that cleans up."""
    job.future.set_result("answer")
    job.abandon()
    job.abandon()

    assert job.waiters == 0
    assert job.future.result() == "answer"


async def test_late_at_its_deadline(job):
    """The deadline itself is too late; the error tells the limit."""
    assert job.is_wanted(9.9)
    assert not job.is_wanted(10.0)
    assert job.late().limit_s == 10.0


async def test_no_deadline(job):
    """A job without a deadline never is late."""
    job.deadline_s = math.inf

    assert job.is_wanted(1e12)


async def test_a_cancelled_caller_makes_it_unwanted(job):
    """Cancelling a task that awaits the future is enough; nobody must call abandon."""
    task = asyncio.ensure_future(asyncio.wait_for(job.future, None))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert not job.is_wanted(0.0)


async def test_times(job):
    """Queue and inference time come from the three marks."""
    job.started_s, job.finished_s = 2.0, 5.0

    assert (job.queue_s, job.inference_s) == (2.0, 3.0)
