"""The usage of callers in a real Redis: added up over replicas, by Redis's clock, and gone once it is refilled."""

from __future__ import annotations

import pytest

from backend.callers.quotas import Charge
from backend.callers.shared_usage import RedisUsage
from backend.errors import BadSettings, Unavailable
from backend.lanes.cache.redis_client import RedisOptions
from tests.redis_server import RedisServer


@pytest.fixture
async def usage(redis_server: RedisServer):
    usage = RedisUsage(RedisOptions(redis_server.url))
    yield usage
    await usage.close()


async def test_charges_add_up(usage: RedisUsage, redis_server: RedisServer):
    """Over replicas; each quota by itself, each owner by itself."""
    other = RedisUsage(RedisOptions(redis_server.url))
    assert pytest.approx([2000.0, 300.0], abs=5.0) == await usage.add(
        "team", [("requests", Charge(2000.0, 0.0)), ("tokens", Charge(300.0, 0.0))]
    )
    assert pytest.approx([5000.0], abs=60.0) == await other.add("team", [("requests", Charge(3000.0, 0.0))])
    assert pytest.approx([1.5], abs=0.01) == await other.add("another", [("requests", Charge(1.5, 0.0))])
    await other.close()


async def test_a_floor_restores_what_redis_lost(usage: RedisUsage):
    """It is what the replica knows of before; where Redis knows of more, it changes nothing."""
    assert pytest.approx([4100.0], abs=5.0) == await usage.add("team", [("pages", Charge(100.0, 4000.0))])
    assert pytest.approx([4200.0], abs=60.0) == await usage.add("team", [("pages", Charge(100.0, 500.0))])


async def test_keys_expire(usage: RedisUsage, redis_server: RedisServer):
    """Nothing stays for ever, and no key names a caller's key."""
    await usage.add("digest", [("requests", Charge(2000.0, 0.0)), ("tokens", Charge(10.0, 0.0))])
    [key] = redis_server.client.keys("*")

    assert b"financia:usage:digest" == key
    assert 1900 < redis_server.client.ttl(key) <= 2001


async def test_redis_is_away(usage: RedisUsage, redis_server: RedisServer):
    """It is said, and without the password."""
    redis_server.kill()

    with pytest.raises(Unavailable):
        await usage.add("team", [("requests", Charge(1.0, 0.0))])


async def test_a_foreign_value(usage: RedisUsage, redis_server: RedisServer):
    """A key of another kind counts as Redis being away."""
    redis_server.client.set("financia:usage:team", "something else")

    with pytest.raises(Unavailable, match="ResponseError"):
        await usage.add("team", [("requests", Charge(1.0, 0.0))])


def test_a_bad_address():
    """It stops the start."""
    with pytest.raises(BadSettings, match="REDIS_URL"):
        RedisUsage(RedisOptions("redis://:pass/word@host"))
