"""Which job a replica takes next: one whose replica fell silent, one that only this replica can run, or a new one.

Also keeps the jobs that wait or run from expiring, and the queue free of what belongs to no job.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeAlias, cast

from redis.exceptions import ResponseError

from backend.abandoned import end_tasks
from backend.errors import Unavailable
from backend.jobs.records import Job, JobClaim
from backend.jobs.redis_connections import RedisConnections, stream_entries, stream_entry
from backend.jobs.redis_scripts import FORGET_CONSUMERS, RENEW, SETTLE, SWEEP
from backend.jobs.store import Renewal
from backend.lanes.cache.redis_client import error_code
from backend.telemetry import log_event

GROUP = "workers"
CLOSE_S = 1.0  # to give an entry back; a Redis that takes longer gives it to others after a lease
_log = logging.getLogger(__name__)
_StreamEntries: TypeAlias = list[tuple[str, dict[str, bytes]]]
_EVERY_S = 3600.0  # from the end of one sweep to the next; a live job's keys last for days
ENTRIES = 50  # in one call: Redis does nothing else meanwhile
CONSUMER_IDLE_S = 86_400.0  # a process that ended; one that is only silent is known again with its next command


class RedisQueue:
    """Two streams with a consumer group each; every replica is a consumer.

    An entry belongs to the replica that took it until that replica has not renewed it for a lease; then another one
    claims it. Entries of the ``pinned`` stream belong to one replica from the start, as only its process can run them.
    """

    def __init__(self, redis: RedisConnections, prefix: str, lease_s: float, monotonic: Callable[[], float]) -> None:
        self.shared, self.pinned = f"{prefix}:jobs:queue", f"{prefix}:jobs:kept"
        self.streams = (self.shared, self.pinned)
        self.consumer = os.urandom(8).hex()
        self.unfinished = 0  # entries of both streams, at the last count
        self._redis, self._lease_s, self._monotonic = redis, lease_s, monotonic
        self._pinned_claims: deque[JobClaim] = deque()  # entries of ``pinned`` that no worker has taken yet
        self._pinned_added = asyncio.Event()
        self._read_task: asyncio.Task[_StreamEntries] | None = None  # outlives a `take` that returned another claim
        self._taking = False  # whether a worker waits in `take`
        self._us = {"group": GROUP, "consumer": self.consumer}
        self._reclaimed_s = monotonic() - lease_s  # when this replica last looked for expired leases

    async def start(self) -> None:
        """Create the consumer groups where they are absent. Raises: Unavailable."""
        for stream in self.streams:
            try:
                await self._redis.call("XGROUP", "CREATE", stream, GROUP, "0", "MKSTREAM")
            except ResponseError as error:
                if error_code(error) != "BUSYGROUP":
                    raise

    async def close(self) -> None:
        with suppress(Unavailable, ResponseError, TimeoutError):  # then others take it after a lease
            async with asyncio.timeout(CLOSE_S):
                await self._release_read()
        await self._end_read()

    def add_pinned(self, claim: JobClaim) -> None:
        """Queue an entry of ``pinned`` that this replica added."""
        self._pinned_claims.append(claim)
        self._pinned_added.set()

    async def take(self) -> JobClaim:
        """The next job; waits for one, through all faults of Redis."""
        faults, self._taking = 0, True
        try:
            while True:
                try:
                    if claim := await self._reclaim() or await self._next():
                        return claim
                    faults = 0
                except (Unavailable, ResponseError) as error:
                    faults += 1
                    await self._recover(error, faults)
        finally:
            self._taking = False

    async def renew(self, claim: JobClaim, job_key: str, job: Job | None) -> Renewal:
        """Extend the lease of a claim, of a running ``job`` by the place that Redis has of it."""
        version = "" if job is None else str(job.version)
        reply = await self._redis.run(RENEW, (job_key,), {**self._us, "version": version, "claimed": place_of(claim)})
        return cast("Renewal", reply.decode())

    async def renew_waiting(self) -> None:
        """Extend the leases of pinned jobs that no worker has taken yet, and count the unfinished jobs.

        A shared entry that came when all workers were busy again is left to other replicas.
        """
        for claim in list(self._pinned_claims):
            if await self.renew(claim, "", None) != "kept":
                with suppress(ValueError):  # a worker has taken it meanwhile
                    self._pinned_claims.remove(claim)
        if not self._taking:
            await self._release_read()
        self.unfinished = sum([await self._redis.call("XLEN", stream) for stream in self.streams])

    async def settle(self, claim: JobClaim, job_key: str) -> None:
        await self._redis.run(SETTLE, (job_key,), {**self._us, "claimed": place_of(claim)})

    async def held(self) -> list[JobClaim]:
        """The entries that Redis has given to this replica, also in replies that it never read."""
        claims: list[JobClaim] = []
        for stream in (self.shared, self.pinned):
            try:
                reply = await self._redis.call("XREADGROUP", "GROUP", GROUP, self.consumer, "STREAMS", stream, "0")
            except ResponseError:  # the group is gone: Redis was emptied, and no entry is held
                continue
            claims += [_claim(stream, *entry) for entry in stream_entries(reply)]
        return claims

    async def _recover(self, error: Exception, faults: int) -> None:
        """Recreate the groups where Redis was emptied; else wait: it may be full, loading, or read-only."""
        if isinstance(error, ResponseError):
            if error_code(error) == "NOGROUP":
                try:
                    await self.start()
                    return
                except Unavailable:
                    pass  # logged where it was raised
            else:
                log_event(_log, logging.WARNING, "Redis refuses to give jobs", error=error)
        await self._redis.pause(faults)

    async def _reclaim(self) -> JobClaim | None:
        if self._monotonic() - self._reclaimed_s < self._lease_s / 2:
            return None
        lease_ms = max(1, round(self._lease_s * 1000))
        for stream in self.streams:
            cursor: str | bytes = "0-0"
            while True:
                cursor, rows, *_ = await self._redis.call(
                    "XAUTOCLAIM", stream, GROUP, self.consumer, lease_ms, cursor, "COUNT", 1
                )
                if rows and rows[0] is not None:  # Redis 6 gives nil for an entry that is no more
                    return _claim(stream, *stream_entry(rows[0]))
                if cursor == b"0-0":
                    break
        self._reclaimed_s = self._monotonic()
        return None

    async def _next(self) -> JobClaim | None:
        if not self._pinned_claims:
            self._pinned_added.clear()
            if self._read_task is None:
                words = ("XREADGROUP", "GROUP", GROUP, self.consumer, "COUNT", "1")
                self._read_task = asyncio.create_task(self._redis.read(*words, streams={self.shared: ">"}))
            added = asyncio.create_task(self._pinned_added.wait())
            try:
                await asyncio.wait({self._read_task, added}, return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                await self.close()  # else it would take the next entry, and no worker would run that for a lease
                raise
            finally:
                added.cancel()
            if self._read_task.done():
                task, self._read_task = self._read_task, None
                for entry in task.result():
                    return _claim(self.shared, *entry)
        return self._pinned_claims.popleft() if self._pinned_claims else None

    async def _release_read(self) -> None:
        """Leave an entry that came when no worker was free any more to the next replica that looks."""
        if self._read_task is None or not self._read_task.done():
            return
        task, self._read_task = self._read_task, None
        if task.cancelled() or task.exception() is not None:
            return
        for entry, _ in task.result():
            idle = ("IDLE", round(self._lease_s * 1000), "JUSTID")
            await self._redis.call("XCLAIM", self.shared, GROUP, self.consumer, 0, entry, *idle)

    async def _end_read(self) -> None:
        if self._read_task is not None:
            task, self._read_task = self._read_task, None
            await end_tasks(task)


def place_of(claim: JobClaim) -> tuple[str, str]:
    """The queue of a claim and its entry there."""
    stream, _, entry = claim.place.rpartition(" ")
    return stream, entry


def _claim(stream: str, entry: str, fields: dict[str, bytes]) -> JobClaim:
    return JobClaim(fields["job"].decode(), f"{stream} {entry}")


class QueueSweep:
    """Walks through the queue a few entries at a time, again and again. Every replica does, so that any one suffices.

    Args:
        arguments: of the script `SWEEP`, but for ``after``, ``count`` and ``pinned``.
    """

    def __init__(
        self,
        redis: RedisConnections,
        shared: str,
        pinned: str,
        arguments: Mapping[str, Any],
        monotonic: Callable[[], float],
    ) -> None:
        self._redis, self._streams, self._pinned = redis, (shared, pinned), pinned
        self._arguments, self._monotonic = arguments, monotonic
        self._rest: list[tuple[str, str]] = []  # queues to walk through, and after which entry
        self._next_s = monotonic()

    async def step(self) -> None:
        """Look at the next few entries, if it is time. Raises: Unavailable; then the next call looks at them again."""
        if not self._rest:
            if self._monotonic() < self._next_s:
                return
            self._rest = [(stream, "-") for stream in self._streams]
        stream, after = self._rest[0]
        pinned = stream == self._pinned
        arguments = {**self._arguments, "after": after, "count": ENTRIES, "pinned": pinned}
        last = (await self._redis.run(SWEEP, (stream,), arguments)).decode()
        if last:
            self._rest[0] = (stream, f"({last}")
            return
        idle = {"group": self._arguments["group"], "idle_ms": round(CONSUMER_IDLE_S * 1000)}
        await self._redis.run(FORGET_CONSUMERS, (stream,), idle)
        del self._rest[0]
        self._next_s = self._monotonic() + _EVERY_S
