"""What each caller uses by minute, day and month: counted here, kept by a store that outlives the process.

A request waits for none of it. What is counted and not kept yet is reported at most a second later; while the store is
away it waits in memory, and comes to the minute, day and month in which it was used.

The calendar is here, the clock is the store's: replicas whose clocks differ agree on minutes, days and months.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from redis.exceptions import RedisError, ResponseError

from backend.callers.callers import Caller, LiveKeys
from backend.callers.quotas import Bucket, Meters, Used
from backend.errors import NotFound, Unavailable
from backend.lanes.cache.redis_client import RedisOptions, open_pool
from backend.retry import Backoff
from backend.supervision import Pusher, Supervisor
from backend.telemetry import log_event

Period = Literal["minute", "day", "month"]
_KEPT_MONTHS = 13  # this one and a year
_KEPT_S = 86_400 * 31 * _KEPT_MONTHS
_SOURCE_MINUTES = 1440  # how long a process' last batch is known: it repeats one within seconds of its store's return
_BUSY_S = 5.0  # another process of this machine may be writing; a write takes milliseconds
_AT_ONCE = 200  # commands of one pipeline: Redis answers them within its deadline
EVERY_S = 1.0
REPORT_S = 0.2  # after which an HTTP worker reports to the service process what it counted
_CLOSE_S = 2.0  # for the last batch; what is not kept then is lost with the process
_RETRY = Backoff(1.0, 30.0)
_AWAY_S = 900  # while the store is away slices are so long, or a day would take 86,400 of each caller
_log = logging.getLogger(__name__)


class Counts(NamedTuple):
    """What was used. ``requests`` are those that were admitted, ``refused`` those that a quota refused."""

    requests: int = 0
    tokens: int = 0
    pages: int = 0
    refused: int = 0


COUNTED = Counts._fields
NOTHING = Counts()


@dataclass(frozen=True, slots=True)
class Slice:
    """What one caller used within a second, or within a quarter of an hour while its store was away."""

    owner: str
    age_s: float  # how long ago that was
    counts: Counts


@dataclass(frozen=True, slots=True)
class Batch:
    """What one process reports at once. Reported again under the same number, it is not counted again."""

    source: str  # of the process; no other one has it
    number: int  # from 1, one more each time
    slices: tuple[Slice, ...]

    def older(self, by_s: float) -> Batch:
        """The same, reported so much later."""
        return replace(self, slices=tuple(replace(one, age_s=one.age_s + by_s) for one in self.slices))


@dataclass(frozen=True, slots=True)
class CallerUsage:
    """What a caller has used, by the clock of who keeps it."""

    now_s: float  # Unix
    minute: Counts = NOTHING
    day: Counts = NOTHING
    month: Counts = NOTHING
    previous_month: Counts = NOTHING


class Stamps(NamedTuple):
    """The numbers of a minute, day and month: since 1970, those of months as year * 12 + month - 1."""

    minute: int
    day: int
    month: int

    @classmethod
    def at(cls, unix_s: float) -> Stamps:
        moment = datetime.fromtimestamp(unix_s, UTC)
        return cls(int(unix_s // 60), int(unix_s // 86_400), moment.year * 12 + moment.month - 1)

    def oldest(self) -> Stamps:
        """Of what is still kept now."""
        return Stamps(self.minute - 1, self.day - 1, self.month - _KEPT_MONTHS + 1)


class UsageStore(Protocol):
    """Keeps usage for all processes that reach it. All calls raise Unavailable where it is away."""

    @property
    def shared_by(self) -> str:
        """Whose usage it adds up, for GET /v1/usage."""

    async def add(self, batch: Batch) -> None:
        """Count a batch once, also where the answer was lost and it is reported again."""

    async def read(self, owners: Sequence[str]) -> Mapping[str, CallerUsage]: ...

    async def close(self) -> None: ...


def _counted(slices: Sequence[Slice], now_s: float) -> Iterator[tuple[str, str, int, Counts]]:
    """Owner, period, stamp and counts of slices."""
    for one in slices:
        for period, stamp in Stamps.at(now_s - max(0.0, one.age_s))._asdict().items():
            yield one.owner, period, stamp, one.counts


def _usage(now_s: float, counts: Mapping[tuple[str, int], Counts]) -> CallerUsage:
    """What counts now, of counts by period and stamp."""
    now = Stamps.at(now_s)
    keys = (("minute", now.minute), ("day", now.day), ("month", now.month), ("month", now.month - 1))
    return CallerUsage(now_s, *(counts.get(key, NOTHING) for key in keys))


_SCHEMA = (
    """
