"""Quotas that replicas share: no request waits for it, nothing is forgotten when it is away, the whole is the quota."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from backend.callers.callers import Caller, Quotas
from backend.callers.quota_sync import QuotaSync
from backend.callers.quotas import Charge, Meter, Meters
from backend.errors import QuotaExceeded, Unavailable
from backend.telemetry import Telemetry
from tests.fakes import TEST_TIMEOUT_S, ManualClock

MINUTE = 60.0


@dataclass
class FakeUsage:
    """What `RedisUsage` does, in memory; away where ``away`` is set."""

    clock: ManualClock
    full_at_s: dict[tuple[str, str], float] = field(default_factory=dict)
    away: bool = False
    added: asyncio.Event = field(default_factory=asyncio.Event)
    silent: bool = False  # answers nothing until it is closed
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    closed: bool = False

    async def add(self, owner: str, charges: Sequence[tuple[str, Charge]]) -> list[float]:
        self.added.set()
        if self.silent:
            await self.closing.wait()
            raise Unavailable("closed")
        if self.away:
            raise Unavailable("away")
        now_s = self.clock()
        for kind, charge in charges:
            full_at_s = max(self.full_at_s.get((owner, kind), 0.0), now_s + charge.floor_s) + charge.cost_s
            self.full_at_s[owner, kind] = full_at_s
        return [self.full_at_s[owner, kind] - now_s for kind, _ in charges]

    async def close(self) -> None:
        self.closed = True
        self.closing.set()


def replica(clock: ManualClock, shared: FakeUsage, limit: int = 10) -> tuple[Meter, QuotaSync]:
    meters = Meters(Telemetry(), clock=clock)
    meters.open([Caller("team", "owner", quotas=Quotas(requests_per_minute=limit))])
    return meters.of("owner"), QuotaSync(meters, shared, every_s=0.0, clock=clock)


def admitted(meter: Meter, most: int) -> int:
    for count in range(most):
        try:
            meter.admit()
        except QuotaExceeded:
            return count
    return most


async def test_replicas_share_a_quota():
    """What one admitted, the other knows as soon as it asks."""
    clock = ManualClock()
    shared = FakeUsage(clock)
    (one, first), (two, second) = replica(clock, shared), replica(clock, shared)

    assert 6 == admitted(one, 6)
    await first.push()
    assert 1 == admitted(two, 1)
    await second.push()
    assert 3 == admitted(two, 10)


async def test_more_than_the_quota_is_a_debt():
    """Replicas that did not know of each other admit too much once; the caller then waits for all of it."""
    clock = ManualClock()
    shared = FakeUsage(clock)
    (one, first), (two, second) = replica(clock, shared), replica(clock, shared)
    assert 20 == admitted(one, 10) + admitted(two, 10)
    for _ in range(2):
        await first.push()
        await second.push()

    clock.advance(MINUTE)
    assert 0 == admitted(two, 1)
    clock.advance(MINUTE / 10)
    assert 1 == admitted(two, 1)


async def test_shared_usage_is_away(caplog: pytest.LogCaptureFixture):
    """Each replica goes on by itself, says so once, and what it counted is known to the others again later."""
    caplog.set_level(logging.INFO)
    clock = ManualClock()
    shared = FakeUsage(clock, away=True)
    (one, first), (two, second) = replica(clock, shared, 600), replica(clock, shared, 600)
    assert 600 == admitted(one, 700)
    assert not await first.push()
    clock.advance(10.0)
    assert 100 == admitted(one, 700)
    assert not await first.push()
    shared.away = False
    clock.advance(1.0)
    assert 10 == admitted(one, 700)
    assert await first.push()
    assert 1 == admitted(two, 1)
    await second.push()

    assert 19 >= admitted(two, 700)  # as much as is lost in the second that delays may take
    assert 1 == caplog.text.count("each replica for itself")
    assert 1 == caplog.text.count("shared by the replicas again")


async def test_shared_usage_restarts_empty():
    """The next charge restores what the replica knows."""
    clock = ManualClock()
    shared = FakeUsage(clock)
    one, first = replica(clock, shared, 600)
    assert 500 == admitted(one, 500)
    await first.push()
    shared.full_at_s.clear()
    assert 1 == admitted(one, 1)
    await first.push()

    two, second = replica(clock, shared, 600)
    assert 1 == admitted(two, 1)
    await second.push()
    assert 98 + 10 >= admitted(two, 700)


async def test_delays_are_no_usage():
    """However often replicas talk, and however late answers come, nothing is used but what was admitted."""
    clock = ManualClock()

    class SlowUsage(FakeUsage):
        async def add(self, owner: str, charges: Sequence[tuple[str, Charge]]) -> list[float]:
            clock.advance(0.02)
            refills_s = await super().add(owner, charges)
            clock.advance(0.03)
            return refills_s

    one, first = replica(clock, SlowUsage(clock), 6000)
    for _ in range(1000):  # 1,000 of 6,000 a minute, in 50 seconds: what is used is refilled before the next
        one.admit()
        await first.push()

    assert 5900 <= admitted(one, 6000)


async def test_the_task_pushes_by_itself():
    """Charges reach the others without anybody asking; closing tells the rest."""
    clock = ManualClock()
    shared = FakeUsage(clock)
    one, first = replica(clock, shared)
    first.start()
    one.admit()
    async with asyncio.timeout(TEST_TIMEOUT_S):
        await shared.added.wait()
    one.admit()
    await first.close()

    assert pytest.approx(2 * MINUTE / 10) == shared.full_at_s["owner", "requests"] - clock()
    assert shared.closed


async def test_closing_does_not_wait_for_a_silent_shared_usage():
    """The last charges have ``close_s``; then the connections are closed, which ends what waits for an answer."""
    clock = ManualClock()
    shared = FakeUsage(clock, silent=True)
    meters = Meters(Telemetry(), clock=clock)
    meters.open([Caller("team", "owner", quotas=Quotas(requests_per_minute=10))])
    sync = QuotaSync(meters, shared, every_s=0.0, close_s=0.0, clock=clock)
    sync.start()
    meters.of("owner").admit()
    async with asyncio.timeout(TEST_TIMEOUT_S):
        await shared.added.wait()
        meters.of("owner").admit()
        await sync.close()

    assert shared.closed


async def test_nothing_is_sent_without_charges():
    """An idle service asks Redis nothing."""
    clock = ManualClock()
    shared = FakeUsage(clock)
    _, first = replica(clock, shared)

    assert await first.push()
    assert not shared.added.is_set()
