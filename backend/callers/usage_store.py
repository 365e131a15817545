"""What callers used by minute, day and month (UTC), kept in Redis for all replicas, or in an SQLite file.

The calendar is here, the clock is the store's: replicas whose clocks differ agree on minutes, days and months.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from redis.exceptions import RedisError, ResponseError

from backend.errors import Unavailable
from backend.lanes.cache.redis_client import RedisOptions, open_pool

Period = Literal["minute", "day", "month"]
_KEPT_MONTHS = 13  # this one and a year
_KEPT_S = 86_400 * 31 * _KEPT_MONTHS
_SOURCE_MINUTES = 1440  # how long a process' last batch is known: it repeats one within seconds of its store's return
_BUSY_S = 5.0  # another process of this machine may be writing; a write takes milliseconds
_AT_ONCE = 200  # commands of one pipeline: Redis answers them within its deadline


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
