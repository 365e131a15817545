"""Jobs in the memory of the process, where there is no Redis: lost with it, and unknown to every other replica."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from typing import Any

from backend.documents.parsing.stored_file import StoredFile
from backend.jobs.codec import pack_progress
from backend.jobs.records import Claim, EventKind, Job, JobEvent, PageNote, Progress
from backend.jobs.states import same_job, too_many
from backend.jobs.store import Swap

_HERE = "memory"
_DIGITS = 12  # of an event's id: ids are compared as text


@dataclass(slots=True)
class _Kept:
    """A job and what belongs to it."""

    job: Job
    file: StoredFile
    keys: set[str]  # digests of the Idempotency-Keys that mean it
    result: bytes | None = None
    pages: dict[int, bytes] = field(default_factory=dict)
    events: list[JobEvent] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)  # a new one after each event

    @property
    def size_bytes(self) -> int:
        events = sum(len(event.data) for event in self.events)
        return self.file.size_bytes + len(self.result or b"") + sum(map(len, self.pages.values())) + events

    def tell(self, kind: EventKind, data: bytes = b"") -> None:
        self.events.append(JobEvent(f"{len(self.events) + 1:0{_DIGITS}}", kind, data))
        self.changed.set()
        self.changed = asyncio.Event()


class MemoryJobStore:
    """A `JobStore` within bounds: the oldest that ended go first; full of live ones it refuses.

    Args:
        limit_jobs: that wait or run.
        limit_bytes: of files, pages, results and events together.
        now: Unix seconds.
    """

    heartbeat_s: float | None = None

    def __init__(self, limit_jobs: int, limit_bytes: int, now: Callable[[], float]) -> None:
        self._limit_jobs, self._limit_bytes, self._now = limit_jobs, limit_bytes, now
        self._jobs: OrderedDict[str, _Kept] = OrderedDict()  # by age
        self._queue: deque[str] = deque()
        self._queued = asyncio.Event()

    async def start(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Give the files back."""
        for job_id in list(self._jobs):
            self._drop(job_id)

    async def add(self, job: Job, upload: StoredFile, key: str | None, *, here: bool) -> Job:
        """Keep a new job; every job runs here."""
        del here
        self._expire()
        keyed = None if key is None else self._last(lambda kept: key in kept.keys)
        found = same_job(keyed, self._last(lambda kept: kept.job.same == job.same), job.same)
        if found is not None:
            if key is not None:
                self._jobs[found.id].keys.add(key)
            return found
        self._make_room(upload.size_bytes)
        kept = _Kept(job, upload.shared(), set() if key is None else {key})
        kept.tell("progress", pack_progress(job.progress))
        self._jobs[job.id] = kept
        self._enqueue(job.id)
        return job

    async def find(self, job_id: str) -> Job | None:
        """The job, until it expires."""
        self._expire()
        kept = self._jobs.get(job_id)
        return None if kept is None else kept.job

    async def file(self, job_id: str) -> StoredFile | None:
        """The file, shared."""
        kept = self._jobs.get(job_id)
        return None if kept is None else kept.file.shared()

    async def result(self, job: Job) -> bytes | None:
        """What it gave."""
        kept = self._jobs.get(job.id)
        return None if kept is None else kept.result

    async def pages(self, job_id: str) -> dict[int, bytes]:
        """The pages so far."""
        kept = self._jobs.get(job_id)
        return {} if kept is None else dict(kept.pages)

    async def page(self, job_id: str, number: int) -> bytes | None:
        """One of them."""
        kept = self._jobs.get(job_id)
        return None if kept is None else kept.pages.get(number)

    async def swap(self, old: Job, new: Job, result: bytes | None = None) -> Swap:
        """Change a job."""
        kept = self._jobs.get(old.id)
        if kept is None:
            return "gone"
        if kept.job.version != old.version:
            return "stale"
        kept.job, kept.result = new, result
        kept.tell("progress", pack_progress(new.progress))
        if new.ended:
            kept.tell("end")
            if old.id in self._queue:
                self._queue.remove(old.id)
        elif new.status == "queued":
            self._enqueue(new.id)
        self._drop_ended(over_bytes=self._limit_bytes, keep=new.id)
        return "done"

    async def restore(self, job: Job, result: bytes | None) -> None:
        """Memory loses nothing but what was to be forgotten."""

    async def note(self, job: Job, progress: Progress, page: PageNote | None) -> bool:
        """Write how far a job is."""
        kept = self._jobs.get(job.id)
        if kept is None or kept.job.version != job.version:
            return False
        kept.job = replace(kept.job, progress=progress)
        if page is not None and page.number not in kept.pages:
            kept.pages[page.number] = page.packed
            kept.tell("page", page.event)
        kept.tell("progress", pack_progress(progress))
        return True

    async def forget(self, job: Job) -> None:
        """Drop it."""
        self._drop(job.id)

    async def take(self) -> Claim:
        """The oldest that waits."""
        while not self._queue:
            self._queued.clear()
            await self._queued.wait()
        return Claim(self._queue.popleft(), _HERE)

    async def renew(self, claim: Claim, job: Job | None) -> bool:
        """Nobody else takes jobs."""
        kept = self._jobs.get(claim.job_id)
        return kept is not None and (job is None or kept.job.version == job.version)

    async def renew_waiting(self) -> None:
        """Nothing to keep from others."""

    async def settle(self, claim: Claim) -> None:
        """A claim is nothing but a place in the queue that is empty already."""

    async def events(self, job_id: str, after: str) -> AsyncGenerator[JobEvent, None]:
        """What happened, then what happens."""
        while (kept := self._jobs.get(job_id)) is not None:
            changed, news = kept.changed, [event for event in kept.events if event.id > after]
            for event in news:
                after = event.id
                yield event
            if not news and kept.job.ended:
                return
            if not news:
                await changed.wait()

    async def stops(self) -> AsyncIterator[str]:
        """There is no other process that could cancel."""
        await asyncio.Event().wait()
        yield ""

    def waiting(self) -> int:
        """Jobs in the queue."""
        return len(self._queue)

    def report(self) -> dict[str, Any]:
        """What it holds."""
        live = sum(not kept.job.ended for kept in self._jobs.values())
        return {
            "store": "memory",
            "why": "REDIS_URL is not set: jobs are known to this process alone and are lost when it ends",
            "jobs": len(self._jobs),
            "live": live,
            "limit_jobs": self._limit_jobs,
            "bytes": self._size_bytes(),
            "limit_bytes": self._limit_bytes,
        }

    def _last(self, belongs: Callable[[_Kept], bool]) -> Job | None:
        return next((kept.job for kept in reversed(self._jobs.values()) if belongs(kept)), None)

    def _enqueue(self, job_id: str) -> None:
        self._queue.append(job_id)
        self._queued.set()

    def _make_room(self, size_bytes: int) -> None:
        live = sum(not kept.job.ended for kept in self._jobs.values())
        if live >= self._limit_jobs:
            raise too_many("jobs that wait or run", live, self._limit_jobs, "LIMIT_JOBS")
        self._drop_ended(over_bytes=self._limit_bytes - size_bytes)
        held = self._size_bytes()
        if held + size_bytes > self._limit_bytes:
            raise too_many(
                "bytes of jobs that wait or run, with this one", held + size_bytes, self._limit_bytes, "LIMIT_JOB_BYTES"
            )

    def _drop_ended(self, *, over_bytes: int, keep: str = "") -> None:
        """Forget ended jobs, the oldest first, until those that are left fit."""
        excess = self._size_bytes() - over_bytes
        for job_id, kept in list(self._jobs.items()):
            if excess <= 0:
                return
            if kept.job.ended and job_id != keep:
                excess -= kept.size_bytes
                self._drop(job_id)

    def _size_bytes(self) -> int:
        return sum(kept.size_bytes for kept in self._jobs.values())

    def _expire(self) -> None:
        now_s = self._now()
        for job_id in [job_id for job_id, kept in self._jobs.items() if kept.job.expires_s <= now_s]:
            self._drop(job_id)

    def _drop(self, job_id: str) -> None:
        kept = self._jobs.pop(job_id, None)
        if kept is not None:
            kept.file.close()
            kept.changed.set()
        if job_id in self._queue:
            self._queue.remove(job_id)
