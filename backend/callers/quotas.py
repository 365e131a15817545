"""What each caller has used, in its metrics and against its quotas, shared among the replicas.

A quota a minute is a bucket that refills evenly: it holds a minute's worth, so that all of it may be used at once.
Requests are charged when they come. Tokens and pages are known later and charged then: a caller may get into debt, and
is refused until the debt is refilled. Source: the generic cell rate algorithm (ITU-T I.371), as leaky bucket as meter.

Each replica decides by what it knows, and tells the others at most ``every_s`` later, in the background: no request
waits for Redis. Replicas that are asked at once may together admit more than the quota before they know of each other;
that is a debt, which the caller waits for.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol, get_args

from redis.exceptions import RedisError

from backend.callers.callers import NO_METER, Caller, Meter, Quotas, Rated
from backend.errors import QuotaExceeded, Unavailable
from backend.lanes.cache.redis_client import RedisOptions, open_pool
from backend.retry import Backoff
from backend.supervision import Pusher, Supervisor
from backend.telemetry import KEY_STATUSES, QUOTAS, Telemetry, log_event

RATED: tuple[Rated, ...] = get_args(Rated)
Used = Literal["requests", "tokens", "pages", "refused"]  # requests: those that were admitted
WINDOW_S = 60.0
MAX_LABELS = 200  # callers with a name of their own in the metrics: 11 series each
OTHER_LABEL = "_other"  # no caller can have it as its name
# Subtracted from what this process believes when it tells Redis: delays of a message must not add up to usage.
_SLACK_S = 1.0
_EXACT = 1e-6  # units; rounding errors of a sum of quotients


@dataclass(frozen=True, slots=True)
class Charge:
    """What a bucket tells the other replicas. In seconds of refilling."""

    cost_s: float  # used since the last time
    floor_s: float  # used before, as far as this process knows: Redis may have lost it


class Level(Protocol):
    """How far a bucket is from being full: of this process, or of all processes of the service."""

    @property
    def full_at_s(self) -> float:
        """When all of it is there again; monotonic."""

    def add(self, now_s: float, cost_s: float) -> None:
        """Use what takes so long to refill."""

    def set(self, full_at_s: float) -> None:
        """Replace it."""


class OwnLevel:
    """A `Level` that only this process knows."""

    def __init__(self) -> None:
        self.full_at_s = 0.0

    def add(self, now_s: float, cost_s: float) -> None:
        self.full_at_s = max(self.full_at_s, now_s) + cost_s

    def set(self, full_at_s: float) -> None:
        self.full_at_s = full_at_s


class Bucket:
    """One caller's quota of one kind.

    ``on_charge`` is called after each charge, to tell the other replicas. Used on the event loop only.
    """

    def __init__(
        self,
        kind: Rated,
        limit: int,
        *,
        clock: Callable[[], float],
        on_charge: Callable[[Bucket], None] = lambda _bucket: None,
        setting: str = "",
    ) -> None:
        self.kind = kind
        self.change(limit, setting)
        self._clock, self._on_charge = clock, on_charge
        self._level: Level = OwnLevel()
        self._unreported_s = 0.0  # what the other replicas do not know of it

    def share(self, level: Level) -> None:
        """Count together with the other processes of the service; before the first charge."""
        self._level = level

    def change(self, limit: int, setting: str) -> None:
        """Have another limit. What was used stays the same part of it, in every process without a word.

        Args:
            setting: where the operator changes it, for messages.
        """
        self.limit, self.setting = limit, setting
        self._unit_s = WINDOW_S / limit  # to refill one unit

    def charge(self, units: int) -> None:
        """Use so much, whether or not it is there."""
        cost_s = units * self._unit_s
        self._level.add(self._clock(), cost_s)
        self._unreported_s += cost_s
        self._on_charge(self)

    @property
    def used(self) -> int:
        """Units that are not refilled yet; over the limit in debt."""
        return math.ceil(self._refill_s() / self._unit_s - _EXACT)

    def wait_s(self) -> float:
        """Seconds until a unit is there; 0 where one is."""
        wait_s = self._refill_s() + self._unit_s - WINDOW_S
        return wait_s if wait_s > _EXACT * self._unit_s else 0.0

    def left(self) -> tuple[int, float]:
        """Units that are there, and seconds until all are; of an empty one, until a unit is, as Retry-After says."""
        refill_s = self._refill_s()
        units = int((WINDOW_S - refill_s) / self._unit_s + _EXACT)
        return (units, refill_s) if units > 0 else (0, refill_s + self._unit_s - WINDOW_S)

    def take_charge(self) -> Charge:
        """What the other replicas do not know. If they are not reached, it is part of the next ``floor_s``."""
        cost_s, self._unreported_s = self._unreported_s, 0.0
        return Charge(cost_s, max(0.0, self._refill_s() - cost_s - _SLACK_S))

    def settle(self, refill_s: float, reported_at_s: float) -> None:
        """Learn how long the refill takes with what all replicas used, as of ``reported_at_s`` on the clock."""
        self._level.set(reported_at_s + refill_s + self._unreported_s)

    def _refill_s(self) -> float:
        refill_s = self._level.full_at_s - self._clock()
        return max(0.0, refill_s)


CountUse = Callable[[str, Used, int], None]  # of an owner, over longer than a minute; `usage.UsageLedger.add`


class CallerMeter:
    """A `Meter` with the caller's metrics, and a bucket for each of its quotas.

    Args:
        label: the caller's name in the metrics.
        open_bucket: by kind, limit and setting.
    """

    def __init__(
        self,
        caller: Caller,
        telemetry: Telemetry,
        *,
        label: str,
        open_bucket: Callable[[Rated, int, str], Bucket],
        count: CountUse,
    ) -> None:
        self._owner, self._count_use, self._open_bucket = caller.owner, count, open_bucket
        self._telemetry = telemetry
        self.rename(label)
        self._buckets: dict[Rated, Bucket] = {}
        self.change(caller.quotas)

    def rename(self, label: str) -> None:
        """Count in the metrics under another name from now on."""
        self.label, telemetry = label, self._telemetry
        self._answers = [telemetry.key_requests_total.labels(label, status) for status in KEY_STATUSES]
        self._used = {
            "tokens": telemetry.key_tokens_total.labels(label),
            "pages": telemetry.key_pages_total.labels(label),
        }
        self._refusals = {quota: telemetry.quota_exceeded_total.labels(label, quota) for quota in QUOTAS}

    def change(self, quotas: Quotas) -> None:
        """Have these quotas from the next request on; what was used of those that stay is not forgotten."""
        before, self._buckets = self._buckets, {}
        for kind, limit in _limits(quotas).items():
            if limit is not None:
                setting = quotas.setting(f"{kind}_per_minute")
                if kind in before:
                    before[kind].change(limit, setting)
                self._buckets[kind] = before.get(kind) or self._open_bucket(kind, limit, setting)
        self._policy = _policy_header(self._buckets.values())

    def admit(self) -> None:
        self.require("requests")
        self._count_use(self._owner, "requests", 1)
        if bucket := self._buckets.get("requests"):
            bucket.charge(1)

    def require(self, *kinds: Rated) -> None:
        for kind in kinds:
            bucket = self._buckets.get(kind)
            if bucket is not None and (wait_s := bucket.wait_s()):
                raise self.refuse(QuotaExceeded.of_rate(kind, bucket.used, bucket.limit, wait_s, bucket.setting))

    def charge(self, kind: Rated, units: int) -> None:
        if units:
            self._used[kind].inc(units)
            self._count_use(self._owner, kind, units)
            if bucket := self._buckets.get(kind):
                bucket.charge(units)

    def refuse(self, error: QuotaExceeded) -> QuotaExceeded:
        if not error.is_counted and error.quota in self._refusals:
            error.is_counted = True
            self._refusals[error.quota].inc()
            self._count_use(self._owner, "refused", 1)
        return error

    def count(self, status: int) -> None:
        self._answers[min(max(status // 100, 2), 5) - 2].inc()

    def buckets(self) -> Iterable[Bucket]:
        return self._buckets.values()

    def headers(self) -> tuple[tuple[bytes, bytes], ...]:
        if not self._buckets:
            return ()
        states = []
        for kind, bucket in self._buckets.items():
            units, reset_s = bucket.left()
            states.append(f'"{kind}";r={units};t={math.ceil(reset_s)}')
        return (b"ratelimit-policy", self._policy), (b"ratelimit", ", ".join(states).encode("ascii"))


class Meters:
    """The meters of all callers. Used on the event loop only.

    Args:
        count: is told what all of them use.
    """

    def __init__(
        self, telemetry: Telemetry, *, clock: Callable[[], float] = time.monotonic, count: CountUse | None = None
    ) -> None:
        self._telemetry, self._clock, self._count_use = telemetry, clock, count or (lambda _owner, _kind, _units: None)
        self._meters: dict[str, CallerMeter] = {}
        self._listener: Callable[[str, Bucket], None] = lambda _owner, _bucket: None
        self._level_of: Callable[[str, Rated], Level] = lambda _owner, _kind: OwnLevel()

    def open(self, callers: Iterable[Caller]) -> None:
        """Begin to meter these callers; those that are metered already go on, with the quotas that they have now.

        Of more than ``MAX_LABELS`` the later ones are one series in the metrics, `_other`: a series a caller would
        cost Prometheus more than it tells. Which these are depends on nothing but the order of ``callers``, so that
        all processes of the service agree, whenever they started.
        """
        for place, caller in enumerate(callers):
            label = caller.name if place < MAX_LABELS else OTHER_LABEL
            if (meter := self._meters.get(caller.owner)) is not None:
                self._rename(meter, label)
                meter.change(caller.quotas)
                continue
            self._meters[caller.owner] = CallerMeter(
                caller,
                self._telemetry,
                label=label,
                open_bucket=partial(self._open_bucket, caller.owner),
                count=self._count_use,
            )

    def replace(self, callers: Sequence[Caller]) -> None:
        """Meter these callers only. The series of those that left go, and their places are others' to take."""
        owners = {caller.owner for caller in callers}
        for owner in [owner for owner in self._meters if owner not in owners]:
            self._forget(self._meters.pop(owner).label)
        self.open(callers)

    def share(self, level_of: Callable[[str, Rated], Level]) -> None:
        """Count together with the other processes of the service; before the first request.

        Args:
            level_of: by a caller's owner and the kind of quota.
        """
        self._level_of = level_of
        for owner, meter in self._meters.items():
            for bucket in meter.buckets():
                bucket.share(level_of(owner, bucket.kind))

    def of(self, owner: str) -> Meter:
        """The meter of a caller, by ``Caller.owner``; one that counts nothing for callers that are not metered."""
        return self._meters.get(owner, NO_METER)

    def buckets(self, owner: str) -> tuple[Bucket, ...]:
        """The quotas a minute of a caller; none where it has none, or is not metered."""
        meter = self._meters.get(owner)
        return tuple(meter.buckets()) if meter is not None else ()

    def on_charge(self, listener: Callable[[str, Bucket], None]) -> None:
        """Have ``listener`` called after each charge, with the caller's ``owner`` and the bucket."""
        self._listener = listener

    def _open_bucket(self, owner: str, kind: Rated, limit: int, setting: str) -> Bucket:
        bucket = Bucket(
            kind, limit, clock=self._clock, on_charge=lambda bucket: self._listener(owner, bucket), setting=setting
        )
        bucket.share(self._level_of(owner, kind))
        return bucket

    def _rename(self, meter: CallerMeter, label: str) -> None:
        if (before := meter.label) != label:
            meter.rename(label)
            self._forget(before)

    def _forget(self, label: str) -> None:
        if label == OTHER_LABEL:
            return
        for status in KEY_STATUSES:
            self._telemetry.key_requests_total.remove(label, status)
        self._telemetry.key_tokens_total.remove(label)
        self._telemetry.key_pages_total.remove(label)
        for quota in QUOTAS:
            self._telemetry.quota_exceeded_total.remove(label, quota)


def _limits(quotas: Quotas) -> dict[Rated, int | None]:
    return {
        "requests": quotas.requests_per_minute,
        "tokens": quotas.tokens_per_minute,
        "pages": quotas.pages_per_minute,
    }


def _policy_header(buckets: Iterable[Bucket]) -> bytes:
    """``RateLimit-Policy``, as draft-ietf-httpapi-ratelimit-headers-10 writes it; its unit is requests unless told."""
    units = {"requests": "", "tokens": ';qu="tokens"', "pages": ';qu="pages"'}
    return ", ".join(f'"{one.kind}";q={one.limit};w={WINDOW_S:.0f}{units[one.kind]}' for one in buckets).encode("ascii")


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
