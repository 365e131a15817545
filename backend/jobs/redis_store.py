"""Jobs in Redis: every replica sees them, any may work on them, and none is lost with the process that does.

The queue is a stream with a consumer group: an entry that was taken is its taker's for as long as it is renewed, and
whoever looks next after that takes it over. Events are a stream a job, cancellations one for all, so that a reader
whose connection broke misses nothing.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import suppress
from typing import Any, cast

from backend.documents.parsing.limits import FileLimits
from backend.documents.parsing.stored_file import StoredFile
from backend.errors import TooLarge, Unavailable
from backend.jobs.codec import pack_job, pack_progress, unpack_job
from backend.jobs.records import Claim, EventKind, Job, JobEvent, PageNote, Progress
from backend.jobs.redis_connections import RedisDoor, entry_of
from backend.jobs.redis_options import RedisJobOptions
from backend.jobs.redis_queue import GROUP, RedisQueue
from backend.jobs.redis_scripts import ADD, NOTE, SWAP
from backend.jobs.states import same_job, too_many
from backend.jobs.store import Swap

_CHUNK_BYTES = 2**20
_BEGINNING = "0-0"
_OWN_READERS = 4  # that wait for jobs and cancellations


class RedisJobStore:
    """A `JobStore` that replicas share.

    Args:
        limits: of a file, as it was when it came in.
        monotonic: seconds, for the time between two looks for what others left.
    """

    def __init__(self, options: RedisJobOptions, limits: FileLimits, *, monotonic: Callable[[], float]) -> None:
        self.heartbeat_s: float | None = options.lease_s / 3
        self._options, self._limits = options, limits
        self._door = RedisDoor(
            options.url, settle_s=options.settle_s, block_s=options.lease_s / 2, readers=options.watchers + _OWN_READERS
        )
        self._queue = RedisQueue(self._door, options.prefix, options.lease_s, monotonic)
        self._stops = self._name("stops")
        self._watchers = 0
        self._last_stop = ""  # the last cancellation we know of

    async def start(self) -> None:
        """Make the queues, where Redis is there; else `take` makes them when it is back."""
        with suppress(Unavailable):
            await self._queue.start()
            self._last_stop = await self._newest_stop()

    async def close(self) -> None:
        """Close the connections."""
        await self._queue.close()
        await self._door.close()

    async def add(self, job: Job, upload: StoredFile, key: str | None, *, here: bool) -> Job:
        """Keep the file, then, in one piece with the look for an equal job, the job."""
        written = False
        while True:
            alike = await self._text("GET", self._name("same", job.same))
            keyed = await self._text("GET", self._name("key", key)) if key else ""
            found = same_job(await self._known(keyed), await self._known(alike), job.same)
            if found is None and not written:
                await self._put(self._part(job.id, "file"), upload.content(), job.expires_s)
                written = True
            try:
                if found is None and not await self._add(job, (alike, keyed), key, here=here):
                    continue  # an equal one came meanwhile
            except BaseException:
                await self._discard(job.id)
                raise
            if found is None:
                return job
            if written:
                await self._discard(job.id)
            if key is not None:
                await self._door.call("SET", self._name("key", key), found.id, "NX", "PXAT", _ms(found.expires_s))
            return found

    async def find(self, job_id: str) -> Job | None:
        """The job as it is now."""
        record, progress = await self._door.call("HMGET", self._part(job_id), "record", "progress")
        return None if record is None or progress is None else unpack_job(record, progress)

    async def file(self, job_id: str) -> StoredFile | None:
        """The file, read into memory of this process."""
        key = self._part(job_id, "file")
        if not (chunks := await self._door.call("LLEN", key)):
            return None
        stored = StoredFile(self._limits)
        try:
            for index in range(chunks):
                stored.write(await self._door.call("LINDEX", key, index))
        except BaseException:
            stored.close()
            raise
        return stored

    async def result(self, job: Job) -> bytes | None:
        """What it gave."""
        chunks = await self._door.call("LRANGE", self._result_of(job), 0, -1)
        return b"".join(chunks) if chunks else None

    async def pages(self, job_id: str) -> dict[int, bytes]:
        """The pages so far."""
        flat = await self._door.call("HGETALL", self._part(job_id, "pages"))
        return {int(number): packed for number, packed in zip(flat[::2], flat[1::2], strict=True)}

    async def page(self, job_id: str, number: int) -> bytes | None:
        """One of them."""
        packed: bytes | None = await self._door.call("HGET", self._part(job_id, "pages"), number)
        return packed

    async def swap(self, old: Job, new: Job, result: bytes | None = None) -> Swap:
        """Change a job, if it is what it was."""
        if result is not None:
            if len(result) > self._options.result_bytes:
                raise TooLarge("result: bytes", len(result), self._options.result_bytes, "LIMIT_JOB_BYTES")
            await self._put(self._result_of(new), result, new.expires_s)
        parts = (self._part(old.id, "file"), self._part(old.id, "pages"), self._result_of(new))
        keys = (self._part(old.id), self._part(old.id, "events"), self._queue.shared, self._stops, *parts)
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
        """Write an ended job that Redis has forgotten, as after a restart without persistence."""
        record, progress = pack_job(job), pack_progress(job.progress)
        if result is not None:
            await self._put(self._result_of(job), result, job.expires_s)
        key = self._part(job.id)
        await self._door.call("HSET", key, "v", job.version, "record", record, "progress", progress)
        await self._door.call("PEXPIREAT", key, _ms(job.expires_s))

    async def note(self, job: Job, progress: Progress, page: PageNote | None) -> bool:
        """Write how far a job is, while it is ours."""
        keys = (self._part(job.id), self._part(job.id, "pages"), self._part(job.id, "events"))
        what = ("", b"", b"") if page is None else page
        return bool(await self._run(NOTE, keys, (job.version, pack_progress(progress), _ms(job.expires_s), *what)))

    async def forget(self, job: Job) -> None:
        """Drop it."""
        parts = (self._part(job.id, part) for part in ("file", "pages", "events"))
        await self._door.call("UNLINK", self._part(job.id), *parts, self._result_of(job))

    async def take(self) -> Claim:
        """The next job."""
        return await self._queue.take()

    async def renew(self, claim: Claim, job: Job | None) -> bool:
        """Keep a claim."""
        return await self._queue.renew(claim, self._part(claim.job_id), job)

    async def renew_waiting(self) -> None:
        """Keep the claims that no worker has taken yet."""
        await self._queue.renew_waiting()

    async def settle(self, claim: Claim) -> None:
        """Take a job that is no more out of the queue."""
        await self._queue.settle(claim)

    async def events(self, job_id: str, after: str) -> AsyncGenerator[JobEvent, None]:
        """What happened, then what happens, anywhere. Raises further: Overloaded, as each holds a connection."""
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
                entries = [entry_of(row) for row in await self._door.call("XRANGE", key, f"({last}", "+")]
            else:
                entries = await self._door.read("XREAD", "COUNT", "100", streams={key: last})
            for last, fields in entries:
                kind = cast("EventKind", fields["kind"].decode())
                yield JobEvent(last, kind, fields["data"])
                if kind == "end":
                    return
            if job.ended:
                return

    async def stops(self) -> AsyncIterator[str]:
        """Jobs that any replica cancels."""
        faults = 0
        while True:
            try:
                self._last_stop = self._last_stop or await self._newest_stop()
                entries = await self._door.read("XREAD", streams={self._stops: self._last_stop})
                faults = 0
            except Unavailable:
                await self._door.pause(faults)
                faults += 1
                continue
            for entry, fields in entries:
                self._last_stop = entry
                yield fields["job"].decode()

    def waiting(self) -> int:
        """Jobs of all replicas that wait or run, as last seen."""
        return self._queue.live

    def report(self) -> dict[str, Any]:
        """Where they are."""
        return {
            "store": "redis",
            "why": f"REDIS_URL is set: every replica on {self._door.address} sees every job",
            "limit_jobs": self._options.limit_jobs,
            "limit_bytes": self._options.result_bytes,
            "lease_s": self._options.lease_s,
        }

    async def _add(self, job: Job, expected: tuple[str, str], key: str | None, *, here: bool) -> bool:
        """Write a job whose file is written; False where not what was expected stands under same and key."""
        queue = self._queue
        goes_to = queue.kept if here else queue.shared
        keys = (self._part(job.id), self._part(job.id, "file"), self._part(job.id, "events"), goes_to)
        reply = await self._run(
            ADD,
            (*keys, queue.shared, queue.kept, self._name("same", job.same), self._name("key", key or "")),
            (
                *(*expected, job.id, pack_job(job), pack_progress(job.progress), _ms(job.expires_s)),
                *(self._options.limit_jobs, GROUP, queue.me if here else "", int(key is not None)),
            ),
        )
        verdict, _, entry = reply.decode().partition(":")
        if verdict == "full":
            raise too_many("jobs that wait or run", int(entry), self._options.limit_jobs, "LIMIT_JOBS")
        if verdict == "added" and here:
            queue.keep(Claim(job.id, f"{goes_to} {entry}"))
        return bool(verdict == "added")

    async def _known(self, job_id: str) -> Job | None:
        return await self.find(job_id) if job_id else None

    async def _newest_stop(self) -> str:
        rows = await self._door.call("XREVRANGE", self._stops, "+", "-", "COUNT", 1)
        return entry_of(rows[0])[0] if rows else _BEGINNING

    async def _put(self, key: str, content: bytes, expires_s: float) -> None:
        await self._door.call("DEL", key)
        view = memoryview(content)
        for start in range(0, len(view), _CHUNK_BYTES):
            await self._door.call("RPUSH", key, bytes(view[start : start + _CHUNK_BYTES]))
        await self._door.call("PEXPIREAT", key, _ms(expires_s))

    async def _discard(self, job_id: str) -> None:
        with suppress(Unavailable):  # what it leaves expires
            await self._door.call("UNLINK", self._part(job_id, "file"))

    async def _text(self, *command: str) -> str:
        reply = await self._door.call(*command)
        return "" if reply is None else reply.decode()

    async def _run(self, script: str, keys: tuple[str, ...], arguments: tuple[Any, ...]) -> Any:
        return await self._door.call("EVAL", script, len(keys), *keys, *arguments)

    def _name(self, what: str, digest: str = "") -> str:
        return f"{self._options.prefix}:jobs:{what}{':' if digest else ''}{digest}"

    def _part(self, job_id: str, part: str = "") -> str:
        return f"{self._options.prefix}:job:{job_id}{':' if part else ''}{part}"

    def _result_of(self, job: Job) -> str:
        return self._part(job.id, f"result:{job.version}")  # a version has one writer


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
