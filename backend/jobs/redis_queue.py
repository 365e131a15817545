"""Which job a replica takes next: those that a silent one left, those that only it can run, then what comes."""

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
from backend.jobs.redis_connections import RedisDoor, entry_of
from backend.jobs.redis_scripts import RENEW
from backend.telemetry import log_event

GROUP = "workers"
_log = logging.getLogger(__name__)
_Entries: TypeAlias = list[tuple[str, dict[str, bytes]]]


class RedisQueue:
    """Two streams with a consumer group each, in which a replica is a consumer.

    An entry is its taker's until it has been silent about it for a lease; then the next to look takes it over.
    Entries of ``kept`` have their taker from the start, as its process alone can run them.
    """

    def __init__(self, door: RedisDoor, prefix: str, lease_s: float, monotonic: Callable[[], float]) -> None:
        self.shared, self.kept = f"{prefix}:jobs:queue", f"{prefix}:jobs:kept"
        self.me = os.urandom(8).hex()
        self.live = 0  # entries of both, as last seen
        self._door, self._lease_s, self._monotonic = door, lease_s, monotonic
        self._ours: deque[Claim] = deque()  # entries of ``kept`` that no worker took yet
        self._ours_came = asyncio.Event()
        self._reading: asyncio.Task[_Entries] | None = None  # outlives a `take` that was given something else
        self._looked_s = monotonic() - lease_s  # when we last looked for what others left

    async def start(self) -> None:
        """Make the groups where they are absent. Raises: Unavailable."""
        for stream in (self.shared, self.kept):
            try:
                await self._door.call("XGROUP", "CREATE", stream, GROUP, "0", "MKSTREAM")
            except ResponseError as error:
                if not str(error).startswith("BUSYGROUP"):
                    raise

    async def close(self) -> None:
        """Stop reading."""
        if self._reading is not None:
            reading, self._reading = self._reading, None
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    def keep(self, claim: Claim) -> None:
        """An entry of ``kept`` that is ours."""
        self._ours.append(claim)
        self._ours_came.set()

    async def take(self) -> Claim:
        """The next; waits for it, whatever befalls Redis."""
        faults = 0
        while True:
            try:
                if claim := await self._left_by_others() or await self._next():
                    return claim
                faults = 0
            except (Unavailable, ResponseError) as error:
                await self._mend(error, faults)
                faults += 1

    async def renew(self, claim: Claim, job_key: str, job: Job | None) -> bool:
        """Keep others from taking it over; whether it still is ours."""
        stream, _, entry = claim.place.partition(" ")
        version = "" if job is None else job.version
        reply = await self._door.call("EVAL", RENEW, 2, job_key, stream, GROUP, self.me, entry, version)
        return bool(reply)

    async def renew_waiting(self) -> None:
        """The same for what no worker has taken yet; and look how many jobs live."""
        for claim in list(self._ours):
            await self.renew(claim, "", None)
        self.live = sum([await self._door.call("XLEN", stream) for stream in (self.shared, self.kept)])

    async def settle(self, claim: Claim) -> None:
        """Drop an entry."""
        stream, _, entry = claim.place.partition(" ")
        await self._door.call("XACK", stream, GROUP, entry)
        await self._door.call("XDEL", stream, entry)

    async def _mend(self, error: Exception, faults: int) -> None:
        """Make the groups again where Redis was emptied, else give it time: it may be full, loading, or a replica."""
        if isinstance(error, ResponseError):
            if str(error).startswith(("NOGROUP", "UNBLOCKED")):
                try:
                    await self.start()
                    return
                except Unavailable:
                    pass  # logged where it was raised
            else:
                log_event(_log, logging.WARNING, "Redis refuses to give jobs", error=error)
        await self._door.pause(faults)

    async def _left_by_others(self) -> Claim | None:
        if self._monotonic() - self._looked_s < self._lease_s / 2:
            return None
        lease_ms = max(1, round(self._lease_s * 1000))
        for stream in (self.shared, self.kept):
            cursor: str | bytes = "0-0"
            while True:
                cursor, rows, *_ = await self._door.call(
                    "XAUTOCLAIM", stream, GROUP, self.me, lease_ms, cursor, "COUNT", 1
                )
                if rows:
                    return _claim(stream, *entry_of(rows[0]))
                if cursor == b"0-0":
                    break
        self._looked_s = self._monotonic()
        return None

    async def _next(self) -> Claim | None:
        if not self._ours:
            self._ours_came.clear()
            if self._reading is None:
                what = ("XREADGROUP", "GROUP", GROUP, self.me, "COUNT", "1")
                self._reading = asyncio.create_task(self._door.read(*what, streams={self.shared: ">"}))
            came = asyncio.create_task(self._ours_came.wait())
            try:
                await asyncio.wait({self._reading, came}, return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                await self.close()  # or it would be given what is put back now, and keep it for a lease
                raise
            finally:
                came.cancel()
            if self._reading.done():
                reading, self._reading = self._reading, None
                for entry in reading.result():
                    return _claim(self.shared, *entry)
        return self._ours.popleft() if self._ours else None


def _claim(stream: str, entry: str, fields: dict[str, bytes]) -> Claim:
    return Claim(fields["job"].decode(), f"{stream} {entry}")