CREATE TABLE IF NOT EXISTS used (
    owner TEXT, period TEXT, stamp INTEGER,
    requests INTEGER NOT NULL, tokens INTEGER NOT NULL, pages INTEGER NOT NULL, refused INTEGER NOT NULL,
    PRIMARY KEY (owner, period, stamp)
) WITHOUT ROWID
""",
    "CREATE TABLE IF NOT EXISTS told (source TEXT PRIMARY KEY, number INTEGER NOT NULL, minute INTEGER NOT NULL)",
)
# Changes no row where this batch, or a later one of its process, is in the file.
_BEGIN_BATCH = """
INSERT INTO told VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET number = excluded.number, minute = excluded.minute
WHERE excluded.number > number
"""
_ADD_ROW = """
INSERT INTO used VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET requests = requests + excluded.requests,
tokens = tokens + excluded.tokens, pages = pages + excluded.pages, refused = refused + excluded.refused
"""
_FORGET = "DELETE FROM used WHERE period = ? AND stamp < ?"
_FORGET_SOURCES = "DELETE FROM told WHERE minute < ?"
_READ = "SELECT period, stamp, requests, tokens, pages, refused FROM used WHERE owner = ?"


class UsageDatabase:
    """A `UsageStore` of one machine. Each call opens the file on a thread: there is one a second at most.

    Args:
        now_s: Unix seconds.
    """

    shared_by = "the processes that share STATE_DIR"

    def __init__(self, path: Path, *, now_s: Callable[[], float] = lambda: datetime.now(UTC).timestamp()) -> None:
        self._path, self._now_s = path, now_s

    async def add(self, batch: Batch) -> None:
        """All of a batch or nothing, in one transaction.

        A call that is cancelled goes on in its thread: reported again meanwhile, the second waits for the first.
        """
        await asyncio.to_thread(self._add, batch)

    async def read(self, owners: Sequence[str]) -> Mapping[str, CallerUsage]:
        return await asyncio.to_thread(self._read, owners)

    async def close(self) -> None: ...

    def _add(self, batch: Batch) -> None:
        now_s = self._now_s()
        now = Stamps.at(now_s)
        rows = [(owner, period, stamp, *counts) for owner, period, stamp, counts in _counted(batch.slices, now_s)]
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with closing(self._open()) as connection, connection:
                for table in _SCHEMA:
                    connection.execute(table)
                if connection.execute(_BEGIN_BATCH, (batch.source, batch.number, now.minute)).rowcount:
                    connection.executemany(_ADD_ROW, rows)
                connection.executemany(_FORGET, now.oldest()._asdict().items())
                connection.execute(_FORGET_SOURCES, (now.minute - _SOURCE_MINUTES,))
        except (sqlite3.Error, OSError) as error:
            raise self._away(error) from error

    def _read(self, owners: Sequence[str]) -> dict[str, CallerUsage]:
        now_s = self._now_s()
        if not self._path.exists():
            return {owner: CallerUsage(now_s) for owner in owners}
        try:
            with closing(self._open()) as connection:
                found = {owner: connection.execute(_READ, (owner,)).fetchall() for owner in owners}
        except (sqlite3.Error, OSError) as error:
            raise self._away(error) from error
        return {
            owner: _usage(now_s, {(period, stamp): Counts(*counts) for period, stamp, *counts in rows})
            for owner, rows in found.items()
        }

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=_BUSY_S)

    def _away(self, error: Exception) -> Unavailable:
        return Unavailable(f"the usage of callers is not kept: {self._path.name} in STATE_DIR: {error}")


# KEYS: the owner's hash. ARGV: a process, the number of its batch, this minute; the oldest minute, day and month that
# are kept, and for how long the hash is; then fields and what is added to them.
# Fields: "<period>:<stamp>:<what>" counts; "from:<process>" the last batch of a process, and the minute it came.
_ADD = """
local from, minute = 'from:' .. ARGV[1], ARGV[3]
local last = redis.call('HGET', KEYS[1], from)
if last and tonumber(ARGV[2]) <= tonumber(string.match(last, '^%d+')) then return end
redis.call('HSET', KEYS[1], from, ARGV[2] .. ':' .. minute)
for index = 9, #ARGV, 2 do redis.call('HINCRBY', KEYS[1], ARGV[index], ARGV[index + 1]) end
if redis.call('HGET', KEYS[1], 'cleaned') ~= minute then
  redis.call('HSET', KEYS[1], 'cleaned', minute)
  local oldest = {minute = tonumber(ARGV[4]), day = tonumber(ARGV[5]), month = tonumber(ARGV[6])}
  local all = redis.call('HGETALL', KEYS[1])
  for index = 1, #all, 2 do
    local period, stamp = string.match(all[index], '^(%a+):(%d+):')
    local seen = string.match(all[index], '^from:') and string.match(all[index + 1], '%d+$')
    if period and tonumber(stamp) < oldest[period] or seen and tonumber(seen) < tonumber(ARGV[7]) then
      redis.call('HDEL', KEYS[1], all[index])
    end
  end
