"""Usage by minute, day and month: counted once, told again where an answer was lost, and shown to whom it belongs."""

import asyncio
import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from backend.callers.callers import LiveKeys, Quotas, read_key_ring
from backend.callers.quotas import Meters
from backend.callers.usage import (
    Batch,
    CallerUsage,
    Counts,
    RedisUsageStore,
    Slice,
    Stamps,
    UsageDatabase,
    UsageKeeper,
    UsageLedger,
    UsageService,
    UsageStore,
)
from backend.errors import NotFound, Unavailable
from backend.lanes.cache.redis_client import RedisOptions
from backend.telemetry import Telemetry
from tests.fakes import ManualClock
from tests.redis_server import RedisServer


class LossyStore:
    """Keeps batches in memory; while ``answers`` is false it keeps them and its answer is lost, as Redis' may be."""

    shared_by = "this test"

    def __init__(self) -> None:
        self.answers, self.batches, self.closed = True, dict[int, Batch](), False

    async def add(self, batch: Batch) -> None:
        self.batches[batch.number] = batch
        if not self.answers:
            raise Unavailable("lost")

    async def read(self, owners: Sequence[str]) -> Mapping[str, CallerUsage]:
        sums = {owner: Counts(*map(sum, zip(*self.of(owner), Counts(), strict=True))) for owner in owners}
        return {owner: CallerUsage(0.0, counts, counts, counts) for owner, counts in sums.items()}

    def of(self, owner: str) -> list[Counts]:
        return [one.counts for batch in self.batches.values() for one in batch.slices if one.owner == owner]

    async def close(self) -> None:
        self.closed = True


async def test_a_batch_is_told_again_under_its_number():
    """What was counted meanwhile comes in the next one, so that nothing is counted twice or lost."""
    ledger, store = UsageLedger(clock=ManualClock(100.0)), LossyStore()
    keeper = UsageKeeper(ledger, store)
    ledger.add("a", "tokens", 5)
    store.answers = False
    assert not await keeper.flush()
    ledger.add("a", "tokens", 7)
    assert not await keeper.flush()
    assert keeper.degraded()
    store.answers = True

    assert await keeper.flush()
    assert [1, 2] == list(store.batches)
    assert [5, 7] == [counts.tokens for counts in store.of("a")]
    assert () == keeper.degraded()


async def test_closing_tells_what_is_left():
    """Within its time, and then lets go."""
    ledger, store = UsageLedger(clock=ManualClock(100.0)), LossyStore()
    keeper = UsageKeeper(ledger, store)
    ledger.add("a", "requests", 1)
    await keeper.close()

    assert [1] == [counts.requests for counts in store.of("a")]
    assert store.closed


def test_slices():
    """A second each, with their age; while the store is away a quarter of an hour, so that a day is not a million."""
    clock = ManualClock(1800.25)
    ledger = UsageLedger(clock=clock, now_s=clock)
    for _ in range(3):
        ledger.add("a", "requests", 1)
    clock.advance(2.0)
    ledger.add("a", "pages", 4)
    first = ledger.take()
    ledger.slice_every(900)
    for _ in range(1700):
        ledger.add("a", "requests", 1)
        clock.advance(1.0)

    assert [(1.75, Counts(requests=3)), (0.0, Counts(pages=4))] == [(one.age_s, one.counts) for one in first]
    assert [898, 802] == [one.counts.requests for one in ledger.take()]
    assert () == ledger.take()


def test_what_a_worker_tells_is_counted_at_its_time():
    """By the age of its slices: its clock need not be ours."""
    clock = ManualClock(1000.0)
    ledger = UsageLedger(clock=clock, now_s=lambda: 5000.5)
    ledger.merge([Slice("a", 30.0, Counts(tokens=5, refused=1))])

    assert (Slice("a", 30.0, Counts(tokens=5, refused=1)),) == ledger.take()


