"""Memory in front, one question behind, and counts kept once a request."""

from __future__ import annotations

import pytest

from backend.cache.memory_tier import MemoryCache
from backend.cache.tiered import TieredCache
from backend.telemetry import Telemetry
from tests.cache.samples import content, contents, key, value


class DictRemote:
    """A shared tier in a dictionary that remembers what it was asked."""

    def __init__(self, *numbers):
        self.kept = {key(number): value(number) for number in numbers}
        self.asked = []
        self.calls = []

    async def get_many(self, keys):
        self.asked.append(list(keys))
        return [self.kept.get(each) for each in keys]

    def put_many(self, keys, values):
        self.kept.update(zip(keys, values, strict=True))

    async def start(self):
        self.calls.append("start")

    async def close(self):
        self.calls.append("close")

    def status(self):
        return None


@pytest.fixture
def telemetry():
    return Telemetry()


def tiered(telemetry, remote=None, limit_bytes=2**20):
    return TieredCache(MemoryCache(limit_bytes), remote, telemetry)


def counted(telemetry):
    """Memory hits, Redis hits, misses."""
    sample = telemetry.registry.get_sample_value
    hits = [sample("financia_cache_hits_total", {"tier": tier}) for tier in ("memory", "redis")]
    return (*hits, sample("financia_cache_misses_total"))


async def test_what_memory_lacks_is_asked_in_one_question(telemetry):
    """Hits come from memory; the rest is one question, in order, and each answer finds its place."""
    remote = DictRemote(3)
    cache = tiered(telemetry, remote)
    cache.store([key(1), key(2)], [value(1), value(2)])
    found = await cache.lookup([key(3), key(1), key(4), key(2)])

    assert contents([value(3), value(1), None, value(2)]) == contents(found)
    assert [[key(3), key(4)]] == remote.asked
    assert (2, 1, 1) == counted(telemetry)


async def test_remote_hits_are_kept_in_memory(telemetry):
    """A value fetched once is local from then on, bit for bit."""
    remote = DictRemote(1)
    cache = tiered(telemetry, remote)
    first = await cache.lookup([key(1)])

    assert contents(first) == contents(cache.lookup_local([key(1)]))
    assert contents(first) == contents(await cache.lookup([key(1)]))
    assert 1 == len(remote.asked)


async def test_a_local_look_up_is_not_a_miss(telemetry):
    """Looking in memory first and asking for the rest counts each text once."""
    cache = tiered(telemetry)
    cache.store([key(1)], [value(1)])
    found = cache.lookup_local([key(1), key(2)])
    await cache.lookup([key(2)])

    assert [content(value(1)), None] == contents(found)
    assert (1, 0, 1) == counted(telemetry)


async def test_memory_hits_ask_nobody(telemetry):
    """A request that memory can answer never reaches the shared tier."""
    remote = DictRemote()
    cache = tiered(telemetry, remote)
    cache.store([key(1)], [value(1)])

    assert [content(value(1))] == contents(await cache.lookup([key(1)]))
    assert [] == await cache.lookup([])
    assert [] == remote.asked


async def test_both_tiers_get_values_of_their_own(telemetry):
    """What is stored cannot be changed by whoever computed it."""
    remote = DictRemote()
    cache = tiered(telemetry, remote)
    computed = value(1)
    computed.vector.flags.writeable = True
    cache.store([key(1)], [computed])
    computed.vector[:] = 0

    assert content(value(1)) == content(cache.lookup_local([key(1)])[0])
    assert content(value(1)) == content(remote.kept[key(1)])


async def test_memory_gauges_and_status_follow_what_is_held(telemetry):
    """Operators see entries and bytes as they are when they look."""
    cache = tiered(telemetry)
    cache.store([key(1), key(2)], [value(1), value(2)])
    cache.keep_fragment(key(1), "float", b"[1.0]")
    status = cache.status()
    sample = telemetry.registry.get_sample_value

    assert (True, 2, 2**20, None) == (status.enabled, status.memory_entries, status.memory_limit_bytes, status.redis)
    assert status.memory_bytes == sample("financia_cache_bytes")
    assert 2 == sample("financia_cache_entries")
    assert b"[1.0]" == cache.lookup_local([key(1)])[0].fragment("float")


async def test_start_and_close_reach_the_shared_tier(telemetry):
    """The shared tier lives as long as the cache; nothing is held afterwards."""
    remote = DictRemote()
    cache = tiered(telemetry, remote)
    await cache.start()
    cache.store([key(1)], [value(1)])
    await cache.close()

    assert ["start", "close"] == remote.calls
    assert 0 == cache.status().memory_entries
