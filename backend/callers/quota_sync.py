"""Shares what callers have used among the replicas, in the background: no request waits for Redis.

Each replica decides by what it knows, and tells the others at most ``every_s`` later. Replicas that are asked at once
may together admit more than the quota before they know of each other; that is a debt, which the caller waits for.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from backend.callers.quotas import Bucket, Charge, Meters
from backend.errors import Unavailable
from backend.telemetry import log_event

_EVERY_S = 0.1
_CLOSE_S = 1.0  # for the last charges; those not told then are forgotten with this process
_RETRY_S = (0.5, 10.0)  # the first wait after a fault, and the longest; each is twice the one before
_log = logging.getLogger(__name__)


class SharedUsage(Protocol):
    """What all replicas know of the callers' usage; `cache.shared_usage.RedisUsage`."""

    async def add(self, owner: str, charges: Sequence[tuple[str, Charge]]) -> list[float]:
        """Add charges by their quota's name, and return for each the seconds until that quota is full again.

        Raises: Unavailable.
        """

    async def close(self) -> None:
        """Let go of connections at once: an `add` that waits for an answer raises Unavailable."""


class QuotaSync:
    """Tells the replicas' shared usage what this process charged, and each bucket what the others did.

    While the shared usage is away, each replica goes on with what it counts itself. Used on the event loop only.
    """

    def __init__(
        self,
        meters: Meters,
        shared: SharedUsage,
        *,
        every_s: float = _EVERY_S,
        close_s: float = _CLOSE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._shared, self._every_s, self._close_s, self._clock = shared, every_s, close_s, clock
        self._charged: dict[str, dict[str, Bucket]] = {}  # by owner and kind
        self._wake, self._stopping = asyncio.Event(), asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_away = False
        meters.on_charge(self._note)

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Tell what is not told yet, once and within ``close_s``, and stop."""
        self._stopping.set()
        self._wake.set()
        last = asyncio.create_task(self._finish())
        await asyncio.wait({last}, timeout=self._close_s)
        await self._shared.close()  # what still waits for an answer is Unavailable now
        await last

    async def push(self) -> bool:
        """Tell everything that was charged and not told yet; whether the shared usage was reached."""
        charged, self._charged = self._charged, {}
        if not charged:
            return True
        try:
            for owner, buckets in charged.items():
                told_at_s = self._clock()
                charges = [(kind, bucket.take_charge()) for kind, bucket in buckets.items()]
                refills_s = await self._shared.add(owner, charges)
                for bucket, refill_s in zip(buckets.values(), refills_s, strict=True):
                    bucket.settle(refill_s, told_at_s)
        except Unavailable as error:
            self._note_state(away=True, reason=str(error))
            return False
        self._note_state(away=False)
        return True

    async def _finish(self) -> None:
        if self._task is not None:
            await self._task
        await self.push()

    def _note(self, owner: str, bucket: Bucket) -> None:
        self._charged.setdefault(owner, {})[bucket.kind] = bucket
        self._wake.set()

    async def _run(self) -> None:
        first_s, most_s = _RETRY_S
        retry_s = first_s
        while not self._stopping.is_set():
            await self._wake.wait()
            self._wake.clear()
            if await self.push():
                retry_s = first_s
                await self._pause(self._every_s)
            else:
                await self._pause(retry_s)
                retry_s = min(retry_s * 2, most_s)

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    def _note_state(self, *, away: bool, reason: str = "") -> None:
        if away and not self._is_away:
            log_event(_log, logging.WARNING, "quotas are counted by each replica for itself", reason=reason)
        elif self._is_away and not away:
            log_event(_log, logging.INFO, "quotas are shared by the replicas again")
        self._is_away = away
