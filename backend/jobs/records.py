"""What a background job is, from the moment it is accepted until it is forgotten. Plain records; nothing acts here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from backend.errors import FinanciaError

Status = Literal["queued", "running", "succeeded", "failed", "cancelled"]
Stage = Literal["queued", "opening", "reading", "understanding", "done"]
EventKind = Literal["progress", "page", "end"]
ENDED: frozenset[Status] = frozenset(("succeeded", "failed", "cancelled"))


@dataclass(frozen=True, slots=True)
class JobFile:
    """The file a job is about, as it was sent."""

    name: str
    size_bytes: int
    sha256: str  # hexadecimal
    kind: str  # "pdf", "png", …


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job is."""

    stage: Stage = "queued"
    pages_done: int = 0  # read or failed
    pages_total: int | None = None  # None until the file is open
    failed_pages: int = 0


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a job failed, as its error would have been answered."""

    message: str
    code: str
    status: int
    param: str | None = None

    @classmethod
    def of(cls, error: FinanciaError) -> Failure:
        """What an error of our tree says."""
        return cls(str(error) or error.title, error.code, error.status, error.param)


@dataclass(frozen=True, slots=True)
class Job:
    """One file to be read in the background. Times are Unix seconds.

    ``version`` counts the changes `states.move` made: who holds an old one cannot change the job any more, which is
    what keeps two processes from both working on it to its end.
    """

    id: str
    owner: str  # hash of the API key it came with; empty where no keys are asked for
    file: JobFile
    options: Mapping[str, Any]  # what was asked, as JSON; never the password
    same: str  # digest of owner, content and options: equal for equal wishes
    limit_s: float  # that one attempt may run
    ttl_s: float  # that it is kept after it ended
    created_s: float
    expires_s: float
    needs_password: bool = False
    status: Status = "queued"
    started_s: float | None = None  # the first attempt
    ended_s: float | None = None
    attempts: int = 0
    version: int = 0
    failure: Failure | None = None
    progress: Progress = field(default_factory=Progress)

    @property
    def ended(self) -> bool:
        """Nothing changes any more."""
        return self.status in ENDED


class PageNote(NamedTuple):
    """A page that was read, for those who watch and for a document that stays a part."""

    number: int
    packed: bytes  # documents.page_codec
    event: bytes  # JSON, for who watches


class JobEvent(NamedTuple):
    """Something that happened to a job. An id is greater than those before it; a reader goes on after it."""

    id: str
    kind: EventKind
    data: bytes  # JSON; of "end" empty: the job itself tells


class Claim(NamedTuple):
    """The right to work on a job for as long as it is renewed."""

    job_id: str
    place: str  # where the store keeps it; means nothing elsewhere
