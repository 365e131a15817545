"""Jobs in the memory of this process, for a service without Redis: other replicas do not see them."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from backend.files.limits import FileLimits
from backend.files.stored_file import StoredFile
from backend.jobs.document_codec import pack_progress
from backend.jobs.records import (
    EventKind,
    Job,
    JobClaim,
    JobEvent,
    JobQuota,
    PageRecord,
    Progress,
    check_quota,
    same_job,
    too_many,
)
from backend.jobs.store import Renewal, Swap

_DELETED = 10_000  # ids of deleted jobs, the newest: longer than a job runs on after it was deleted
_PLACE = "memory"
_DIGITS = 12  # of an event's id, which is its place among the job's events, from 1
_JOB_BYTES = 12_000  # a job's record, beside what was sent and read: measured, 11 kB
_ITEM_BYTES = 200  # an event or a page, beside its bytes


@dataclass(slots=True, eq=False)
class _Entry:
    """A job with its file, result, pages and events. The file is bytes: a descriptor for each job would run out."""

    job: Job
    content: bytes
    keys: set[str] = field(default_factory=set)  # digests of the Idempotency-Keys it was submitted with
    result: bytes | None = None
    pages: dict[int, bytes] = field(default_factory=dict)
    events: list[JobEvent] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)  # replaced after each event
    size_bytes: int = 0  # of all of it, as the store counts it


@dataclass(slots=True)
class _Ended:
    """The ended jobs of one owner, in the order of their end."""

    jobs: dict[str, None] = field(default_factory=dict)
    size_bytes: int = 0


class MemoryJobStore:
    """A `JobStore` of limited size: drops ended jobs, and refuses new ones when live jobs fill it.

    Of the owner whose ended jobs take the most bytes the oldest goes first, so that one caller's jobs do not push out
    those of another.

    Args:
        limit_jobs: jobs that wait or run.
        limit_bytes: files, pages, results, events and records together.
        limits: of an uploaded file.
        now: Unix seconds.
    """

    heartbeat_s: float | None = None

    def __init__(self, limit_jobs: int, limit_bytes: int, limits: FileLimits, now: Callable[[], float]) -> None:
        self._limit_jobs, self._limit_bytes, self._limits, self._now = limit_jobs, limit_bytes, limits, now
        self._jobs: dict[str, _Entry] = {}
        self._live: dict[str, _Entry] = {}  # of these, those that have not ended
        self._ended: dict[str, _Entry] = {}  # the others, in the order of their end
        self._ended_of: defaultdict[str, _Ended] = defaultdict(_Ended)  # the same by owner
        self._size_bytes = 0  # of all jobs
        self._equal: dict[str, str] = {}  # the latest job by `Job.same`
        self._keyed: dict[str, str] = {}  # the job of an Idempotency-Key
        self._deleted: deque[str] = deque(maxlen=_DELETED)
        self._queue: dict[str, None] = {}  # in order
        self._queued = asyncio.Event()

    async def start(self) -> None:
        """Memory needs no opening."""

    async def close(self) -> None:
        for job_id in list(self._jobs):
            self._drop(job_id)

    async def add(
        self, job: Job, upload: StoredFile, key: str | None, *, pinned: bool, quota: JobQuota | None = None
    ) -> Job:
        """See `JobStore.add`. Every job runs in this process, so ``pinned`` changes nothing."""
        del pinned
        self._expire()
        keyed = None if key is None else await self.find(self._keyed.get(key, ""))
        existing = same_job(keyed, await self.find(self._equal.get(job.same, "")), job)
        if existing is None:
            if quota is not None:
                check_quota(await self.live(job.owner), quota)
            self._reserve(upload.size_bytes)
            entry = self._jobs[job.id] = self._live[job.id] = _Entry(job, upload.content())
            self._count(entry, _JOB_BYTES + len(entry.content))
            self._add_event(entry, "progress", pack_progress(job.progress))
            self._equal[job.same] = job.id
            self._enqueue(job.id)
        kept = existing or job
        if key is not None:
            self._jobs[kept.id].keys.add(key)
            self._keyed[key] = kept.id
        return kept

    async def find(self, job_id: str) -> Job | None:
        self._expire()
        entry = self._jobs.get(job_id)
        return None if entry is None else entry.job

    async def file(self, job_id: str) -> StoredFile | None:
        entry = self._jobs.get(job_id)
        return None if entry is None else await asyncio.to_thread(StoredFile.of, entry.content, self._limits)

    async def result(self, job: Job) -> bytes | None:
        entry = self._jobs.get(job.id)
        return None if entry is None else entry.result

    async def pages(self, job_id: str) -> dict[int, bytes]:
        entry = self._jobs.get(job_id)
        return {} if entry is None else dict(entry.pages)

    async def page(self, job_id: str, number: int) -> bytes | None:
        return (await self.pages(job_id)).get(number)

    async def swap(self, old: Job, new: Job, result: bytes | None = None, *, claim: JobClaim | None = None) -> Swap:
        """See `JobStore.swap`. No other process takes jobs, so that a ``claim`` is never lost."""
        del claim
        entry = self._jobs.get(old.id)
        if entry is None:
            return "stale" if old.id in self._deleted else "gone"
        if entry.job.version != old.version:
            return "stale"
        entry.job, entry.result = new, result
        self._count(entry, len(result or b""))
        self._add_event(entry, "progress", pack_progress(new.progress))
        if new.ended:
            self._add_event(entry, "end", b"")
            self._queue.pop(new.id, None)
            del self._live[new.id]
            self._ended[new.id] = entry
            of_owner = self._ended_of[new.owner]
            of_owner.jobs[new.id] = None
            of_owner.size_bytes += entry.size_bytes
        elif new.status == "queued":
            self._enqueue(new.id)
        self._drop_ended(self._limit_bytes, keep=new.id)
        return "done"

    async def restore(self, job: Job, result: bytes | None) -> None:
        """Memory loses no jobs: nothing to restore."""

    async def write_progress(self, job: Job, progress: Progress, page: PageRecord | None, fields: bytes = b"") -> bool:
        entry = self._jobs.get(job.id)
        if entry is None or entry.job.version != job.version:
            return False
        entry.job = replace(entry.job, progress=progress)
        if page is not None and page.number not in entry.pages:
            entry.pages[page.number] = page.packed
            self._count(entry, _ITEM_BYTES + len(page.packed))
            self._add_event(entry, "page", page.event)
        if fields:
            self._add_event(entry, "fields", fields)
        self._add_event(entry, "progress", pack_progress(progress))
        return True

    async def live(self, owner: str) -> int:
        return sum(entry.job.owner == owner for entry in self._live.values())

    async def position(self, job_id: str) -> int | None:
        return next((place for place, waiting in enumerate(self._queue, 1) if waiting == job_id), None)

    async def ended(self, owner: str) -> list[str]:
        self._expire()
        return list(self._ended_of[owner].jobs) if owner in self._ended_of else []

    async def forget(self, job: Job) -> None:
        self._drop(job.id)
        self._deleted.append(job.id)

    async def take(self) -> JobClaim:
        while not self._queue:
            self._queued.clear()
            await self._queued.wait()
        job_id = next(iter(self._queue))
        del self._queue[job_id]
        return JobClaim(job_id, _PLACE)

    async def renew(self, claim: JobClaim, job: Job | None) -> Renewal:
        """Whether the job is still there and unchanged: no other process takes jobs."""
        entry = self._jobs.get(claim.job_id)
        if entry is None:
            return "gone"
        return "kept" if job is None or entry.job.version == job.version else "taken"

    async def renew_waiting(self) -> None:
        """No other process takes jobs: nothing to renew."""

    async def settle(self, claim: JobClaim) -> None:
        """`take` has already removed the job from the queue."""

    async def held(self) -> list[JobClaim]:
        """Every live job: no other process can run it."""
        return [JobClaim(job_id, _PLACE) for job_id in self._live]

    async def events(self, job_id: str, after: str) -> AsyncGenerator[JobEvent, None]:
        told = int(after.partition("-")[0] or 0)  # ids are places, from 1; a part behind "-" is of a job in Redis
        while (entry := self._jobs.get(job_id)) is not None:
            changed, new_events = entry.changed, entry.events[told:]
            for event in new_events:
                told += 1
                yield event
            if not new_events and entry.job.ended:
                return
            if not new_events:
                await changed.wait()

    async def cancellations(self) -> AsyncIterator[str]:
        """Never yields: no other process can cancel a job."""
        await asyncio.Event().wait()
        yield ""

    def waiting(self) -> int:
        return len(self._queue)

    def report(self) -> dict[str, Any]:
        return {
            "store": "memory",
            "why": "REDIS_URL is not set: jobs are known to this process alone and are lost when it ends",
            "jobs": len(self._jobs),
            "live": len(self._live),
            "limit_jobs": self._limit_jobs,
            "bytes": self._size_bytes,
            "limit_bytes": self._limit_bytes,
        }

    def _enqueue(self, job_id: str) -> None:
        self._queue[job_id] = None
        self._queued.set()

    def _add_event(self, entry: _Entry, kind: EventKind, data: bytes) -> None:
        entry.events.append(JobEvent(f"{len(entry.events) + 1:0{_DIGITS}}", kind, data))
        self._count(entry, _ITEM_BYTES + len(data))
        entry.changed.set()
        entry.changed = asyncio.Event()

    def _count(self, entry: _Entry, size_bytes: int) -> None:
        """More bytes of a live job."""
        entry.size_bytes += size_bytes
        self._size_bytes += size_bytes

    def _reserve(self, size_bytes: int) -> None:
        if len(self._live) >= self._limit_jobs:
            raise too_many("jobs that wait or run", len(self._live), self._limit_jobs, "LIMIT_JOBS")
        size_bytes += _JOB_BYTES
        self._drop_ended(self._limit_bytes - size_bytes)
        needed = self._size_bytes + size_bytes
        if needed > self._limit_bytes:
            raise too_many(
                "bytes of jobs that wait or run, with this one", needed, self._limit_bytes, "LIMIT_JOB_BYTES"
            )

    def _drop_ended(self, limit_bytes: int, keep: str = "") -> None:
        """Drop ended jobs until at most ``limit_bytes`` are held."""
        while self._size_bytes > limit_bytes and len(self._ended) > (keep in self._ended):
            largest = max(self._ended_of.values(), key=lambda of_owner: of_owner.size_bytes)
            oldest = (job_id for job_id in (*islice(largest.jobs, 2), *islice(self._ended, 2)) if job_id != keep)
            self._drop(next(oldest))

    def _expire(self) -> None:
        now_s = self._now()
        while self._ended:
            first = next(iter(self._ended.values())).job
            if first.expires_s is None or first.expires_s > now_s:
                return
            self._drop(first.id)

    def _drop(self, job_id: str) -> None:
        entry = self._jobs.pop(job_id, None)
        if entry is None:
            return
        job = entry.job
        self._size_bytes -= entry.size_bytes
        self._live.pop(job_id, None)
        if self._ended.pop(job_id, None) is not None:
            of_owner = self._ended_of[job.owner]
            of_owner.size_bytes -= entry.size_bytes
            del of_owner.jobs[job_id]
            if not of_owner.jobs:
                del self._ended_of[job.owner]
        for names, name in ((self._equal, job.same), *((self._keyed, key) for key in entry.keys)):
            if names.get(name) == job_id:
                del names[name]
        self._queue.pop(job_id, None)
        entry.changed.set()
