"""Keeps the jobs that wait or run from expiring, and the queue free of what belongs to no job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from backend.jobs.redis_connections import RedisConnections
from backend.jobs.redis_scripts import FORGET_CONSUMERS, SWEEP

_EVERY_S = 3600.0  # from the end of one sweep to the next; a live job's keys last for days
ENTRIES = 50  # in one call: Redis does nothing else meanwhile
CONSUMER_IDLE_S = 86_400.0  # a process that ended; one that is only silent is known again with its next command


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
