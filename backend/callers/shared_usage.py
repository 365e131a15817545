"""The callers' usage in Redis, shared by all replicas. Knows no quotas: only when each is full again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from redis.exceptions import RedisError

from backend.errors import Unavailable
from backend.lanes.cache.redis_client import RedisOptions, open_pool

_PER_S = 1_000_000  # Redis counts in microseconds of its own clock, so that those of the replicas may differ

# KEYS: the owner's hash. ARGV, for each quota: its name, cost_us, floor_us. The hash holds when each is full again.
_ADD = """
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local refills, last = {}, now
for index = 1, #ARGV, 3 do
  local full = tonumber(redis.call('HGET', KEYS[1], ARGV[index]) or '0')
  full = math.max(full, now + ARGV[index + 2]) + ARGV[index + 1]
  redis.call('HSET', KEYS[1], ARGV[index], string.format('%.0f', full))
  refills[#refills + 1] = string.format('%.0f', full - now)
  last = math.max(last, full)
end
redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', last / 1000 + 1000))
return refills
"""


class Usage(Protocol):
    """`services.quotas.Charge`."""

    @property
    def cost_s(self) -> float: ...

    @property
    def floor_s(self) -> float: ...


class RedisUsage:
    """`services.quota_sync.SharedUsage` in Redis: one hash an owner, which expires when all is refilled.

    Raises: BadSettings for a bad URL.
    """

    def __init__(self, options: RedisOptions) -> None:
        self._pool, self.address = open_pool(options)
        self._prefix = options.prefix

    async def add(self, owner: str, charges: Sequence[tuple[str, Usage]]) -> list[float]:
        """See `SharedUsage.add`. A command that was executed although its reply was lost is not counted twice."""
        arguments = [
            word
            for kind, charge in charges
            for word in (kind, round(charge.cost_s * _PER_S), round(charge.floor_s * _PER_S))
        ]
        try:
            replies = await self._pool.ask(("EVAL", _ADD, 1, f"{self._prefix}:usage:{owner}", *arguments))
            return [int(refill) / _PER_S for refill in replies]
        except (RedisError, OSError, TimeoutError, TypeError, ValueError) as error:
            raise Unavailable(f"{self.address} does not count ({type(error).__name__})") from error

    async def close(self) -> None:
        """Close the connections; what waits for a reply raises Unavailable."""
        await self._pool.close()
