"""What each caller uses by minute, day and month: counted here, kept by a store that outlives the process.

A request waits for none of it. What is counted and not kept yet is reported at most a second later; while the store is
away it waits in memory, and comes to the minute, day and month in which it was used.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from backend.callers.callers import Caller, LiveKeys
from backend.callers.quotas import Bucket, Meters, Used
from backend.callers.usage_store import COUNTED, Batch, CallerUsage, Counts, Slice, UsageStore
from backend.errors import NotFound, Unavailable
from backend.retry import Backoff
from backend.supervision import Pusher, Supervisor
from backend.telemetry import log_event

EVERY_S = 1.0
REPORT_S = 0.2  # after which an HTTP worker reports to the service process what it counted
_CLOSE_S = 2.0  # for the last batch; what is not kept then is lost with the process
_RETRY = Backoff(1.0, 30.0)
_AWAY_S = 900  # while the store is away slices are so long, or a day would take 86,400 of each caller
_log = logging.getLogger(__name__)


class UsageLedger:
    """Counts what is not reported yet; `services.quotas.Uses`. Event loop only.

    Args:
        clock: monotonic seconds.
        now_s: Unix seconds.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        now_s: Callable[[], float] = lambda: datetime.now(UTC).timestamp(),
    ) -> None:
        self.clock, self._now_s = clock, now_s
        self._counts: dict[tuple[str, float], list[int]] = {}  # by owner and the middle of its slice, on the clock
        self._on_first: Callable[[], None] = lambda: None
        self.slice_every(1)

    def slice_every(self, seconds: int) -> None:
        """How long a slice is from now on. Slices begin by the calendar, so that none lies in two days.

        Each counts as used in its middle: a store whose clock differs a little then sees it in the same day.
        """
        self._slice_s = seconds
        self._midnight_s = (self.clock() - self._now_s()) % 86_400  # one midnight in UTC, on the clock

    def on_first(self, listener: Callable[[], None]) -> None:
        """Have ``listener`` called when something is to be reported, once until it is taken."""
        self._on_first = listener

    def add(self, owner: str, kind: Used, units: int) -> None:
        self._add(owner, self.clock(), COUNTED.index(kind), units)

    def take(self) -> tuple[Slice, ...]:
        """What was counted since the last time."""
        counts, self._counts = self._counts, {}
        now_s = self.clock()
        return tuple(Slice(owner, max(0.0, now_s - at_s), Counts(*units)) for (owner, at_s), units in counts.items())

    def merge(self, slices: Sequence[Slice]) -> None:
        """Count what another process of the service counted."""
        now_s = self.clock()
        for one in slices:
            for index, units in enumerate(one.counts):
                self._add(one.owner, now_s - one.age_s, index, units)

    def _add(self, owner: str, at_s: float, index: int, units: int) -> None:
        if not units:
            return
        is_first = not self._counts
        slices = (at_s - self._midnight_s) // self._slice_s
        middle_s = self._midnight_s + (slices + 0.5) * self._slice_s
        self._counts.setdefault((owner, middle_s), [0] * len(COUNTED))[index] += units
        if is_first:
            self._on_first()


class UsageReporter:
    """Passes what an HTTP worker counts on to the service process, ``REPORT_S`` after it began to count."""

    def __init__(self, ledger: UsageLedger, report: Callable[[tuple[Slice, ...]], None]) -> None:
        self._ledger, self._report = ledger, report
        self._loop = asyncio.get_running_loop()
        ledger.on_first(self._report_soon)

    def _report_soon(self) -> None:
        self._loop.call_later(REPORT_S, self.flush)

    def flush(self) -> None:
        """Report it now."""
        if slices := self._ledger.take():
            self._report(slices)


class UsageKeeper:
    """Has a store keep what a ledger counts. Used on the event loop only."""

    def __init__(self, ledger: UsageLedger, store: UsageStore, *, every_s: float = EVERY_S) -> None:
        self.ledger, self.store = ledger, store
        self._source, self._number = secrets.token_hex(8), 0
        self._unkept: Batch | None = None  # reported, and perhaps not kept
        self._taken_s = 0.0  # when its slices were as old as they say
        self._away = ""  # why the store does not answer
        self._reporting = asyncio.Lock()
        self._pusher = Pusher(self.flush, every_s=every_s, retry=_RETRY)
        ledger.on_first(self._pusher.wake)

    def start(self, supervisor: Supervisor) -> None:
        self._pusher.start(supervisor, "keep_usage")

    async def close(self) -> None:
        """Have all be kept that is not yet, once and within two seconds, and stop."""
        if not await self._pusher.close(_CLOSE_S):
            log_event(_log, logging.ERROR, "usage of callers was lost", reason=self._away or "no answer in time")
        await self.store.close()

    async def flush(self) -> bool:
        """Have the store keep all that was counted; whether it has it."""
        async with self._reporting:
            try:
                while (batch := self._unkept or self._next()) is not None:
                    self._unkept = batch
                    await self.store.add(batch.older(self.ledger.clock() - self._taken_s))
                    self._unkept = None
            except Unavailable as error:
                self._note(str(error))
                return False
            self._note("")
            return True

    def degraded(self) -> tuple[str, ...]:
        return ("the usage of callers is not kept for now: it waits in memory; see the log",) if self._away else ()

    def _next(self) -> Batch | None:
        slices = self.ledger.take()
        if not slices:
            return None
        self._number, self._taken_s = self._number + 1, self.ledger.clock()
        return Batch(self._source, self._number, slices)

    def _note(self, away: str) -> None:
        if away and not self._away:
            log_event(_log, logging.WARNING, "the usage of callers is not kept for now", reason=away)
        elif self._away and not away:
            log_event(_log, logging.INFO, "the usage of callers is kept again")
        if bool(away) != bool(self._away):
            self.ledger.slice_every(_AWAY_S if away else 1)
        self._away = away


@dataclass(frozen=True, slots=True)
class TenantUsage:
    """What one caller has used and may use."""

    caller: Caller
    usage: CallerUsage
    buckets: tuple[Bucket, ...]  # of its quotas a minute


class UsageService:
    """Tells callers what they used, and admins what all did.

    Args:
        keeper: None where there are no keys: then nobody is counted.
    """

    def __init__(self, keys: LiveKeys, meters: Meters, keeper: UsageKeeper | None) -> None:
        self._keys, self._meters, self._keeper = keys, meters, keeper

    @property
    def counted_by(self) -> str:
        return "nobody: this service has no keys" if self._keeper is None else self._keeper.store.shared_by

    async def of(self, caller: Caller, name: str | None = None) -> list[TenantUsage]:
        """The caller's own; for an admin those of all callers, or of the one called ``name``.

        Raises: NotFound for a name that is nobody's, or another's where the caller is no admin; Unavailable.
        """
        # A ring without callers: the keys file has lost them since this request was let in
        tenants = self._keys.ring.callers or [caller] if caller.is_admin else [caller]
        if name is not None:
            tenants = [one for one in tenants if one.name == name]
            if not tenants:
                raise NotFound(f"tenant: there is no '{name[:64]}' among those that this key may see", param="tenant")
        if self._keeper is None:
            now = CallerUsage(datetime.now(UTC).timestamp())
            return [TenantUsage(one, now, ()) for one in tenants]
        await self._keeper.flush()
        used = await self._keeper.store.read([one.owner for one in tenants])
        return [TenantUsage(one, used[one.owner], self._meters.buckets(one.owner)) for one in tenants]
