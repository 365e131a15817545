"""What a store of background jobs promises; one in the memory of the process and one in Redis keep it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Literal, Protocol

from backend.documents.parsing.stored_file import StoredFile
from backend.jobs.records import Claim, Job, JobEvent, PageNote, Progress

Swap = Literal["done", "stale", "gone"]


class JobStore(Protocol):
    """Jobs, their files, pages, results and events; a queue of those that wait. Loop only.

    Every method but `take`, `stops` and `close` raises Unavailable where the store cannot be asked.
    """

    heartbeat_s: float | None  # claims are to be renewed this often; None: never

    async def start(self) -> None:
        """Open what is needed; does not fail where the store is not there yet."""

    async def close(self) -> None:
        """Let go. Iterators and `take` end or wait for ever."""

    async def add(self, job: Job, upload: StoredFile, key: str | None, *, here: bool) -> Job:
        """Keep a new job with its file and put it in the queue; or the one there is (`states.same_job`).

        Args:
            upload: stays the caller's.
            key: digest of owner and Idempotency-Key.
            here: only this process can run it; nobody else takes it while this one lives.

        Raises: Overloaded, and InvalidField of `same_job`.
        """

    async def find(self, job_id: str) -> Job | None:
        """The job; None where there is none (any more)."""

    async def file(self, job_id: str) -> StoredFile | None:
        """Its file, to be closed by the caller."""

    async def result(self, job: Job) -> bytes | None:
        """What a job that succeeded gave."""

    async def pages(self, job_id: str) -> dict[int, bytes]:
        """The pages read so far by their number, packed."""

    async def page(self, job_id: str, number: int) -> bytes | None:
        """One of them; None where it was not read (yet)."""

    async def swap(self, old: Job, new: Job, result: bytes | None = None) -> Swap:
        """Put ``new`` (of `states.move`) where ``old`` is: "stale" when it has changed meanwhile, "gone" when lost.

        Watchers are told. A job that is queued again goes to the end of the queue; one that ended leaves it; one that
        was cancelled is told of by `stops`.
        """

    async def restore(self, job: Job, result: bytes | None) -> None:
        """Keep an ended job that the store has lost."""

    async def note(self, job: Job, progress: Progress, page: PageNote | None) -> bool:
        """Write how far a running job is, and a page; whether it still is what ``job`` says.

        A page that was noted before, by an earlier attempt, is not told of again.
        """

    async def forget(self, job: Job) -> None:
        """Drop it with everything that belongs to it."""

    async def take(self) -> Claim:
        """The next job that nobody works on; waits until there is one, whatever befalls the store.

        One call at a time.
        """

    async def renew(self, claim: Claim, job: Job | None) -> bool:
        """Keep a claim; whether it still is ours and the job, where given, is what it was."""

    async def renew_waiting(self) -> None:
        """The same for jobs that only this process can run and no worker has taken yet."""

    async def settle(self, claim: Claim) -> None:
        """Give a claim up whose job is no more."""

    def events(self, job_id: str, after: str) -> AsyncGenerator[JobEvent, None]:
        """What happened after this event's id (empty: from the beginning), then what happens, up to the job's end."""

    def stops(self) -> AsyncIterator[str]:
        """Ids of jobs that are cancelled from now on, in whatever process."""

    def waiting(self) -> int:
        """Jobs in the queue, as last seen; those that run included where the store cannot tell them apart."""

    def report(self) -> dict[str, Any]:
        """What it is and what it holds, for people."""
