"""What each caller has used, in its metrics and against its quotas.

A quota a minute is a bucket that refills evenly: it holds a minute's worth, so that all of it may be used at once.
Requests are charged when they come. Tokens and pages are known later and charged then: a caller may get into debt, and
is refused until the debt is refilled. Source: the generic cell rate algorithm (ITU-T I.371), as leaky bucket as meter.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

from backend.errors import QuotaExceeded
from backend.services.callers import Caller, Quotas
from backend.telemetry import KEY_STATUSES, QUOTAS, Telemetry

Rated = Literal["requests", "tokens", "pages"]
WINDOW_S = 60.0
# Subtracted from what this process believes when it tells Redis: delays of a message must not add up to usage.
_SLACK_S = 1.0
_EXACT = 1e-6  # units; rounding errors of a sum of quotients


@dataclass(frozen=True, slots=True)
class Charge:
    """What a bucket tells the other replicas. In seconds of refilling."""

    cost_s: float  # used since the last time
    floor_s: float  # used before, as far as this process knows: Redis may have lost it


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
    ) -> None:
        self.kind, self.limit = kind, limit
        self._unit_s = WINDOW_S / limit  # to refill one unit
        self._clock, self._on_charge = clock, on_charge
        self._full_at_s = 0.0  # when all of it is there again
        self._untold_s = 0.0  # of that, what the other replicas were not told

    def charge(self, units: int) -> None:
        """Use so much, whether or not it is there."""
        cost_s = units * self._unit_s
        self._full_at_s = max(self._full_at_s, self._clock()) + cost_s
        self._untold_s += cost_s
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
        cost_s, self._untold_s = self._untold_s, 0.0
        return Charge(cost_s, max(0.0, self._refill_s() - cost_s - _SLACK_S))

    def settle(self, refill_s: float, told_at_s: float) -> None:
        """Learn how long the refill takes with what all replicas used, as of ``told_at_s`` on the clock."""
        self._full_at_s = told_at_s + refill_s + self._untold_s

    def _refill_s(self) -> float:
        refill_s = self._full_at_s - self._clock()
        return max(0.0, refill_s)


class Meter(Protocol):
    """What a caller has used."""

    def admit(self) -> None:
        """Charge one request. Raises: QuotaExceeded, and then charges nothing."""

    def require(self, *kinds: Rated) -> None:
        """Refuse a caller that has used up one of these. Raises: QuotaExceeded."""

    def charge(self, kind: Rated, units: int) -> None:
        """Count what was used. ``kind``: tokens or pages."""

    def refuse(self, error: QuotaExceeded) -> QuotaExceeded:
        """Count a refusal, and return it to be raised."""

    def count(self, status: int) -> None:
        """Count an answered request."""

    def headers(self) -> tuple[tuple[bytes, bytes], ...]:
        """The RateLimit headers of an answer; none without quotas."""


class _NoMeter:
    """The meter of callers that are not metered: those of a service without keys."""

    def admit(self) -> None: ...

    def require(self, *kinds: Rated) -> None: ...

    def charge(self, kind: Rated, units: int) -> None: ...

    def refuse(self, error: QuotaExceeded) -> QuotaExceeded:
        return error

    def count(self, status: int) -> None: ...

    def headers(self) -> tuple[tuple[bytes, bytes], ...]:
        return ()


NO_METER: Meter = _NoMeter()


class CallerMeter:
    """A `Meter` with the caller's metrics, and a bucket for each of its quotas."""

    def __init__(
        self,
        caller: Caller,
        telemetry: Telemetry,
        *,
        clock: Callable[[], float],
        on_charge: Callable[[Bucket], None],
    ) -> None:
        name = caller.name
        self._buckets = {
            kind: Bucket(kind, limit, clock=clock, on_charge=on_charge)
            for kind, limit in _limits(caller.quotas).items()
            if limit is not None
        }
        self._answers = [telemetry.key_requests_total.labels(name, status) for status in KEY_STATUSES]
        self._used = {
            "tokens": telemetry.key_tokens_total.labels(name),
            "pages": telemetry.key_pages_total.labels(name),
        }
        self._refusals = {quota: telemetry.quota_exceeded_total.labels(name, quota) for quota in QUOTAS}
        self._policy = _policy_header(self._buckets.values())

    def admit(self) -> None:
        self.require("requests")
        if bucket := self._buckets.get("requests"):
            bucket.charge(1)

    def require(self, *kinds: Rated) -> None:
        for kind in kinds:
            bucket = self._buckets.get(kind)
            if bucket is not None and (wait_s := bucket.wait_s()):
                raise self.refuse(QuotaExceeded.of_rate(kind, bucket.used, bucket.limit, wait_s))

    def charge(self, kind: Rated, units: int) -> None:
        if units:
            self._used[kind].inc(units)
            if bucket := self._buckets.get(kind):
                bucket.charge(units)

    def refuse(self, error: QuotaExceeded) -> QuotaExceeded:
        self._refusals[error.quota].inc()
        return error

    def count(self, status: int) -> None:
        self._answers[min(max(status // 100, 2), 5) - 2].inc()

    def headers(self) -> tuple[tuple[bytes, bytes], ...]:
        if not self._buckets:
            return ()
        states = []
        for kind, bucket in self._buckets.items():
            units, reset_s = bucket.left()
            states.append(f'"{kind}";r={units};t={math.ceil(reset_s)}')
        return (b"ratelimit-policy", self._policy), (b"ratelimit", ", ".join(states).encode("ascii"))


class Meters:
    """The meters of all callers. Used on the event loop only."""

    def __init__(self, telemetry: Telemetry, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._telemetry, self._clock = telemetry, clock
        self._meters: dict[str, Meter] = {}
        self._listener: Callable[[str, Bucket], None] = lambda _owner, _bucket: None

    def open(self, callers: Iterable[Caller]) -> None:
        """Begin to meter these callers; those that are metered already go on."""
        for caller in callers:
            if caller.owner not in self._meters:
                self._meters[caller.owner] = CallerMeter(
                    caller, self._telemetry, clock=self._clock, on_charge=self._teller(caller.owner)
                )

    def of(self, owner: str) -> Meter:
        """The meter of a caller, by ``Caller.owner``; one that counts nothing for callers that are not metered."""
        return self._meters.get(owner, NO_METER)

    def on_charge(self, listener: Callable[[str, Bucket], None]) -> None:
        """Have ``listener`` called after each charge, with the caller's ``owner`` and the bucket."""
        self._listener = listener

    def _teller(self, owner: str) -> Callable[[Bucket], None]:
        return lambda bucket: self._listener(owner, bucket)


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
