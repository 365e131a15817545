"""Jobs in Redis, shared by all replicas: any replica runs any job, and takes over those of a process that died.

The queue is a stream with a consumer group: an entry belongs to its taker for as long as the taker renews it, then to
the next replica that looks. Each job has a stream of events, and cancellations have one for all jobs, so that a reader
whose connection broke misses nothing.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

from redis.exceptions import ResponseError

from backend.callers.callers import ANYBODY
from backend.callers.event_watch import WATCHERS_MAX
from backend.errors import JobOfAnotherRelease, TooLarge, Unavailable
from backend.files.limits import FileLimits
from backend.files.stored_file import StoredFile
from backend.jobs.document_codec import OLDEST_FORMAT, RECORD_FORMAT, pack_job, pack_progress, unpack_job
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
from backend.jobs.redis_connections import RedisChunks, RedisConnections, dropped, stream_entry
from backend.jobs.redis_queue import GROUP, QueueSweep, RedisQueue, place_of
from backend.jobs.redis_scripts import ADD, COUNT_LIVE, DISCARD, FORGET, LINK, POSITION, RESTORE, SWAP, WRITE_PROGRESS
from backend.jobs.store import Renewal, Swap
from backend.telemetry import log_event

_LIVE_S = 7 * 86_400.0  # and JOB_TTL_S: how long live jobs are kept after a sweep. Long, as a full Redis drops what
# expires soonest: it takes vectors and ended jobs first
_WRITING_S = 3600.0  # at least, else JOB_TTL_S: how long a file without a job, or a result before its end, is kept
_DELETED_S = 3600.0  # at least, after the longest run that may write its result, and JOB_TTL_S: a deleted job is known
_BEGINNING = "0-0"
_SHARE = 4  # of a Redis' maxmemory the files of one key's ended jobs take at most a quarter, and their results another
_NO_LIMIT = 2**53
_STORE_READERS = 4  # blocking reads for jobs and cancellations
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RedisJobOptions:
    """Address of the Redis, and limits of the jobs in it."""

    url: str = field(repr=False)  # may hold a password
    prefix: str = "financia"  # of every key
    limit_jobs: int = 1000  # that wait or run, over all replicas: LIMIT_JOBS
    result_bytes: int = 256 * 2**20  # of one result: LIMIT_JOB_BYTES
    lease_s: float = 30.0  # after which a silent replica's jobs are taken over; it renews three times as often
    settle_s: float = 5.0  # timeout of one command
    watchers: int = WATCHERS_MAX  # clients of this process that wait for events at once, a connection each


class RedisJobStore:
    """A `JobStore` that replicas share.

    Args:
        limits: of an uploaded file.
        monotonic: seconds, for the time between two searches for expired leases.
    """

    def __init__(self, options: RedisJobOptions, limits: FileLimits, *, monotonic: Callable[[], float]) -> None:
        self.heartbeat_s: float | None = options.lease_s / 3
        self._options, self._limits = options, limits
        self._redis = RedisConnections(
            options.url,
            settle_s=options.settle_s,
            block_s=options.lease_s / 2,
            readers=options.watchers + _STORE_READERS,
        )
        self.queue = RedisQueue(self._redis, options.prefix, options.lease_s, monotonic)
        self._us = {"group": GROUP, "consumer": self.queue.consumer, "format": RECORD_FORMAT, "job": self._part("")}
        times = {"lease_ms": _ms(options.lease_s), "live_ms": _ms(_LIVE_S)}
        sweep = {**self._us, **times, "formats": (OLDEST_FORMAT, RECORD_FORMAT)}
        self._sweep = QueueSweep(self._redis, *self.queue.streams, sweep, monotonic)
        self._chunks = RedisChunks(self._redis)
        self._cancelled = self._name("stops")
        self._last_cancelled = ""  # the last cancellation we know of

    async def start(self) -> None:
        """Create the queues; where Redis is away, `take` creates them when it is back."""
        with suppress(Unavailable):
            await self._redis.check_server()
        with suppress(Unavailable):
            await self.queue.start()
            self._last_cancelled = await self._newest_cancelled()

    async def close(self) -> None:
        await self.queue.close()
        await self._redis.close()

    async def add(
        self, job: Job, upload: StoredFile, key: str | None, *, pinned: bool, quota: JobQuota | None = None
    ) -> Job:
        """Write the file, then the job, atomically with the search for an equal job."""
        chunks = 0
        try:
            while True:
                equal = await self._text("GET", self._name("same", job.same))
                keyed = await self._text("GET", self._name("key", key)) if key else ""
                existing = same_job(await self._known(keyed), await self._equal(equal), job)
                if existing is not None:
                    break
                if not chunks:
                    if quota is not None:  # before the file is sent; once more with the job
                        check_quota(await self.live(job.owner), quota)
                    chunks = await self._chunks.put(self._part(job.id, "file"), upload.content(), _writing_s(job))
                if await self._add(job, (equal, keyed), key, chunks, pinned=pinned, quota=quota):
                    return job  # else an equal job was added meanwhile
        except BaseException:
            await self._discard(job)
            raise
        if chunks:
            await self._discard(job)
        if key is not None:
            keys = (self._part(existing.id), self._part(existing.id, "names"), self._name("key", key))
            await self._redis.run(LINK, keys, {"id": existing.id, "keyed": keyed})
        return existing

    async def find(self, job_id: str) -> Job | None:
        if ":" in job_id:  # a client's; it would be the name of one of a job's other keys
            return None
        record, progress = await self._redis.call("HMGET", self._part(job_id), "record", "progress")
        return None if record is None or progress is None else unpack_job(job_id, record, progress)

    async def file(self, job_id: str) -> StoredFile | None:
        """The file, read into the memory of this process."""
        key = self._part(job_id, "file")
        if not (chunks := await self._redis.call("LLEN", key)):
            return None
        stored = StoredFile(self._limits)
        try:
            for index in range(chunks):
                chunk = await self._redis.call("LINDEX", key, index)
                if chunk is None:  # dropped by a full Redis, or deleted, meanwhile
                    stored.close()
                    return None
                stored.write(chunk)
        except BaseException:
            stored.close()
            raise
        return stored

    async def result(self, job: Job) -> bytes | None:
        return await self._chunks.get(self._result_of(job))

    async def pages(self, job_id: str) -> dict[int, bytes]:
        flat = await self._redis.call("HGETALL", self._part(job_id, "pages"))
        return {int(number): packed for number, packed in zip(flat[::2], flat[1::2], strict=True)}

    async def page(self, job_id: str, number: int) -> bytes | None:
        packed: bytes | None = await self._redis.call("HGET", self._part(job_id, "pages"), number)
        return packed

    async def swap(self, old: Job, new: Job, result: bytes | None = None, *, claim: JobClaim | None = None) -> Swap:
        """See `JobStore.swap`. Raises further: TooLarge for a result over the limit."""
        if result is None:
            return cast("Swap", await self._swap(old, new, claim, chunks=0))
        if len(result) > self._options.result_bytes:
            raise TooLarge("result: bytes", len(result), self._options.result_bytes, "LIMIT_JOB_BYTES")
        verdict = await self._swap(old, new, claim, chunks=-1)
        if verdict != "ready":  # also "done", where a repeated call would write over the result that is there
            return cast("Swap", verdict)
        chunks = await self._chunks.put(self._result_of(new), result, _writing_s(new))
        verdict = await self._swap(old, new, claim, chunks=chunks)
        if verdict != "done":
            await self._chunks.drop(self._result_of(new))
        return cast("Swap", verdict)

    async def restore(self, job: Job, result: bytes | None) -> None:
        """Write an ended job that Redis has lost, as after a restart without persistence."""
        if result is None:
            await self._restore(job, 0)
        elif await self._restore(job, -1) == "ready":
            chunks = await self._chunks.put(self._result_of(job), result, _writing_s(job))
            if await self._restore(job, chunks) != "done":
                await self._chunks.drop(self._result_of(job))

    async def write_progress(self, job: Job, progress: Progress, page: PageRecord | None, fields: bytes = b"") -> bool:
        keys = (self._part(job.id), self._part(job.id, "pages"), self._part(job.id, "events"))
        record = ("", b"", b"") if page is None else page
        arguments = (job.version, pack_progress(progress), _ms(_live_s(job)), *record, fields)
        verdict = await self._redis.run(WRITE_PROGRESS, keys, *arguments)
        if verdict == b"gone" and await self._revive(job) == "kept":
            verdict = await self._redis.run(WRITE_PROGRESS, keys, *arguments)
        return bool(verdict == b"done")

    async def live(self, owner: str) -> int:
        """Of the jobs that were added under a quota."""
        return int(await self._redis.run(COUNT_LIVE, (self._name("live", owner),), self._us))

    async def position(self, job_id: str) -> int | None:
        keys = (self._part(job_id), self.queue.shared)
        return int(await self._redis.run(POSITION, keys, self._us)) or None

    async def ended(self, owner: str) -> list[str]:
        members = await self._redis.call("ZRANGE", self._name("ended", owner), 0, -1)
        return [member.decode().partition(" ")[2] for member in members]

    async def forget(self, job: Job) -> None:
        deleted_ms = _ms(max(job.limit_s + _DELETED_S, job.ttl_s))
        arguments = {**self._us, "id": job.id, "size": str(job.file.size_bytes), "deleted_ms": deleted_ms}
        keys = (self._part(job.id), *self._files_of(job), *self._ended_of(job))
        await self._redis.run(FORGET, keys, arguments)

    async def take(self) -> JobClaim:
        return await self.queue.take()

    async def renew(self, claim: JobClaim, job: Job | None) -> Renewal:
        renewed = await self.queue.renew(claim, self._part(claim.job_id), job)
        if renewed == "gone" and job is not None:
            return await self._revive(job)
        return renewed

    async def renew_waiting(self) -> None:
        await self.queue.renew_waiting()
        try:
            await self._sweep.step()
        except (Unavailable, ResponseError) as error:  # claims must be renewed all the same
            log_event(_log, logging.WARNING, "waiting jobs were not kept from expiring, trying again", why=error)

    async def settle(self, claim: JobClaim) -> None:
        await self.queue.settle(claim, self._part(claim.job_id))

    async def held(self) -> list[JobClaim]:
        return await self.queue.held()

    async def events(self, job_id: str, after: str) -> AsyncGenerator[JobEvent, None]:
        """Past events after ``after``, then new ones of any replica. Each caller holds a connection."""
        key, last = self._part(job_id, "events"), after or _BEGINNING
        while (job := await self.find(job_id)) is not None:
            if job.ended:
                entries = [stream_entry(row) for row in await self._redis.call("XRANGE", key, f"({last}", "+")]
            else:
                entries = await self._redis.read("XREAD", "COUNT", "100", streams={key: last})
            for last, fields in entries:
                kind = cast("EventKind", fields["kind"].decode())
                yield JobEvent(last, kind, fields["data"])
                if kind == "end":
                    return
            if job.ended:
                return

    async def cancellations(self) -> AsyncIterator[str]:
        faults = 0
        while True:
            try:
                self._last_cancelled = self._last_cancelled or await self._newest_cancelled()
                entries = await self._redis.read("XREAD", streams={self._cancelled: self._last_cancelled})
                faults = 0
            except Unavailable:
                faults += 1
                await self._redis.pause(faults)
                continue
            for entry, fields in entries:
                self._last_cancelled = entry
                yield fields["job"].decode()

    def waiting(self) -> int:
        """Jobs of all replicas that wait or run, at the last count."""
        return self.queue.unfinished

    def report(self) -> dict[str, Any]:
        return {
            "store": "redis",
            "why": f"REDIS_URL is set: every replica on {self._redis.address} sees every job",
            "limit_jobs": self._options.limit_jobs,
            "limit_bytes": self._options.result_bytes,
            "lease_s": self._options.lease_s,
        }

    async def _add(
        self, job: Job, expected: tuple[str, str], key: str | None, chunks: int, *, pinned: bool, quota: JobQuota | None
    ) -> bool:
        """Write a job whose file is written; False when another job was added under its digest or its key meanwhile."""
        queue, (equal, keyed) = self.queue, expected
        stream = queue.pinned if pinned else queue.shared
        parts = (self._part(job.id, part) for part in ("file", "events", "names"))
        names = [self._name("same", job.same)] + ([] if key is None else [self._name("key", key)])
        arguments = {
            **self._values_of(job),
            "equal": equal,
            "keyed": keyed,
            "chunks": chunks,
            "limit": self._options.limit_jobs,
            "quota": 0 if quota is None else quota.limit,
            "pinned": pinned,
        }
        keys = (self._part(job.id), *parts, stream, *queue.streams, self._name("live", job.owner), *names)
        packed = (arguments, pack_job(job), pack_progress(job.progress))
        try:
            reply = await self._redis.run(ADD, keys, *packed)
        except Unavailable:  # Redis may have added it all the same: ask once more, on another connection
            reply = await self._redis.run(ADD, keys, *packed)
        verdict, _, entry = reply.decode().partition(":")
        if verdict == "unwritten":
            raise dropped()
        if verdict == "quota" and quota is not None:
            check_quota(int(entry), quota)
        if verdict == "full":
            raise too_many("jobs that wait or run", int(entry), self._options.limit_jobs, "LIMIT_JOBS")
        if verdict == "added" and pinned and entry:
            queue.add_pinned(JobClaim(job.id, f"{stream} {entry}"))
        return bool(verdict == "added")

    async def _swap(self, old: Job, new: Job, claim: JobClaim | None, *, chunks: int) -> str:
        """A `Swap`; with ``chunks`` -1 nothing is changed, and "ready" says that a result may be written."""
        parts = (self._part(old.id, part) for part in ("names", "events", "file", "pages"))
        keys = (self._part(old.id), *parts, self._result_of(new), self.queue.shared, self._cancelled)
        arguments = {
            **self._values_of(new),
            "old": str(old.version),
            "cancelled": new.status == "cancelled",
            "size": str(old.file.size_bytes),
            **self._share_of(old),
            "claimed": () if claim is None else place_of(claim),
            "chunks": chunks,
        }
        reply = await self._redis.run(
            SWAP,
            (*keys, *self._files_of(old), *self._ended_of(old)),
            arguments,
            pack_job(new),
            pack_progress(new.progress),
        )
        if reply == b"unwritten":
            raise dropped()
        return str(reply.decode())

    async def _restore(self, job: Job, chunks: int) -> str:
        """Write a lost job: "done", or "stale" where the job is there or was deleted; ``chunks`` as in `_swap`."""
        parts = (self._part(job.id, part) for part in ("names", "events", "pages"))
        keys = (self._part(job.id), *parts, self._result_of(job), self._name("same", job.same), self.queue.pinned)
        arguments = {**self._values_of(job), **self._share_of(job), "chunks": chunks}
        keys = (*keys, *self._ended_of(job))
        reply = await self._redis.run(RESTORE, keys, arguments, pack_job(job), pack_progress(job.progress))
        if reply == b"unwritten":
            raise dropped()
        return str(reply.decode())

    async def _revive(self, job: Job) -> Renewal:
        """Write a job that runs here and that Redis has lost, without its file, which only its run still has."""
        if await self._restore(job, 0) == "stale":
            return "taken"
        log_event(_log, logging.WARNING, "Redis had lost a running job, it is written again", job=job.id)
        return "kept"

    def _values_of(self, job: Job) -> dict[str, Any]:
        """What scripts need to know of a job that they write."""
        return {
            **self._us,
            "id": job.id,
            "version": str(job.version),
            "status": "ended" if job.ended else job.status,
            "expires_ms": None if job.expires_s is None else _ms(job.expires_s),
            "live_ms": _ms(_live_s(job)),
        }

    async def _known(self, job_id: str) -> Job | None:
        return await self.find(job_id) if job_id else None

    async def _equal(self, job_id: str) -> Job | None:
        """An equal job, to save the work; one that this release cannot read saves none."""
        with suppress(JobOfAnotherRelease):
            return await self._known(job_id)
        return None

    async def _newest_cancelled(self) -> str:
        rows = await self._redis.call("XREVRANGE", self._cancelled, "+", "-", "COUNT", 1)
        return stream_entry(rows[0])[0] if rows else _BEGINNING

    async def _discard(self, job: Job) -> None:
        """Remove the file of a job that was not added. One that was, unknown to us, keeps it."""
        with suppress(Unavailable):  # what it leaves expires
            await self._redis.run(DISCARD, (self._part(job.id), self._part(job.id, "file")))

    async def _text(self, *command: str) -> str:
        reply = await self._redis.call(*command)
        return "" if reply is None else reply.decode()

    def _name(self, kind: str, digest: str = "") -> str:
        return f"{self._options.prefix}:jobs:{kind}{':' if digest else ''}{digest}"

    def _part(self, job_id: str, part: str = "") -> str:
        return f"{self._options.prefix}:job:{job_id}{':' if part else ''}{part}"

    def _files_of(self, job: Job) -> tuple[str, str]:
        return self._name("files", job.owner), self._name("file-bytes", job.owner)

    def _ended_of(self, job: Job) -> tuple[str, str]:
        return self._name("ended", job.owner), self._name("ended-bytes", job.owner)

    def _share_of(self, job: Job) -> dict[str, Any]:
        """How many bytes an owner's ended jobs may take."""
        has_share = job.owner != ANYBODY.owner and self._redis.limit_bytes > 0
        return {
            "has_share": has_share,
            "share_bytes": self._redis.limit_bytes // _SHARE if has_share else _NO_LIMIT,
        }

    def _result_of(self, job: Job) -> str:
        return self._part(job.id, f"result:{job.version}")  # a version has one writer


def _live_s(job: Job) -> float:
    return _LIVE_S + job.ttl_s


def _writing_s(job: Job) -> float:
    return max(job.ttl_s, _WRITING_S)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
