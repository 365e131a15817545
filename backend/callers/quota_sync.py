"""Shares what callers have used among the replicas, in the background: no request waits for Redis.

Each replica decides by what it knows, and tells the others at most ``every_s`` later. Replicas that are asked at once
may together admit more than the quota before they know of each other; that is a debt, which the caller waits for.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from redis.exceptions import RedisError

from backend.callers.quotas import Bucket, Charge, Meters
from backend.errors import Unavailable
from backend.lanes.cache.redis_client import RedisOptions, open_pool
from backend.retry import Backoff
from backend.supervision import Pusher, Supervisor
from backend.telemetry import log_event

_EVERY_S = 0.1
_CLOSE_S = 1.0  # for the last charges; those not told then are forgotten with this process
_RETRY = Backoff(0.5, 10.0)
_PER_S = 1_000_000  # Redis counts in microseconds of its own clock, so that those of the replicas may differ
_log = logging.getLogger(__name__)

# KEYS: the owner's hash: when each quota is full again, and when it was written. ARGV, for each quota: its name,
# cost_us, floor_us.
_ADD = """
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local full, rows = {}, redis.call('HGETALL', KEYS[1])
for index = 1, #rows, 2 do full[rows[index]] = tonumber(rows[index + 1]) end
local back = math.max(0, (full.at or now) - now)  -- a clock that was set back makes nobody wait
full.at = nil
for kind, when in pairs(full) do full[kind] = when - back end
for index = 1, #ARGV, 3 do
  full[ARGV[index]] = math.max(full[ARGV[index]] or 0, now + ARGV[index + 2]) + ARGV[index + 1]
end
local last = now
for kind, when in pairs(full) do
  redis.call('HSET', KEYS[1], kind, string.format('%.0f', when))
  last = math.max(last, when)
end
redis.call('HSET', KEYS[1], 'at', string.format('%.0f', now))
redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', last / 1000 + 1000))
local refills = {}
for index = 1, #ARGV, 3 do refills[#refills + 1] = string.format('%.0f', full[ARGV[index]] - now) end
return refills
"""


class RedisQuotas:
    """What all replicas know of the callers' quotas: one hash an owner, which expires when all is refilled.

    Raises: BadSettings for a bad URL.
    """

    def __init__(self, options: RedisOptions) -> None:
        self._pool, self.address = open_pool(options)
        self._prefix = options.prefix

    async def add(self, owner: str, charges: Sequence[tuple[str, Charge]]) -> list[float]:
        """Add charges by their quota's name, and return for each the seconds until that quota is full again.

        A command that was executed although its reply was lost is not counted twice. Raises: Unavailable.
        """
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


class QuotaSync:
    """Tells the replicas' shared quotas what this process charged, and each bucket what the others did.

    While they are away, each replica goes on with what it counts itself. Used on the event loop only.
    """

    def __init__(
        self,
        meters: Meters,
        shared: RedisQuotas,
        *,
        every_s: float = _EVERY_S,
        close_s: float = _CLOSE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._shared, self._close_s, self._clock = shared, close_s, clock
        self._charged: dict[str, dict[str, Bucket]] = {}  # by owner and kind
        self._pusher = Pusher(self.push, every_s=every_s, retry=_RETRY)
        self._is_away = False
        meters.on_charge(self._note)

    def start(self, supervisor: Supervisor) -> None:
        self._pusher.start(supervisor, "share_quotas")

    async def close(self) -> None:
        """Tell what is not told yet, once and within ``close_s``, and stop."""
        await self._pusher.close(self._close_s)
        await self._shared.close()

    async def push(self) -> bool:
        """Tell everything that was charged and not told yet; whether the shared quotas were reached."""
        charged, self._charged = self._charged, {}
        if not charged:
            return True
        try:
            for owner, buckets in charged.items():
                reported_at_s = self._clock()
                charges = [(kind, bucket.take_charge()) for kind, bucket in buckets.items()]
                refills_s = await self._shared.add(owner, charges)
                for bucket, refill_s in zip(buckets.values(), refills_s, strict=True):
                    bucket.settle(refill_s, reported_at_s)
        except Unavailable as error:
            self._note_state(away=True, reason=str(error))
            return False
        self._note_state(away=False)
        return True

    def _note(self, owner: str, bucket: Bucket) -> None:
        self._charged.setdefault(owner, {})[bucket.kind] = bucket
        self._pusher.wake()

    def _note_state(self, *, away: bool, reason: str = "") -> None:
        if away and not self._is_away:
            log_event(_log, logging.WARNING, "quotas are counted by each replica for itself", reason=reason)
        elif self._is_away and not away:
            log_event(_log, logging.INFO, "quotas are shared by the replicas again")
        self._is_away = away
