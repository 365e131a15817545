"""Records of a background job: its file, status, progress, failure and events, and its state transitions. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from backend.errors import FinanciaError, InvalidField, Overloaded, QuotaExceeded

Status = Literal["queued", "running", "succeeded", "failed", "cancelled"]
Stage = Literal["queued", "opening", "reading", "understanding", "done"]
EventKind = Literal["progress", "page", "fields", "end"]
DOCUMENT = "document"
ENDED: frozenset[Status] = frozenset(("succeeded", "failed", "cancelled"))
_RETRY_AFTER_S = 30.0  # a guess: how long a job takes is not known before it ran
Change = Literal["start", "requeue", "succeed", "fail", "cancel"]

# A running job may be started again: its process has gone, and another takes the job over.
_NEXT: Mapping[tuple[Status, Change], Status] = {
    ("queued", "start"): "running", ("queued", "fail"): "failed", ("queued", "cancel"): "cancelled",
    ("running", "start"): "running", ("running", "requeue"): "queued", ("running", "succeed"): "succeeded",
    ("running", "fail"): "failed", ("running", "cancel"): "cancelled",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class JobFile:
    name: str
    size_bytes: int
    sha256: str  # hexadecimal
    kind: str  # "pdf", "png", …


@dataclass(frozen=True, slots=True)
class Progress:
    stage: Stage = "queued"
    pages_done: int = 0  # read or failed
    pages_total: int | None = None  # None until the file is open
    failed_pages: int = 0


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a job failed, with the fields that an error answer has."""

    message: str
    code: str
    status: int
    param: str | None = None
    retryable: bool = False  # whether the same request may succeed as a new job

    @classmethod
    def of(cls, error: FinanciaError) -> Failure:
        return cls(str(error) or error.title, error.code, error.status, error.param, error.retryable)


@dataclass(frozen=True, slots=True)
class KeepAs:
    """How the document of a job is stored."""

    file_id: str
    expires_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """One file to be processed in the background. Times are Unix seconds.

    ``version`` counts the changes that `states.move` made. A process that holds an old version cannot change the job
    any more, so two processes never both finish it.
    """

    id: str
    owner: str  # `Caller.owner` of who sent it
    file: JobFile
    options: Mapping[str, Any]  # of the request, as JSON values; never the password
    same: str  # digest of owner, content and options: equal for equal requests
    limit_s: float  # one attempt may run this long
    ttl_s: float  # the job is kept this long after its end
    created_s: float
    expires_s: float | None = None  # None until it has ended: no job is forgotten while it waits or runs
    needs_password: bool = False
    trace: str = ""  # `traceparent` of the request that sent it; "" without one, or from a release without traces
    status: Status = "queued"
    started_s: float | None = None  # the first attempt
    ended_s: float | None = None
    attempts: int = 0
    version: int = 0
    failure: Failure | None = None
    progress: Progress = field(default_factory=Progress)

    @property
    def ended(self) -> bool:
        """Whether the job is in a final state."""
        return self.status in ENDED

    @property
    def kind(self) -> str:
        """Which work it is: "document", or a name that `JobService.add_work` was given."""
        return str(self.options.get("kind", DOCUMENT))

    @property
    def models(self) -> str:
        """Which models served when it was sent; "" for a job of a release that did not write it."""
        return str(self.options.get("models", ""))

    @property
    def keep_as(self) -> KeepAs | None:
        """How its document is stored; None where it is not."""
        asked = self.options.get("store")
        return None if asked is None else KeepAs(**asked)

    @property
    def document_id(self) -> str | None:
        """The stored document that it has made."""
        return self.keep_as.file_id if self.keep_as is not None and self.status == "succeeded" else None


class PageRecord(NamedTuple):
    """An extracted page as a store keeps it: for watchers, and for the partial document of a job that fails."""

    number: int
    packed: bytes  # by documents.page_codec
    event: bytes  # JSON, the data of the "page" event


class JobEvent(NamedTuple):
    """Something that happened to a job. Ids grow; a client that reconnects continues after the last id it saw."""

    id: str
    kind: EventKind
    data: bytes  # JSON; of "fields" by `document_codec`; empty for "end", where the job itself is sent


class JobQuota(NamedTuple):
    """How many jobs of one owner may be queued or running."""

    limit: int
    setting: str = "QUOTA_JOBS"  # or where else the operator has set it, for messages


class JobClaim(NamedTuple):
    """The right to work on a job for as long as it is renewed."""

    job_id: str
    place: str  # queue entry, in the form of the store that gave it


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
                "Idempotency-Key: it came before with another file or other options; send a new key with a new request"
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
