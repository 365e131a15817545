"""Jobs in the memory of this process, for a service without Redis: other replicas do not see them."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from typing import Any

from backend.files.stored_file import StoredFile
from backend.jobs.codec import pack_progress
from backend.jobs.records import Claim, EventKind, Job, JobEvent, PageRecord, Place, Progress
from backend.jobs.states import same_job, too_many
from backend.jobs.store import Renewal, Swap

_DELETED = 10_000  # ids of deleted jobs, the newest: longer than a job runs on after it was deleted
_PLACE = "memory"
_DIGITS = 12  # of an event's id, which is its place among the job's events, from 1


@dataclass(slots=True)
class _Entry:
    """A job with its file, result, pages and events."""

    job: Job
    file: StoredFile
    keys: set[str]  # digests of the Idempotency-Keys it was submitted with
    result: bytes | None = None
    pages: dict[int, bytes] = field(default_factory=dict)
    events: list[JobEvent] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)  # replaced after each event

    @property
    def size_bytes(self) -> int:
        events = sum(len(event.data) for event in self.events)
        return self.file.size_bytes + len(self.result or b"") + sum(map(len, self.pages.values())) + events

    def add_event(self, kind: EventKind, data: bytes = b"") -> None:
        self.events.append(JobEvent(f"{len(self.events) + 1:0{_DIGITS}}", kind, data))
        self.changed.set()
        self.changed = asyncio.Event()


class MemoryJobStore:
    """A `JobStore` of limited size: drops the oldest ended jobs, and refuses new ones when live jobs fill it.

    Args:
        limit_jobs: jobs that wait or run.
        limit_bytes: files, pages, results and events together.
        now: Unix seconds.
    """

    heartbeat_s: float | None = None

    def __init__(self, limit_jobs: int, limit_bytes: int, now: Callable[[], float]) -> None:
        self._limit_jobs, self._limit_bytes, self._now = limit_jobs, limit_bytes, now
        self._jobs: OrderedDict[str, _Entry] = OrderedDict()  # by age
        self._places: dict[str, dict[str, float]] = {}  # by owner: the jobs that QUOTA_JOBS counts, and since when
        self._deleted: deque[str] = deque(maxlen=_DELETED)
        self._queue: deque[str] = deque()
        self._queued = asyncio.Event()

    async def start(self) -> None:
        """Memory needs no opening."""

    async def close(self) -> None:
        for job_id in list(self._jobs):
            self._drop(job_id)

    async def add(self, job: Job, upload: StoredFile, key: str | None, *, pinned: bool) -> Job:
        """See `JobStore.add`. Every job runs in this process, so ``pinned`` changes nothing."""
        del pinned
        self._expire()
        keyed = None if key is None else self._latest(lambda entry: key in entry.keys)
        existing = same_job(keyed, self._latest(lambda entry: entry.job.same == job.same), job)
        if existing is not None:
            if key is not None:
                self._jobs[existing.id].keys.add(key)
            return existing
        self._reserve(upload.size_bytes)
        entry = _Entry(job, upload.shared(), set() if key is None else {key})
        entry.add_event("progress", pack_progress(job.progress))
        self._jobs[job.id] = entry
        self._enqueue(job.id)
        return job

    async def find(self, job_id: str) -> Job | None:
        self._expire()
        entry = self._jobs.get(job_id)
        return None if entry is None else entry.job

    async def file(self, job_id: str) -> StoredFile | None:
        entry = self._jobs.get(job_id)
        return None if entry is None else entry.file.shared()

    async def result(self, job: Job) -> bytes | None:
        entry = self._jobs.get(job.id)
        return None if entry is None else entry.result

    async def pages(self, job_id: str) -> dict[int, bytes]:
        entry = self._jobs.get(job_id)
        return {} if entry is None else dict(entry.pages)

    async def page(self, job_id: str, number: int) -> bytes | None:
        entry = self._jobs.get(job_id)
        return None if entry is None else entry.pages.get(number)

    async def swap(self, old: Job, new: Job, result: bytes | None = None, *, claim: Claim | None = None) -> Swap:
        """See `JobStore.swap`. No other process takes jobs, so that a ``claim`` is never lost."""
        del claim
        entry = self._jobs.get(old.id)
        if entry is None:
            return "stale" if old.id in self._deleted else "gone"
        if entry.job.version != old.version:
            return "stale"
        entry.job, entry.result = new, result
        entry.add_event("progress", pack_progress(new.progress))
        if new.ended:
            entry.add_event("end")
            if old.id in self._queue:
                self._queue.remove(old.id)
        elif new.status == "queued":
            self._enqueue(new.id)
        self._drop_ended(limit_bytes=self._limit_bytes, keep=new.id)
        return "done"

    async def restore(self, job: Job, result: bytes | None) -> None:
        """Memory loses no jobs: nothing to restore."""

    async def write_progress(self, job: Job, progress: Progress, page: PageRecord | None) -> bool:
        entry = self._jobs.get(job.id)
        if entry is None or entry.job.version != job.version:
            return False
        entry.job = replace(entry.job, progress=progress)
        if page is not None and page.number not in entry.pages:
            entry.pages[page.number] = page.packed
            entry.add_event("page", page.event)
        entry.add_event("progress", pack_progress(progress))
        return True

    async def take_place(self, owner: str, job_id: str, limit: int) -> list[Place]:
        places, now_s = self._places.setdefault(owner, {}), self._now()
        if len(places) >= limit:
            return [Place(placed_id, now_s - taken_s) for placed_id, taken_s in places.items()]
        places[job_id] = now_s
        return []

    async def free_place(self, owner: str, job_id: str) -> None:
        self._places.get(owner, {}).pop(job_id, None)

    async def forget(self, job: Job) -> None:
        self._drop(job.id)
        self._deleted.append(job.id)

    async def take(self) -> Claim:
        while not self._queue:
            self._queued.clear()
            await self._queued.wait()
        return Claim(self._queue.popleft(), _PLACE)

    async def renew(self, claim: Claim, job: Job | None) -> Renewal:
        """Whether the job is still there and unchanged: no other process takes jobs."""
        entry = self._jobs.get(claim.job_id)
        if entry is None:
            return "gone"
        return "kept" if job is None or entry.job.version == job.version else "taken"

    async def renew_waiting(self) -> None:
        """No other process takes jobs: nothing to renew."""

    async def settle(self, claim: Claim) -> None:
        """`take` has already removed the job from the queue."""

    async def held(self) -> list[Claim]:
        """Every live job: no other process can run it."""
        return [Claim(job_id, _PLACE) for job_id, entry in self._jobs.items() if not entry.job.ended]

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
        live = sum(not entry.job.ended for entry in self._jobs.values())
        return {
            "store": "memory",
            "why": "REDIS_URL is not set: jobs are known to this process alone and are lost when it ends",
            "jobs": len(self._jobs),
            "live": live,
            "limit_jobs": self._limit_jobs,
            "bytes": self._size_bytes(),
            "limit_bytes": self._limit_bytes,
        }

    def _latest(self, belongs: Callable[[_Entry], bool]) -> Job | None:
        return next((entry.job for entry in reversed(self._jobs.values()) if belongs(entry)), None)

    def _enqueue(self, job_id: str) -> None:
        self._queue.append(job_id)
        self._queued.set()

    def _reserve(self, size_bytes: int) -> None:
        live = sum(not entry.job.ended for entry in self._jobs.values())
        if live >= self._limit_jobs:
            raise too_many("jobs that wait or run", live, self._limit_jobs, "LIMIT_JOBS")
        self._drop_ended(limit_bytes=self._limit_bytes - size_bytes)
        held = self._size_bytes()
        if held + size_bytes > self._limit_bytes:
            raise too_many(
                "bytes of jobs that wait or run, with this one", held + size_bytes, self._limit_bytes, "LIMIT_JOB_BYTES"
            )

    def _drop_ended(self, *, limit_bytes: int, keep: str = "") -> None:
        """Drop ended jobs, the oldest first, until at most ``limit_bytes`` are held."""
        excess = self._size_bytes() - limit_bytes
        for job_id, entry in list(self._jobs.items()):
            if excess <= 0:
                return
            if entry.job.ended and job_id != keep:
                excess -= entry.size_bytes
                self._drop(job_id)

    def _size_bytes(self) -> int:
        return sum(entry.size_bytes for entry in self._jobs.values())

    def _expire(self) -> None:
        now_s = self._now()
        expiries = {job_id: entry.job.expires_s for job_id, entry in self._jobs.items()}
        for job_id, expires_s in expiries.items():
            if expires_s is not None and expires_s <= now_s:
                self._drop(job_id)

    def _drop(self, job_id: str) -> None:
        entry = self._jobs.pop(job_id, None)
        if entry is not None:
            entry.file.close()
            entry.changed.set()
        if job_id in self._queue:
            self._queue.remove(job_id)
