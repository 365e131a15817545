"""State transitions of a job, and which existing job a request means. Pure: no clock, no store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from backend.errors import InvalidField, Overloaded, QuotaExceeded
from backend.jobs.records import ENDED, Failure, Job, JobQuota, Progress, Status

_RETRY_AFTER_S = 30.0  # a guess: how long a job takes is not known before it ran
Change = Literal["start", "requeue", "succeed", "fail", "cancel"]

# A running job may be started again: its process has gone, and another takes the job over.
_NEXT: Mapping[tuple[Status, Change], Status] = {
    ("queued", "start"): "running",
    ("queued", "fail"): "failed",
    ("queued", "cancel"): "cancelled",
    ("running", "start"): "running",
    ("running", "requeue"): "queued",
    ("running", "succeed"): "succeeded",
    ("running", "fail"): "failed",
    ("running", "cancel"): "cancelled",
}


def move(job: Job, change: Change, now_s: float, failure: Failure | None = None) -> Job | None:
    """The job after a change; None where its status does not allow the change.

    Args:
        now_s: Unix seconds.
        failure: why; with "fail" alone.
    """
    status = _NEXT.get((job.status, change))
    if status is None:
        return None
    ended = status in ENDED
    return replace(
        job,
        status=status,
        started_s=now_s if job.started_s is None and status == "running" else job.started_s,
        ended_s=now_s if ended else None,
        expires_s=now_s + job.ttl_s if ended else None,
        attempts=job.attempts + {"start": 1, "requeue": -1}.get(change, 0),  # an orderly stop is no attempt
        version=job.version + 1,
        failure=failure,
        progress=_progress(job.progress, status),
    )


def _progress(progress: Progress, status: Status) -> Progress:
    if status == "succeeded":
        return replace(progress, stage="done")
    if status == "queued":
        return replace(progress, stage="queued")
    return progress


def same_job(keyed: Job | None, equal: Job | None, new: Job) -> Job | None:
    """The existing job that a request means; None when the request needs a new one.

    An equal request after a failed or cancelled job, or one whose models no longer serve, starts a new one, unless it
    carries the Idempotency-Key of the old.

    Args:
        keyed: the job of the request's Idempotency-Key.
        equal: the latest job of the same owner, content and options.
        new: the job as the request asks for it.

    Raises: InvalidField when the key belongs to another request.
    """
    if keyed is not None:
        if keyed.same != new.same:
            raise InvalidField(
                "Idempotency-Key: it came before with another file or other options; send a new key with a new request",
                param="Idempotency-Key",
            )
        return keyed
    if equal is not None and equal.status not in ("failed", "cancelled") and equal.models == new.models:
        return equal
    return None


def too_many(counted: str, value: int, limit: int, setting: str) -> Overloaded:
    """The error for a job over a limit."""
    message = (
        f"{value} {counted} are over the limit of {limit} ({setting}); try again when some have ended, or delete some"
    )
    return Overloaded(value, limit, _RETRY_AFTER_S, message)


def check_quota(live: int, quota: JobQuota) -> None:
    """Raises: QuotaExceeded where so many jobs of an owner are all that it may have."""
    if live >= quota.limit:
        message = (
            f"jobs: {live} of this key are queued or running, its quota is {quota.limit} ({quota.setting}); "
            "try again when one has ended, or cancel one"
        )
        raise QuotaExceeded("jobs", message, _RETRY_AFTER_S)
