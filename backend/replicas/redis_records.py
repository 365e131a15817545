"""Shared records in Redis: a hash with the versions of a kind, and a hash of large values for each version.

No key of a record expires, so that a full Redis with a ``volatile-…`` policy drops none of them. Every change is one
script, which may be repeated when its answer was lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from redis.exceptions import RedisError, ResponseError

from backend.errors import Unavailable
from backend.lanes.cache.redis_client import RedisOptions, open_pool
from backend.replicas.records import TOMBSTONES_MAX, Entry, Index, Outcome, Version, new_id

_SETTLE_S = 5.0  # of one command: a large classifier takes longer than a look-up in the cache
_CONNECTIONS = 4
_RETRY_S = 2.0
_MARK = ":mark"  # a field beside the names of records, which cannot begin with a colon
_LIVE, _DELETED = b"0", b"1"

# An entry is "NUMBER ID DELETED HEADER". One that cannot be read counts as older than all others.
_SHARED = """
local function parse(raw)
  if not raw then return nil end
  local number, id, deleted = string.match(raw, '^(%d+) (%x+) ([01]) ')
  return {number = tonumber(number or '0'), id = id or '', deleted = deleted == '1'}
end
local function set(index, name, raw, number, mark)
  local revision = tonumber(redis.call('HGET', index, ':revision') or '0')
  redis.call('HSET', index, name, raw, ':mark', mark,
    ':revision', string.format('%.0f', math.max(revision, number)))
