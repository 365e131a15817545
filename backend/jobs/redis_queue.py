"""Which job a replica takes next: one whose replica fell silent, one that only this replica can run, or a new one."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from redis.exceptions import ResponseError

from backend.errors import Unavailable
from backend.jobs.records import Claim, Job
from backend.jobs.redis_connections import RedisConnections, stream_entry
from backend.jobs.redis_scripts import RENEW
from backend.telemetry import log_event

GROUP = "workers"
_log = logging.getLogger(__name__)
_StreamEntries: TypeAlias = list[tuple[str, dict[str, bytes]]]


class RedisQueue:
    """Two streams with a consumer group each; every replica is a consumer.

    An entry belongs to the replica that took it until that replica has not renewed it for a lease; then another one
    claims it. Entries of the ``pinned`` stream belong to one replica from the start, as only its process can run them.
    """

    def __init__(self, redis: RedisConnections, prefix: str, lease_s: float, monotonic: Callable[[], float]) -> None:
        self.shared, self.pinned = f"{prefix}:jobs:queue", f"{prefix}:jobs:kept"
        self.consumer = os.urandom(8).hex()
        self.unfinished = 0  # entries of both streams, at the last count
        self._redis, self._lease_s, self._monotonic = redis, lease_s, monotonic
        self._pinned_claims: deque[Claim] = deque()  # entries of ``pinned`` that no worker has taken yet
        self._pinned_added = asyncio.Event()
        self._read_task: asyncio.Task[_StreamEntries] | None = None  # outlives a `take` that returned another claim
        self._reclaimed_s = monotonic() - lease_s  # when this replica last looked for expired leases

    async def start(self) -> None:
        """Create the consumer groups where they are absent. Raises: Unavailable."""
        for stream in (self.shared, self.pinned):
            try:
                await self._redis.call("XGROUP", "CREATE", stream, GROUP, "0", "MKSTREAM")
            except ResponseError as error:
                if not str(error).startswith("BUSYGROUP"):
                    raise

    async def close(self) -> None:
        if self._read_task is not None:
            task, self._read_task = self._read_task, None
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def add_pinned(self, claim: Claim) -> None:
        """Queue an entry of ``pinned`` that this replica added."""
        self._pinned_claims.append(claim)
        self._pinned_added.set()

    async def take(self) -> Claim:
        """The next job; waits for one, through all faults of Redis."""
        faults = 0
        while True:
            try:
                if claim := await self._reclaim() or await self._next():
                    return claim
                faults = 0
            except (Unavailable, ResponseError) as error:
                await self._recover(error, faults)
                faults += 1

    async def renew(self, claim: Claim, job_key: str, job: Job | None) -> bool:
        """Extend the lease of a claim; False when it is no longer ours."""
        stream, _, entry = claim.place.partition(" ")
        version = "" if job is None else job.version
        reply = await self._redis.call("EVAL", RENEW, 2, job_key, stream, GROUP, self.consumer, entry, version)
        return bool(reply)

    async def renew_waiting(self) -> None:
        """Extend the leases of pinned jobs that no worker has taken yet, and count the unfinished jobs."""
        for claim in list(self._pinned_claims):
            await self.renew(claim, "", None)
        self.unfinished = sum([await self._redis.call("XLEN", stream) for stream in (self.shared, self.pinned)])

    async def settle(self, claim: Claim) -> None:
        stream, _, entry = claim.place.partition(" ")
        await self._redis.call("XACK", stream, GROUP, entry)
        await self._redis.call("XDEL", stream, entry)

    async def _recover(self, error: Exception, faults: int) -> None:
        """Recreate the groups where Redis was emptied; else wait: it may be full, loading, or read-only."""
        if isinstance(error, ResponseError):
            if str(error).startswith(("NOGROUP", "UNBLOCKED")):
                try:
                    await self.start()
                    return
                except Unavailable:
                    pass  # logged where it was raised
            else:
                log_event(_log, logging.WARNING, "Redis refuses to give jobs", error=error)
        await self._redis.pause(faults)

    async def _reclaim(self) -> Claim | None:
        if self._monotonic() - self._reclaimed_s < self._lease_s / 2:
            return None
        lease_ms = max(1, round(self._lease_s * 1000))
        for stream in (self.shared, self.pinned):
            cursor: str | bytes = "0-0"
            while True:
                cursor, rows, *_ = await self._redis.call(
                    "XAUTOCLAIM", stream, GROUP, self.consumer, lease_ms, cursor, "COUNT", 1
                )
                if rows:
                    return _claim(stream, *stream_entry(rows[0]))
                if cursor == b"0-0":
                    break
        self._reclaimed_s = self._monotonic()
        return None

    async def _next(self) -> Claim | None:
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


def _claim(stream: str, entry: str, fields: dict[str, bytes]) -> Claim:
    return Claim(fields["job"].decode(), f"{stream} {entry}")
