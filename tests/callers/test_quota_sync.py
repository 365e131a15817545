"""Quotas that replicas share: no request waits for it, nothing is forgotten when it is away, the whole is the quota."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from backend.callers.callers import Caller, Meter, Quotas
from backend.callers.quotas import Charge, Meters, QuotaSync, RedisQuotas
from backend.errors import BadSettings, QuotaExceeded, Unavailable
from backend.lanes.cache.redis_client import RedisOptions
from backend.supervision import Supervisor
from backend.telemetry import Telemetry
from tests.fakes import TEST_TIMEOUT_S, ManualClock
from tests.redis_server import RedisServer

MINUTE = 60.0


@dataclass
class FakeQuotas:
    """What `RedisQuotas` does, in memory; away where ``away`` is set."""

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


def replica(clock: ManualClock, shared: FakeQuotas, limit: int = 10) -> tuple[Meter, QuotaSync]:
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
    shared = FakeQuotas(clock)
    (one, first), (two, second) = replica(clock, shared), replica(clock, shared)

    assert 6 == admitted(one, 6)
    await first.push()
    assert 1 == admitted(two, 1)
    await second.push()
    assert 3 == admitted(two, 10)


async def test_more_than_the_quota_is_a_debt():
    """Replicas that did not know of each other admit too much once; the caller then waits for all of it."""
    clock = ManualClock()
    shared = FakeQuotas(clock)
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
    shared = FakeQuotas(clock, away=True)
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
    shared = FakeQuotas(clock)
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

    class SlowQuotas(FakeQuotas):
        async def add(self, owner: str, charges: Sequence[tuple[str, Charge]]) -> list[float]:
            clock.advance(0.02)
            refills_s = await super().add(owner, charges)
            clock.advance(0.03)
            return refills_s

    one, first = replica(clock, SlowQuotas(clock), 6000)
    for _ in range(1000):  # 1,000 of 6,000 a minute, in 50 seconds: what is used is refilled before the next
        one.admit()
        await first.push()

    assert 5900 <= admitted(one, 6000)


async def test_the_task_pushes_by_itself():
    """Charges reach the others without anybody asking; closing tells the rest."""
    clock = ManualClock()
    shared = FakeQuotas(clock)
    one, first = replica(clock, shared)
    first.start(Supervisor(Telemetry()))
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
    shared = FakeQuotas(clock, silent=True)
    meters = Meters(Telemetry(), clock=clock)
    meters.open([Caller("team", "owner", quotas=Quotas(requests_per_minute=10))])
    sync = QuotaSync(meters, shared, every_s=0.0, close_s=0.0, clock=clock)
    sync.start(Supervisor(Telemetry()))
    meters.of("owner").admit()
    async with asyncio.timeout(TEST_TIMEOUT_S):
        await shared.added.wait()
        meters.of("owner").admit()
        await sync.close()

    assert shared.closed


async def test_a_fault_that_nobody_expects_is_counted_and_survived():
    """The task was its own: it died in silence, and replicas no longer shared."""

    class Broken(FakeQuotas):
        async def add(self, owner: str, charges: Sequence[tuple[str, Charge]]) -> list[float]:
            if not self.added.is_set():
                self.added.set()
                raise KeyError(owner)
            self.closing.set()
            return await super().add(owner, charges)

    clock, telemetry = ManualClock(), Telemetry()
    shared = Broken(clock)
    one, first = replica(clock, shared)
    first.start(Supervisor(telemetry, sleep=lambda _seconds: asyncio.sleep(0)))
    one.admit()
    async with asyncio.timeout(TEST_TIMEOUT_S):
        await shared.added.wait()
        one.admit()
        await shared.closing.wait()

    task = {"task": "share_quotas"}
    assert 1 == telemetry.registry.get_sample_value("financia_background_failures_total", task)
    await first.close()


async def test_nothing_is_sent_without_charges():
    """An idle service asks Redis nothing."""
    clock = ManualClock()
    shared = FakeQuotas(clock)
    _, first = replica(clock, shared)

    assert await first.push()
    assert not shared.added.is_set()


@pytest.fixture
async def quotas(redis_server: RedisServer):
    quotas = RedisQuotas(RedisOptions(redis_server.url))
    yield quotas
    await quotas.close()


async def test_charges_add_up(quotas: RedisQuotas, redis_server: RedisServer):
    """Over replicas; each quota by itself, each owner by itself."""
    other = RedisQuotas(RedisOptions(redis_server.url))
    assert pytest.approx([2000.0, 300.0], abs=5.0) == await quotas.add(
        "team", [("requests", Charge(2000.0, 0.0)), ("tokens", Charge(300.0, 0.0))]
    )
    assert pytest.approx([5000.0], abs=60.0) == await other.add("team", [("requests", Charge(3000.0, 0.0))])
    assert pytest.approx([1.5], abs=0.01) == await other.add("another", [("requests", Charge(1.5, 0.0))])
    await other.close()


async def test_a_floor_restores_what_redis_lost(quotas: RedisQuotas):
    """It is what the replica knows of before; where Redis knows of more, it changes nothing."""
    assert pytest.approx([4100.0], abs=5.0) == await quotas.add("team", [("pages", Charge(100.0, 4000.0))])
    assert pytest.approx([4200.0], abs=60.0) == await quotas.add("team", [("pages", Charge(100.0, 500.0))])


async def test_a_clock_that_was_set_back(quotas: RedisQuotas, redis_server: RedisServer):
    """An hour: nobody waits for it. What was used stays used, of every quota."""
    seconds, micros = redis_server.client.time()
    later_us = (seconds + 3600) * 1_000_000 + micros
    full = {"requests": later_us + 30_000_000, "tokens": later_us + 50_000_000, "at": later_us}
    redis_server.client.hset("financia:usage:team", mapping=full)

    assert pytest.approx([31.0], abs=2.0) == await quotas.add("team", [("requests", Charge(1.0, 0.0))])
    assert pytest.approx([51.0], abs=2.0) == await quotas.add("team", [("tokens", Charge(1.0, 0.0))])


async def test_keys_expire(quotas: RedisQuotas, redis_server: RedisServer):
    """Nothing stays for ever, and no key names a caller's key."""
    await quotas.add("digest", [("requests", Charge(2000.0, 0.0)), ("tokens", Charge(10.0, 0.0))])
    [key] = redis_server.client.keys("*")

    assert b"financia:usage:digest" == key
    assert 1900 < redis_server.client.ttl(key) <= 2001


async def test_redis_is_away(quotas: RedisQuotas, redis_server: RedisServer):
    """It is said, and without the password."""
    redis_server.kill()

    with pytest.raises(Unavailable):
        await quotas.add("team", [("requests", Charge(1.0, 0.0))])


async def test_a_foreign_value(quotas: RedisQuotas, redis_server: RedisServer):
    """A key of another kind counts as Redis being away."""
    redis_server.client.set("financia:usage:team", "something else")

    with pytest.raises(Unavailable, match="ResponseError"):
        await quotas.add("team", [("requests", Charge(1.0, 0.0))])


def test_a_bad_address():
    """It stops the start."""
    with pytest.raises(BadSettings, match="REDIS_URL"):
        RedisQuotas(RedisOptions("redis://:pass/word@host"))
