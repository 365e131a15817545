"""State transitions of jobs, and which job a request means."""

from itertools import product
from typing import get_args

import pytest

from backend.jobs.records import ENDED, Change, Failure, Progress, Status, move, same_job
from tests.jobs.samples import NOW_S, TTL_S, job, moved

ALLOWED = {
    ("queued", "start"): "running", ("queued", "fail"): "failed", ("queued", "cancel"): "cancelled",
    ("running", "start"): "running", ("running", "requeue"): "queued", ("running", "succeed"): "succeeded",
    ("running", "fail"): "failed", ("running", "cancel"): "cancelled",
}  # fmt: skip


@pytest.mark.parametrize(("status", "change"), list(product(get_args(Status), get_args(Change))))
def test_transitions(status, change):
    """Exactly those of the table; nothing leaves a final state."""
    after = move(job(status=status), change, NOW_S + 5)

    assert ALLOWED.get((status, change)) == (after and after.status)
    if after is not None:
        assert 1 == after.version
        assert (after.ended_s is not None) == (after.status in ENDED)


def test_times_and_attempts():
    """The first start counts as the start; an orderly stop is no attempt; the time to live counts from the end."""
    first = moved(job(), "start", now_s=NOW_S + 1)
    again = moved(first, "requeue", "start", now_s=NOW_S + 9)
    taken_over = moved(again, "start", now_s=NOW_S + 20)
    ended = moved(taken_over, "succeed", now_s=NOW_S + 30)

    assert [1, 1, 2] == [first.attempts, again.attempts, taken_over.attempts]
    assert NOW_S + 1 == ended.started_s
    assert (NOW_S + 30, NOW_S + 30 + TTL_S) == (ended.ended_s, ended.expires_s)
    assert (None, None) == (first.expires_s, taken_over.expires_s)
    assert "done" == ended.progress.stage


def test_a_failed_job_keeps_failure_and_progress():
    failure = Failure("too late", "deadline_exceeded", 504)
    failed = move(moved(job(progress=Progress("reading", 2, 9)), "start"), "fail", NOW_S, failure)

    assert (failure, Progress("reading", 2, 9)) == (failed.failure, failed.progress)


@pytest.mark.parametrize(
    ("status", "expected"),
    [("queued", True), ("running", True), ("succeeded", True), ("failed", False), ("cancelled", False)],
)
def test_an_equal_request(status, expected):
    """It gets the existing job, unless that failed or was cancelled."""
    there = job(status=status)

    assert expected == (same_job(None, there, there) is there)


def test_an_equal_request_after_an_upgrade():
    """The vectors of a job are those of its models: others begin anew, but a repeated request with its key does not."""
    there, new = job(status="succeeded", options={"models": "a"}), job(options={"models": "b"})

    assert same_job(None, there, new) is None
    assert same_job(None, job(status="succeeded"), new) is None
    assert there is same_job(there, None, new)