@pytest.mark.parametrize("skew_s", [-300.0, 0.0, 300.0])
async def test_an_outage_over_midnight(tmp_path: Path, skew_s: float):
    """Each day gets what was used in it, whatever this machine's uptime is, and though the store's clock differs."""
    midnight_s, away_s = datetime(2027, 3, 1, tzinfo=UTC).timestamp(), 1999.5
    clock = ManualClock(777.7)
    ledger = UsageLedger(clock=clock, now_s=lambda: midnight_s - away_s + clock() - 777.7)
    path = tmp_path / "usage.db"
    store = UsageDatabase(path, now_s=lambda: midnight_s - away_s + clock() - 777.7 + skew_s)
    keeper = UsageKeeper(ledger, store)
    path.write_text("no database " * 100)
    for second in range(4000):
        ledger.add("a", "requests", 1)
        clock.advance(1.0)
        if second == 500:
            assert not await keeper.flush()
    path.unlink()

    assert await keeper.flush()
    used = (await store.read(["a"]))["a"]
    assert (2000, 2000) == (used.day.requests, used.previous_month.requests)


@pytest.fixture(params=["sqlite", "redis"])
async def store(request: pytest.FixtureRequest, tmp_path: Path):
    if request.param == "sqlite":
        yield UsageDatabase(tmp_path / "state" / "usage.db")
        return
    server = request.getfixturevalue("redis_server")
    opened = RedisUsageStore(RedisOptions(server.url, prefix="usage-test"))
    server.client.delete(*[f"usage-test:used:{owner}" for owner in ("a", "b", "old")])
    yield opened
    await opened.close()


async def test_stores_add_up(store: UsageStore):
    """By minute, day and month; a second process's batches too, and nobody else's."""
    for source, number in (("p", 1), ("p", 2), ("q", 1)):
        await store.add(Batch(source, number, (Slice("a", 0.0, Counts(1, 10, 2, 3)), Slice("b", 0.0, Counts(5)))))
    used = await store.read(["a", "b", "c"])

    assert [Counts(3, 30, 6, 9), Counts(15), Counts()] == [used[owner].month for owner in ("a", "b", "c")]
    assert Counts(3, 30, 6, 9) == used["a"].day


async def test_slices_come_to_their_time(store: UsageStore):
    """What was used two months ago, an hour past yesterday, and now; as long ago as it was told late."""
    now_s = (await store.read(["a"]))["a"].now_s
    moment = datetime.fromtimestamp(now_s, UTC)
    month_s = moment.replace(day=1, hour=0, minute=0, second=0, microsecond=0).timestamp()
    in_previous = now_s - month_s + 3600.0
    await store.add(Batch("p", 1, (Slice("a", 0.0, Counts(1)), Slice("a", in_previous, Counts(2)))))
    used = (await store.read(["a"]))["a"]

    assert (Counts(1), Counts(2)) == (used.month, used.previous_month)
    assert Counts(1) == used.day


async def test_what_is_told_twice_counts_once(store: UsageStore):
    """The answer to the first may have been lost; an earlier batch that comes late is old news."""
    for number in (1, 1, 2, 2, 1):
        await store.add(Batch("p", number, (Slice("a", 0.0, Counts(tokens=number)),)))
    used = await store.read(["a"])

    assert Counts(tokens=3) == used["a"].day


async def test_a_flush_that_is_cancelled_counts_once(tmp_path: Path):
    """Its transaction goes on in a thread; the drain cancels requests of GET /v1/usage so, and flushes once more."""
    ledger, entered, going_on = UsageLedger(), asyncio.Event(), threading.Event()
    loop, times = asyncio.get_running_loop(), []

    def now_s() -> float:  # the store asks for the time when it begins
        if not times:
            loop.call_soon_threadsafe(entered.set)
            going_on.wait(60.0)
        times.append(1.8e9)
        return times[-1]

    store = UsageDatabase(tmp_path / "usage.db", now_s=now_s)
    keeper = UsageKeeper(ledger, store)
    ledger.add("a", "tokens", 100)
    asked = asyncio.create_task(keeper.flush())
    await entered.wait()
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    going_on.set()

    assert await keeper.flush()
    async with asyncio.timeout(60.0):
        await loop.shutdown_default_executor()  # the first transaction has ended
    assert 100 == UsageDatabase(tmp_path / "usage.db", now_s=lambda: 1.8e9)._read(["a"])["a"].day.tokens