end
local function forget_old_deletions(index, most)
  local rows, deletions = redis.call('HGETALL', index), {}
  for at = 1, #rows, 2 do
    if string.sub(rows[at], 1, 1) ~= ':' then
      local entry = parse(rows[at + 1])
      if entry.deleted then deletions[#deletions + 1] = {entry.number, rows[at]} end
    end
  end
  if #deletions <= most then return end
  table.sort(deletions, function(one, other) return one[1] < other[1] end)
  for at = 1, #deletions - most do
    redis.call('HDEL', index, deletions[at][2])
    local floor = tonumber(redis.call('HGET', index, ':floor') or '0')
    redis.call('HSET', index, ':floor', string.format('%.0f', math.max(floor, deletions[at][1])))
  end
end
"""
# KEYS: index, values of the new version; ARGV: name, id, expected, deleted, header, mark, limit, tombstones, part...
_WRITE = f"""{_SHARED}
local name, id, mark = ARGV[1], ARGV[2], ARGV[6]
local raw = redis.call('HGET', KEYS[1], name)
local now = parse(raw)
if now and now.id == id then return {{'done', raw}} end
if (now and string.format('%.0f %s', now.number, now.id) or '') ~= ARGV[3] then return {{'other', raw}} end
if ARGV[4] == '0' and tonumber(ARGV[7]) > 0 and (not now or now.deleted) then
  local live, rows = 0, redis.call('HGETALL', KEYS[1])
  for at = 1, #rows, 2 do
    if string.sub(rows[at], 1, 1) ~= ':' and not parse(rows[at + 1]).deleted then live = live + 1 end
  end
  if live >= tonumber(ARGV[7]) then return {{'full', false}} end
end
local revision = tonumber(redis.call('HGET', KEYS[1], ':revision') or '0')
local number = math.max(revision, now and now.number or 0) + 1
local entry = string.format('%.0f %s %s ', number, id, ARGV[4]) .. ARGV[5]
for at = 9, #ARGV, 2 do redis.call('HSET', KEYS[2], ARGV[at], ARGV[at + 1]) end
set(KEYS[1], name, entry, number, mark)
if now then redis.call('UNLINK', KEYS[1] .. ':' .. name .. ':' .. now.id) end
forget_old_deletions(KEYS[1], tonumber(ARGV[8]))
return {{'done', entry}}
"""
# KEYS: index, values of the version; ARGV: name, id, mark, part, value
_ADD_PART = f"""{_SHARED}
local now = parse(redis.call('HGET', KEYS[1], ARGV[1]))
if not now or now.id ~= ARGV[2] or now.deleted or redis.call('EXISTS', KEYS[2]) == 0 then return 0 end
if redis.call('HSETNX', KEYS[2], ARGV[4], ARGV[5]) == 0 then return 0 end
redis.call('HSET', KEYS[1], ':mark', ARGV[3])
return 1
"""
_NOW = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
"""
# KEYS: a hash "replica" -> "EXPIRY PAYLOAD"; ARGV: replica, ms, payload
_REPORT = f"""{_NOW}
redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f ', now + ARGV[2]) .. ARGV[3])
redis.call('PEXPIRE', KEYS[1], 86400000)
local rows, told = redis.call('HGETALL', KEYS[1]), {{}}
for at = 1, #rows, 2 do
  local expiry, payload = string.match(rows[at + 1], '^(%d+) (.*)$')
  if expiry and tonumber(expiry) > now then
    told[#told + 1] = rows[at]
    told[#told + 1] = payload
  else
    redis.call('HDEL', KEYS[1], rows[at])
  end
end
return told
"""
# KEYS: a sorted set of replicas by the end of their lease; ARGV: replica, at once, ms
_TAKE_TURN = f"""{_NOW}
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) and redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then return 0 end
redis.call('ZADD', KEYS[1], now + ARGV[3], ARGV[1])
redis.call('PEXPIRE', KEYS[1], 86400000)
return 1
"""


class RedisRecords:
    """`SharedRecords` in the Redis of REDIS_URL. Belongs to the event loop. Raises: BadSettings for a bad URL."""

    store = "redis"

    def __init__(self, url: str, prefix: str) -> None:
        options = RedisOptions(url, prefix=prefix, settle_s=_SETTLE_S, connections=_CONNECTIONS)
        self._pool, self.address = open_pool(options)
        self._prefix = f"{prefix}:shared"

    async def start(self) -> None:
        """Nothing is checked: job stores refuse a Redis that cannot run scripts, and one that is away comes back."""

    async def close(self) -> None:
        await self._pool.close()

    async def mark(self, kind: str) -> str:
        return _text(await self._ask("HGET", self._index(kind), _MARK))

    async def index(self, kind: str) -> Index:
        rows = await self._ask("HGETALL", self._index(kind))
        fields = {_text(name): value for name, value in zip(rows[::2], rows[1::2], strict=True)}
        entries = {name: _entry(raw) for name, raw in fields.items() if name[:1] != ":"}
        return Index(_text(fields.get(_MARK)), entries)

    async def write(
        self,
        kind: str,
        name: str,
        write_id: str,
        *,
        expected: Version | None,
        header: bytes,
        parts: Mapping[str, bytes] | None,
        limit: int = 0,
    ) -> Outcome:
        deleted = _DELETED if parts is None else _LIVE
        before = "" if expected is None else f"{expected.number} {expected.id}"
        words = (name, write_id, before, deleted, header, new_id(), limit, TOMBSTONES_MAX, *_pairs(parts or {}))
        status, raw = await self._run_again(_WRITE, self._keys(kind, name, write_id), words)
        return Outcome(_text(status), None if raw is None else _entry(raw))  # type: ignore[arg-type]  # of the script

    async def part(self, kind: str, name: str, version: Version, part: str) -> bytes | None:
        value: bytes | None = await self._ask("HGET", self._keys(kind, name, version.id)[1], part)
        return value

    async def add_part(self, kind: str, name: str, version: Version, part: str, value: bytes) -> bool:
        words = (name, version.id, new_id(), part, value)
        return bool(await self._run_again(_ADD_PART, self._keys(kind, name, version.id), words))

    async def report(self, replica: str, payload: bytes, keep_s: float) -> dict[str, bytes]:
        keys = (f"{self._prefix}:replicas",)
        rows = await self._run_again(_REPORT, keys, (replica, round(keep_s * 1000), payload))
        return {_text(name): value for name, value in zip(rows[::2], rows[1::2], strict=True)}

    async def leave(self, replica: str) -> None:
        await self._ask("HDEL", f"{self._prefix}:replicas", replica)

    async def take_turn(self, what: str, replica: str, *, at_once: int, lease_s: float) -> bool:
        words = (replica, at_once, round(lease_s * 1000))
        return bool(await self._run_again(_TAKE_TURN, (f"{self._prefix}:turns:{what}",), words))

    async def end_turn(self, what: str, replica: str) -> None:
        await self._ask("ZREM", f"{self._prefix}:turns:{what}", replica)

    def _index(self, kind: str) -> str:
        return f"{self._prefix}:{kind}"

    def _keys(self, kind: str, name: str, version_id: str) -> tuple[str, str]:
        index = self._index(kind)
        return index, f"{index}:{name}:{version_id}"

    async def _run_again(self, script: str, keys: Sequence[str], words: Sequence[str | bytes | float]) -> Any:
        """Run a script, and once more where its answer was lost: on another connection, with the same effect."""
        command = ("EVAL", script, len(keys), *keys, *words)
        try:
            return await self._ask(*command)
        except Unavailable as error:
            if isinstance(error.__cause__, ResponseError):
                raise
            return await self._ask(*command)

    async def _ask(self, *command: str | bytes | float) -> Any:
        try:
            return await self._pool.ask(command)
        except (RedisError, OSError, TimeoutError) as error:
            raise Unavailable(
                f"Redis (REDIS_URL, {self.address}), which all replicas share, {_reason(error)}. Try again",
                retry_after_s=_RETRY_S,
            ) from error


def _pairs(parts: Mapping[str, bytes]) -> list[str | bytes]:
    return [word for name, value in parts.items() for word in (name, value)]


def _entry(raw: bytes) -> Entry:
    """An entry; foreign bytes are a version before all others, whose header nobody can read."""
    try:
        number, version_id, deleted, header = raw.split(b" ", 3)
        return Entry(Version(int(number), version_id.decode("ascii")), deleted == _DELETED, header)
    except ValueError:
        return Entry(Version(0, ""), False, b"")


def _reason(error: Exception) -> str:
    """Of a refusal the server's words; of a connection only the kind, as its message may quote the address."""
    if isinstance(error, ResponseError):
        return f"refuses ({str(error)[:200]})"
    return f"does not answer ({type(error).__name__})"


def _text(value: bytes | None) -> str:
    return "" if value is None else value.decode(errors="replace")