end
redis.call('EXPIRE', KEYS[1], ARGV[8])
"""


class RedisUsageStore:
    """A `UsageStore` in Redis: one hash an owner. Raises: BadSettings for a bad URL."""

    shared_by = "all replicas that share Redis"

    def __init__(self, options: RedisOptions) -> None:
        self._pool, self.address = open_pool(options)
        self._prefix = options.prefix

    async def add(self, batch: Batch) -> None:
        """Each owner's part by itself, and each of them once."""
        now_s = int((await self._ask_all([("TIME",)]))[0][0])
        now = Stamps.at(now_s)
        fields: dict[str, Counter[str]] = {}
        for owner, period, stamp, counts in _counted(batch.slices, now_s):
            used = {f"{period}:{stamp}:{what}": units for what, units in counts._asdict().items() if units}
            fields.setdefault(owner, Counter()).update(used)
        head = (batch.source, batch.number, now.minute, *now.oldest(), now.minute - _SOURCE_MINUTES, _KEPT_S)
        await self._ask_all(
            [
                ("EVAL", _ADD, 1, self._key(owner), *head, *(word for item in used.items() for word in item))
                for owner, used in fields.items()
            ]
        )

    async def read(self, owners: Sequence[str]) -> Mapping[str, CallerUsage]:
        [(seconds, _), *hashes] = await self._ask_all([("TIME",), *(("HGETALL", self._key(owner)) for owner in owners)])
        return {owner: _usage(int(seconds), _counts(rows)) for owner, rows in zip(owners, hashes, strict=True)}

    async def close(self) -> None:
        """Close the connections; what waits for a reply raises Unavailable."""
        await self._pool.close()

    def _key(self, owner: str) -> str:
        return f"{self._prefix}:used:{owner}"

    async def _ask_all(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        replies: list[Any] = []
        try:
            for first in range(0, len(commands), _AT_ONCE):
                replies += await self._pool.execute(commands[first : first + _AT_ONCE], list)
        except (RedisError, OSError, TimeoutError) as error:
            raise Unavailable(f"the usage of callers is in {self.address}: {type(error).__name__}") from error
        refusal = next((reply for reply in replies if isinstance(reply, ResponseError)), None)
        if refusal is not None:
            raise Unavailable(f"the usage of callers is in {self.address}, which refuses: {refusal}")
        return replies


def _counts(rows: Sequence[bytes]) -> dict[tuple[str, int], Counts]:
    """The counts of a hash by period and stamp; its other fields are left out."""
    counted: dict[tuple[str, int], dict[str, int]] = {}
    for name, value in zip(rows[::2], rows[1::2], strict=True):
        period, _, rest = name.decode().partition(":")
        stamp, _, what = rest.partition(":")
        if what in COUNTED and stamp.isdigit():
            counted.setdefault((period, int(stamp)), {})[what] = int(value)
    return {key: Counts(**counts) for key, counts in counted.items()}


class UsageLedger:
    """Counts what is not reported yet; Event loop only.

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