async def test_an_owner_that_the_first_report_did_not_reach(store: UsageStore):
    """Redis may have taken a part of it although the answer was lost; the rest is counted then."""
    await store.add(Batch("p", 1, (Slice("a", 0.0, Counts(1)),)))
    if isinstance(store, RedisUsageStore):
        await store.add(Batch("p", 1, (Slice("a", 0.0, Counts(1)), Slice("b", 0.0, Counts(1)))))
        assert Counts(1) == (await store.read(["b"]))["b"].month

    assert Counts(1) == (await store.read(["a"]))["a"].month


async def test_old_counts_are_forgotten(redis_server: RedisServer):
    """Minutes and days that nobody asks for, months after a year, and processes that ended a day ago."""
    store, now = RedisUsageStore(RedisOptions(redis_server.url)), Stamps.at(redis_server.client.time()[0])
    old = {f"minute:{now.minute - 2}:tokens": 1, f"day:{now.day - 2}:tokens": 1, f"month:{now.month - 13}:tokens": 1}
    kept = {f"day:{now.day - 1}:tokens": 1, f"month:{now.month - 12}:tokens": 1}
    redis_server.client.hset("financia:used:a", mapping={**old, **kept, "from:gone": f"7:{now.minute - 1500}"})
    await store.add(Batch("p", 1, (Slice("a", 0.0, Counts(1)),)))
    fields = {name.decode() for name in redis_server.client.hkeys("financia:used:a")}
    await store.close()

    assert kept.keys() <= fields
    assert not fields & {*old, "from:gone"}


async def test_a_store_that_is_away(tmp_path: Path, redis_server):
    """Says so; nobody is told a wrong number."""
    broken = tmp_path / "usage.db"
    broken.write_text("no database " * 100)
    refused = RedisUsageStore(RedisOptions("redis://127.0.0.1:1/0"))
    for store in (UsageDatabase(broken), refused):
        with pytest.raises(Unavailable):
            await store.read(["a"])
        with pytest.raises(Unavailable):
            await store.add(Batch("p", 1, (Slice("a", 0.0, Counts(1)),)))
    await refused.close()


async def test_who_sees_what():
    """A caller itself; an admin all, or one by its name; nobody learns of others."""
    ring = read_key_ring(("team=one", "other=two"), ("ops=three",), Quotas(tokens_per_minute=10))
    ledger = UsageLedger(clock=ManualClock(10.0))
    meters = Meters(Telemetry(), clock=ManualClock(10.0), count=ledger.add)
    meters.open(ring.callers)
    service = UsageService(LiveKeys(ring), meters, UsageKeeper(ledger, LossyStore()))
    team, other, ops = ring.callers
    meters.of(team.owner).admit()
    meters.of(team.owner).charge("tokens", 15)
    [own], everybody = await service.of(team), await service.of(ops)

    assert ("team", Counts(1, 15)) == (own.caller.name, own.usage.day)
    assert [("tokens", 10, 15)] == [(bucket.kind, bucket.limit, bucket.used) for bucket in own.buckets]
    assert ["team", "other", "ops"] == [one.caller.name for one in everybody]
    assert ["other"] == [one.caller.name for one in await service.of(ops, "other")]
    for caller, name in ((team, "other"), (ops, "nobody"), (other, "ops")):
        with pytest.raises(NotFound):
            await service.of(caller, name)
