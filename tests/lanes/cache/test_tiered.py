"""The tiered cache: memory in front of a shared tier, and the counts of hits and misses."""

from backend.lanes.cache.store import MemoryTier, TieredCache
from tests.lanes.cache.samples import content, contents, key, value


class DictRemote:
    """A shared tier in a dictionary that records its queries."""

    def __init__(self, *numbers):
        self.values = {key(number): value(number) for number in numbers}
        self.queries = []
        self.calls = []

    async def get_many(self, keys):
        self.queries.append(list(keys))
        return [self.values.get(key) for key in keys]

    def put_many(self, keys, values):
        self.values.update(zip(keys, values, strict=True))

    async def start(self):
        self.calls.append("start")

    async def close(self):
        self.calls.append("close")

    def status(self):
        return None


def tiered(telemetry, remote=None, limit_bytes=2**20):
    return TieredCache(MemoryTier(limit_bytes), remote, telemetry)


def counted(telemetry):
    """Memory hits, Redis hits, misses."""
    sample = telemetry.registry.get_sample_value
    hits = [sample("financia_cache_hits_total", {"tier": tier}) for tier in ("memory", "redis")]
    return (*hits, sample("financia_cache_misses_total"))


async def test_what_memory_lacks_is_fetched_in_one_query(telemetry):
    """Misses of memory are one query, in the order of the keys; what was fetched is a memory hit from then on."""
    remote = DictRemote(3)
    cache = tiered(telemetry, remote)
    cache.store([key(1), key(2)], [value(1), value(2)])
    values = await cache.lookup([key(3), key(1), key(4), key(2)])

    assert contents([value(3), value(1), None, value(2)]) == contents(values)
    assert (2, 1, 1) == counted(telemetry)
    assert contents(values[:2]) == contents(await cache.lookup([key(3), key(1)]))
    assert contents(values[:2]) == contents(cache.lookup_local([key(3), key(1)]))
    assert [] == await cache.lookup([])
    assert [[key(3), key(4)]] == remote.queries


async def test_a_local_look_up_is_not_a_miss(telemetry):
    """Looking up memory first and the other keys later counts each text once."""
    cache = tiered(telemetry)
    cache.store([key(1)], [value(1)])
    values = cache.lookup_local([key(1), key(2)])
    await cache.lookup([key(2)])

    assert [content(value(1)), None] == contents(values)
    assert (1, 0, 1) == counted(telemetry)


async def test_both_tiers_get_values_of_their_own(telemetry):
    """Stored values are copies that the caller cannot change."""
    remote = DictRemote()
    cache = tiered(telemetry, remote)
    computed = value(1)
    computed.vector.flags.writeable = True
    cache.store([key(1)], [computed])
    computed.vector[:] = 0

    assert content(value(1)) == content(cache.lookup_local([key(1)])[0])
    assert content(value(1)) == content(remote.values[key(1)])


async def test_memory_gauges_and_status_follow_what_is_held(telemetry):
    """Gauges and status show the entries and bytes held now."""
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
    """The shared tier is started and closed with the cache; memory is empty afterwards."""
    remote = DictRemote()
    cache = tiered(telemetry, remote)
    await cache.start()
    cache.store([key(1)], [value(1)])
    await cache.close()

    assert ["start", "close"] == remote.calls
    assert 0 == cache.status().memory_entries
