"""The callers' usage in Redis, by Redis' clock: replicas whose clocks differ agree on minutes, days and months."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from redis.exceptions import RedisError, ResponseError

from backend.callers.usage_records import COUNTED, KEPT_MONTHS, Batch, Counts, Slice, Usage, usage_of
from backend.errors import Unavailable
from backend.lanes.cache.redis_client import RedisOptions, open_pool

_AT_ONCE = 200  # commands of one pipeline: Redis answers them within its deadline
_KEPT_S = 86_400 * 31 * KEPT_MONTHS
# KEYS: the owner's hash. ARGV: a process, the number of its batch, then for each slice its age in seconds and counts.
# Fields: "<period>:<stamp>:<what>" counts; "from:<process>" the last batch of a process, and the minute it came.
_ADD = """
local now = tonumber(redis.call('TIME')[1])
local minute = math.floor(now / 60)
local function month_of(day)  -- year * 12 + month - 1; after Howard Hinnant, civil_from_days
  local z = day + 719468
  local era = math.floor(z / 146097)
  local doe = z - era * 146097
  local leap = math.floor(doe / 1460) - math.floor(doe / 36524) + math.floor(doe / 146096)
  local yoe = math.floor((doe - leap) / 365)
  local doy = doe - (365 * yoe + math.floor(yoe / 4) - math.floor(yoe / 100))
  local mp = math.floor((5 * doy + 2) / 153)
  return (yoe + era * 400) * 12 + mp + 2
end
local this_month = month_of(math.floor(now / 86400))
local from = 'from:' .. ARGV[1]
local told = redis.call('HGET', KEYS[1], from)
if told and tonumber(ARGV[2]) <= tonumber(string.match(told, '^%d+')) then return 0 end
redis.call('HSET', KEYS[1], from, ARGV[2] .. ':' .. minute)
local names = {'requests', 'tokens', 'pages', 'refused'}
for index = 3, #ARGV, 5 do
  local at = now - tonumber(ARGV[index])
  local day = math.floor(at / 86400)
  local stamps = {['minute'] = math.floor(at / 60), ['day'] = day, ['month'] = month_of(day)}
  for period, stamp in pairs(stamps) do
    for place, name in ipairs(names) do
      local units = ARGV[index + place]
      if units ~= '0' then redis.call('HINCRBY', KEYS[1], period .. ':' .. stamp .. ':' .. name, units) end
    end
  end
end
if redis.call('HGET', KEYS[1], 'cleaned') ~= tostring(minute) then
  redis.call('HSET', KEYS[1], 'cleaned', minute)
  local oldest = {minute = minute - 1, day = math.floor(now / 86400) - 1, month = this_month - KEPT_MONTHS + 1}
  local all = redis.call('HGETALL', KEYS[1])
  for index = 1, #all, 2 do
    local period, stamp = string.match(all[index], '^(%a+):(%d+):')
    local seen = string.match(all[index], '^from:') and string.match(all[index + 1], '%d+$')
    if period and tonumber(stamp) < oldest[period] or seen and tonumber(seen) < minute - 1440 then
      redis.call('HDEL', KEYS[1], all[index])
    end
  end
end
redis.call('EXPIRE', KEYS[1], KEPT_S)
return 1
""".replace("KEPT_MONTHS", str(KEPT_MONTHS)).replace("KEPT_S", str(_KEPT_S))


class RedisUsageStore:
    """A `UsageStore` in Redis: one hash an owner. Raises: BadSettings for a bad URL."""

    shared_by = "all replicas that share Redis"

    def __init__(self, options: RedisOptions) -> None:
        self._pool, self.address = open_pool(options)
        self._prefix = options.prefix

    async def add(self, batch: Batch) -> None:
        """Each owner's part is added once, also where the answer to it was lost and the batch is told again."""
        owners: dict[str, list[Slice]] = {}
        for one in batch.slices:
            owners.setdefault(one.owner, []).append(one)
        commands = [
            ("EVAL", _ADD, 1, self._key(owner), batch.source, batch.number, *_words(slices))
            for owner, slices in owners.items()
        ]
        await self._ask_all(commands)

    async def read(self, owners: Sequence[str]) -> Mapping[str, Usage]:
        [(seconds, _), *hashes] = await self._ask_all([("TIME",), *(("HGETALL", self._key(owner)) for owner in owners)])
        return {owner: _usage(int(seconds), fields) for owner, fields in zip(owners, hashes, strict=True)}

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


def _words(slices: Sequence[Slice]) -> list[int]:
    return [word for one in slices for word in (max(0, round(one.age_s)), *one.counts)]


def _usage(now_s: int, fields: Sequence[bytes]) -> Usage:
    counted: dict[tuple[str, int], dict[str, int]] = {}
    for name, value in zip(fields[::2], fields[1::2], strict=True):
        period, _, rest = name.decode().partition(":")
        stamp, _, what = rest.partition(":")
        if what in COUNTED and stamp.isdigit():
            counted.setdefault((period, int(stamp)), {})[what] = int(value)
    return usage_of(now_s, {key: Counts(**counts) for key, counts in counted.items()})
