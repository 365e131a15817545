"""Records of a background job: its file, status, progress, failure and events. Data only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from backend.errors import FinanciaError

Status = Literal["queued", "running", "succeeded", "failed", "cancelled"]
Stage = Literal["queued", "opening", "reading", "understanding", "done"]
EventKind = Literal["progress", "page", "fields", "end"]
DOCUMENT = "document"
ENDED: frozenset[Status] = frozenset(("succeeded", "failed", "cancelled"))


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
