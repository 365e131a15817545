"""The interface of job stores (one in memory, one in Redis), and retries for calls to a store that is away."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Literal, Protocol

from backend.files.stored_file import StoredFile
from backend.jobs.records import Job, JobClaim, JobEvent, JobQuota, PageRecord, Progress

Swap = Literal["done", "stale", "gone", "lost"]
Renewal = Literal["kept", "taken", "gone"]


class JobStore(Protocol):
    """Jobs, their files, pages, results and events, and a queue of waiting jobs. Loop only.

    Every method but `take`, `cancellations` and `close` raises Unavailable where the store does not answer.
    """

    heartbeat_s: float | None  # claims are to be renewed this often; None: never

    async def start(self) -> None:
        """Open what is needed. Does not fail where the store is not there yet."""

    async def close(self) -> None:
        """Let go. Iterators and `take` end or wait for ever."""

    async def add(
        self, job: Job, upload: StoredFile, key: str | None, *, pinned: bool, quota: JobQuota | None = None
    ) -> Job:
        """Keep a new job with its file and put it in the queue; or return the job there is (`states.same_job`).

        Args:
            upload: stays the caller's.
            key: digest of owner and Idempotency-Key.
            pinned: only this process can run it; no other takes it while this one lives.
            quota: of its owner; a job that there is already needs none of it.

        Raises: Overloaded, QuotaExceeded, and InvalidField of `same_job`.
        """

    async def find(self, job_id: str) -> Job | None:
        """The job; None where there is none (any more). Raises further: JobOfAnotherRelease."""

    async def file(self, job_id: str) -> StoredFile | None:
        """The job's file, to be closed by the caller."""

    async def result(self, job: Job) -> bytes | None:
        """The packed result of a job that succeeded (`document_codec.pack_answer`)."""

    async def pages(self, job_id: str) -> dict[int, bytes]:
        """The pages extracted so far by their number, packed."""

    async def page(self, job_id: str, number: int) -> bytes | None:
        """One page, packed; None where it was not extracted (yet)."""

    async def swap(self, old: Job, new: Job, result: bytes | None = None, *, claim: JobClaim | None = None) -> Swap:
        """Replace ``old`` by ``new`` (of `states.move`).

        "stale": it has changed meanwhile or was deleted. "gone": the store has lost it. "lost": ``claim``, where given,
        is no longer ours, and another process may run the job. A call that is repeated because its answer was lost is
        "done" again.

        Sends events to watchers. A job that is queued again goes to the end of the queue, one that ended leaves the
        queue, and the id of one that was cancelled goes to `cancellations`.
        """

    async def restore(self, job: Job, result: bytes | None) -> None:
        """Keep an ended job that the store has lost. One that was deleted stays so."""

    async def write_progress(self, job: Job, progress: Progress, page: PageRecord | None, fields: bytes = b"") -> bool:
        """Write how far a running job is, and a page; False when the job has changed since ``job``.

        A page that an earlier attempt wrote gets no second event.

        Args:
            fields: the data of a "fields" event; empty: there is none.
        """

    async def forget(self, job: Job) -> None:
        """Drop the job with everything that belongs to it."""

    async def take(self) -> JobClaim:
        """The next job that no worker has; waits until there is one, whatever befalls the store.

        One call at a time.
        """

    async def renew(self, claim: JobClaim, job: Job | None) -> Renewal:
        """Keep a claim, and put a running ``job`` back that the store has lost.

        "taken": it is no longer ours, or ``job`` has changed. "gone": the store has lost it.
        """

    async def renew_waiting(self) -> None:
        """Keep the claims on jobs that only this process can run and no worker has taken yet."""

    async def settle(self, claim: JobClaim) -> None:
        """Give up a claim whose job is no more."""

    async def live(self, owner: str) -> int:
        """How many jobs of an owner are queued or running."""

    async def position(self, job_id: str) -> int | None:
        """The place of a waiting job in the queue, from 1; None for one that no longer waits, or for one process."""

    async def ended(self, owner: str) -> list[str]:
        """Ids of an owner's ended jobs, those first that are forgotten first."""

    async def held(self) -> list[JobClaim]:
        """Claims that keep jobs from other processes, of running jobs too: given to this one, or queued for it alone.

        Also those that `take` was given and did not return because it was cancelled.
        """

    def events(self, job_id: str, after: str) -> AsyncGenerator[JobEvent, None]:
        """What happened after this event's id (empty: from the beginning), then what happens, up to the job's end.

        An id beyond the last event's is waited for: nothing is told, and it ends with the job.
        """

    def cancellations(self) -> AsyncIterator[str]:
        """Ids of jobs that are cancelled from now on, in whatever process."""

    def waiting(self) -> int:
        """Jobs in the queue, at the last count; includes running jobs where the store cannot tell them apart."""

    def report(self) -> dict[str, Any]:
        """Kind and contents of the store, for GET /v1/system."""
