"""Jobs in Redis, shared by all replicas: any replica runs any job, and takes over those of a process that died.

The queue is a stream with a consumer group: an entry belongs to its taker for as long as the taker renews it, then to
the next replica that looks. Each job has a stream of events, and cancellations have one for all jobs, so that a reader
whose connection broke misses nothing.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

from backend.documents.parsing.limits import FileLimits
from backend.documents.parsing.stored_file import StoredFile
from backend.errors import TooLarge, Unavailable
from backend.jobs.codec import pack_job, pack_progress, unpack_job
from backend.jobs.records import Claim, EventKind, Job, JobEvent, PageRecord, Progress
from backend.jobs.redis_connections import RedisConnections, stream_entry
from backend.jobs.redis_queue import GROUP, RedisQueue
from backend.jobs.redis_scripts import ADD, SWAP, WRITE_PROGRESS
from backend.jobs.states import same_job, too_many
from backend.jobs.store import Swap

_CHUNK_BYTES = 2**20
_BEGINNING = "0-0"
_STORE_READERS = 4  # blocking reads for jobs and cancellations


@dataclass(frozen=True, slots=True)
class RedisJobOptions:
    """Address of the Redis, and limits of the jobs in it."""

    url: str = field(repr=False)  # may hold a password
    prefix: str = "financia"  # of every key
    limit_jobs: int = 1000  # that wait or run, over all replicas: LIMIT_JOBS
    result_bytes: int = 256 * 2**20  # of one result: LIMIT_JOB_BYTES
    lease_s: float = 30.0  # after which a silent replica's jobs are taken over; it renews three times as often
    settle_s: float = 5.0  # timeout of one command
    watchers: int = 64  # clients of this process that may wait for events at once


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
        self._queue = RedisQueue(self._redis, options.prefix, options.lease_s, monotonic)
        self._cancelled = self._name("stops")
        self._watchers = 0
        self._last_cancelled = ""  # the last cancellation we know of

    async def start(self) -> None:
        """Create the queues; where Redis is away, `take` creates them when it is back."""
        with suppress(Unavailable):
            await self._queue.start()
            self._last_cancelled = await self._newest_cancelled()

    async def close(self) -> None:
        await self._queue.close()
        await self._redis.close()

    async def add(self, job: Job, upload: StoredFile, key: str | None, *, pinned: bool) -> Job:
        """Write the file, then the job, atomically with the search for an equal job."""
        written = False
        while True:
            equal = await self._text("GET", self._name("same", job.same))
            keyed = await self._text("GET", self._name("key", key)) if key else ""
            existing = same_job(await self._known(keyed), await self._known(equal), job.same)
            if existing is None and not written:
                await self._put(self._part(job.id, "file"), upload.content(), job.expires_s)
                written = True
            try:
                if existing is None and not await self._add(job, (equal, keyed), key, pinned=pinned):
                    continue  # an equal job was added meanwhile
            except BaseException:
                await self._discard(job.id)
                raise
            if existing is None:
                return job
            if written:
                await self._discard(job.id)
            if key is not None:
                await self._redis.call(
                    "SET", self._name("key", key), existing.id, "NX", "PXAT", _ms(existing.expires_s)
                )
            return existing

    async def find(self, job_id: str) -> Job | None:
        record, progress = await self._redis.call("HMGET", self._part(job_id), "record", "progress")
        return None if record is None or progress is None else unpack_job(record, progress)

    async def file(self, job_id: str) -> StoredFile | None:
        """The file, read into the memory of this process."""
        key = self._part(job_id, "file")
        if not (chunks := await self._redis.call("LLEN", key)):
            return None
        stored = StoredFile(self._limits)
        try:
            for index in range(chunks):
                stored.write(await self._redis.call("LINDEX", key, index))
        except BaseException:
            stored.close()
            raise
        return stored

    async def result(self, job: Job) -> bytes | None:
        chunks = await self._redis.call("LRANGE", self._result_of(job), 0, -1)
        return b"".join(chunks) if chunks else None

    async def pages(self, job_id: str) -> dict[int, bytes]:
        flat = await self._redis.call("HGETALL", self._part(job_id, "pages"))
        return {int(number): packed for number, packed in zip(flat[::2], flat[1::2], strict=True)}

    async def page(self, job_id: str, number: int) -> bytes | None:
        packed: bytes | None = await self._redis.call("HGET", self._part(job_id, "pages"), number)
        return packed

    async def swap(self, old: Job, new: Job, result: bytes | None = None) -> Swap:
        """Replace ``old`` by ``new``, if it has not changed. Raises further: TooLarge for a result over the limit."""
        if result is not None:
            if len(result) > self._options.result_bytes:
                raise TooLarge("result: bytes", len(result), self._options.result_bytes, "LIMIT_JOB_BYTES")
            await self._put(self._result_of(new), result, new.expires_s)
        parts = (self._part(old.id, "file"), self._part(old.id, "pages"), self._result_of(new))
        keys = (self._part(old.id), self._part(old.id, "events"), self._queue.shared, self._cancelled, *parts)
        reply = await self._run(
            SWAP,
            (*keys, self._name("same", new.same)),
            (
                *(old.version, new.version, "ended" if new.ended else new.status),
                *(pack_job(new), pack_progress(new.progress), _ms(new.expires_s)),
                *(GROUP, new.id, int(new.status == "cancelled")),
            ),
        )
        return cast("Swap", reply.decode())

    async def restore(self, job: Job, result: bytes | None) -> None:
        """Write an ended job that Redis has lost, as after a restart without persistence."""
        record, progress = pack_job(job), pack_progress(job.progress)
        if result is not None:
            await self._put(self._result_of(job), result, job.expires_s)
        key = self._part(job.id)
        await self._redis.call("HSET", key, "v", job.version, "record", record, "progress", progress)
        await self._redis.call("PEXPIREAT", key, _ms(job.expires_s))

    async def write_progress(self, job: Job, progress: Progress, page: PageRecord | None) -> bool:
        keys = (self._part(job.id), self._part(job.id, "pages"), self._part(job.id, "events"))
        record = ("", b"", b"") if page is None else page
        arguments = (job.version, pack_progress(progress), _ms(job.expires_s), *record)
        return bool(await self._run(WRITE_PROGRESS, keys, arguments))

    async def forget(self, job: Job) -> None:
        parts = (self._part(job.id, part) for part in ("file", "pages", "events"))
        await self._redis.call("UNLINK", self._part(job.id), *parts, self._result_of(job))

    async def take(self) -> Claim:
        return await self._queue.take()

    async def renew(self, claim: Claim, job: Job | None) -> bool:
        return await self._queue.renew(claim, self._part(claim.job_id), job)

    async def renew_waiting(self) -> None:
        await self._queue.renew_waiting()

    async def settle(self, claim: Claim) -> None:
        await self._queue.settle(claim)

    async def events(self, job_id: str, after: str) -> AsyncGenerator[JobEvent, None]:
        """Past events after ``after``, then new ones of any replica.

        Raises further: Overloaded, as each caller holds a connection.
        """
        limit = self._options.watchers
        if self._watchers >= limit:
            raise too_many("clients of this process that wait for events", self._watchers + 1, limit, "fixed")
        self._watchers += 1
        try:
            async for event in self._events(self._part(job_id, "events"), job_id, after or _BEGINNING):
                yield event
        finally:
            self._watchers -= 1

    async def _events(self, key: str, job_id: str, after: str) -> AsyncGenerator[JobEvent, None]:
        last = after
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
                await self._redis.pause(faults)
                faults += 1
                continue
            for entry, fields in entries:
                self._last_cancelled = entry
                yield fields["job"].decode()

    def waiting(self) -> int:
        """Jobs of all replicas that wait or run, at the last count."""
        return self._queue.unfinished

    def report(self) -> dict[str, Any]:
        return {
            "store": "redis",
            "why": f"REDIS_URL is set: every replica on {self._redis.address} sees every job",
            "limit_jobs": self._options.limit_jobs,
            "limit_bytes": self._options.result_bytes,
            "lease_s": self._options.lease_s,
        }

    async def _add(self, job: Job, expected: tuple[str, str], key: str | None, *, pinned: bool) -> bool:
        """Write a job whose file is written; False when another job was added under its digest or its key meanwhile."""
        queue = self._queue
        stream = queue.pinned if pinned else queue.shared
        keys = (self._part(job.id), self._part(job.id, "file"), self._part(job.id, "events"), stream)
        reply = await self._run(
            ADD,
            (*keys, queue.shared, queue.pinned, self._name("same", job.same), self._name("key", key or "")),
            (
                *(*expected, job.id, pack_job(job), pack_progress(job.progress), _ms(job.expires_s)),
                *(self._options.limit_jobs, GROUP, queue.consumer if pinned else "", int(key is not None)),
            ),
        )
        verdict, _, entry = reply.decode().partition(":")
        if verdict == "full":
            raise too_many("jobs that wait or run", int(entry), self._options.limit_jobs, "LIMIT_JOBS")
        if verdict == "added" and pinned:
            queue.add_pinned(Claim(job.id, f"{stream} {entry}"))
        return bool(verdict == "added")

    async def _known(self, job_id: str) -> Job | None:
        return await self.find(job_id) if job_id else None

    async def _newest_cancelled(self) -> str:
        rows = await self._redis.call("XREVRANGE", self._cancelled, "+", "-", "COUNT", 1)
        return stream_entry(rows[0])[0] if rows else _BEGINNING

    async def _put(self, key: str, content: bytes, expires_s: float) -> None:
        await self._redis.call("DEL", key)
        view = memoryview(content)
        for start in range(0, len(view), _CHUNK_BYTES):
            await self._redis.call("RPUSH", key, bytes(view[start : start + _CHUNK_BYTES]))
        await self._redis.call("PEXPIREAT", key, _ms(expires_s))

    async def _discard(self, job_id: str) -> None:
        with suppress(Unavailable):  # what it leaves expires
            await self._redis.call("UNLINK", self._part(job_id, "file"))

    async def _text(self, *command: str) -> str:
        reply = await self._redis.call(*command)
        return "" if reply is None else reply.decode()

    async def _run(self, script: str, keys: tuple[str, ...], arguments: tuple[Any, ...]) -> Any:
        return await self._redis.call("EVAL", script, len(keys), *keys, *arguments)

    def _name(self, kind: str, digest: str = "") -> str:
        return f"{self._options.prefix}:jobs:{kind}{':' if digest else ''}{digest}"

    def _part(self, job_id: str, part: str = "") -> str:
        return f"{self._options.prefix}:job:{job_id}{':' if part else ''}{part}"

    def _result_of(self, job: Job) -> str:
        return self._part(job.id, f"result:{job.version}")  # a version has one writer


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
