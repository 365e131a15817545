"""The shared tier against a real server: working, down, slow, full, with foreign data, and back again.

Faults are made by a proxy (`RedisProxy`) or by killing the server; the circuit's time is a ManualClock. Only the
look-up's own budget passes in real time.
"""

import asyncio
import contextlib
import logging

import numpy as np
import pytest

from backend.errors import BadSettings
from backend.lanes.cache.redis_client import BreakerPolicy, RedisOptions, address
from backend.lanes.cache.redis_tier import PIPELINE_WRITES, RedisTier, encode
from backend.retry import Backoff
from backend.telemetry import CACHE_STATES
from tests.lanes.cache.samples import content, contents, key, value

pytestmark = pytest.mark.redis

POLICY = BreakerPolicy(failures=3, backoff=Backoff(1.0, 8.0))
PATIENT_S = 20.0  # a budget that a live server on a busy machine keeps
SHORT_S = 0.05  # a budget that is meant to run out
PASSWORD = "s3cret-wörd"


@pytest.fixture
async def connect(telemetry, clock):
    """Start a tier; all are closed after the test."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(url, **options):
            settings = {"timeout_s": PATIENT_S, "settle_s": PATIENT_S, "flush_s": PATIENT_S, "breaker": POLICY}
            tier = RedisTier(RedisOptions(url=url, **(settings | options)), telemetry, clock=clock)
            stack.push_async_callback(tier.close)
            await tier.start()
            return tier

        yield start


async def written(tier):
    """Wait until the tier has nothing left to write."""
    if tier._writer is not None:
        await tier._writer


async def settled(tier):
    """Wait until the tier has no background tasks."""
    while tier._client._tasks:
        await asyncio.wait(tier._client._tasks)


async def store(tier, *numbers):
    tier.put_many([key(number) for number in numbers], [value(number) for number in numbers])
    await written(tier)


async def look_up(tier, *numbers):
    return contents(await tier.get_many([key(number) for number in numbers]))


def expected(*numbers):
    return [None if number is None else content(value(number)) for number in numbers]


def errors(telemetry, kind):
    return telemetry.registry.get_sample_value("financia_cache_errors_total", {"kind": kind}) or 0


def shown_state(telemetry):
    """The one state whose gauge is 1."""
    sample = telemetry.registry.get_sample_value
    (state,) = [name for name in CACHE_STATES if sample("financia_cache_circuit_state", {"state": name}) == 1]
    return state


async def open_circuit(tier):
    """Look up until the circuit opens."""
    for _ in range(POLICY.failures):
        await look_up(tier, 1)
    assert tier.status().state == "open"


# Working


async def test_what_is_written_is_read_bit_for_bit(connect, redis_server):
    """Every replica reads what any of them wrote, unchanged; absent keys are misses, in order."""
    first, second = await connect(redis_server.url), await connect(redis_server.url)
    odd = np.array([np.nan, np.inf, -0.0, 1e-45], np.float32)
    first.put_many([key(9)], [value(9, truncated=True).with_fragment("float", b"stays here")])
    await store(first, 1, 2)
    values = await second.get_many([key(2), key(7), key(9), key(1)])

    assert [content(value(2)), None, content(value(9, truncated=True)), content(value(1))] == contents(values)
    assert values[2].wire == ()
    first.put_many([key(3)], [value(3).__class__(odd, 4, truncated=False).owned()])
    await written(first)
    assert odd.tobytes() == (await second.get_many([key(3)]))[0].vector.tobytes()


async def test_a_request_is_one_mget(connect, redis_server, telemetry):
    """However many texts a request has, it makes one query, and one measurement."""
    tier = await connect(redis_server.url)
    await store(tier, *range(200))

    assert expected(*range(200), None) == await look_up(tier, *range(200), 999)
    assert 1 == redis_server.calls("mget")
    assert 0 == redis_server.calls("get")
    assert 1 == telemetry.registry.get_sample_value("financia_cache_lookup_duration_seconds_count")


async def test_writes_go_out_in_pipelines_with_a_time_to_live(connect, redis_proxy, redis_server):
    """Many values cost few round trips, and all expire."""
    tier = await connect(redis_proxy.url, ttl_s=60.0, prefix="ours")
    answers_before = redis_proxy.answers
    count = 3 * PIPELINE_WRITES
    await store(tier, *range(count))

    assert count == redis_server.calls("set")
    assert redis_proxy.answers - answers_before < count / 4
    names = redis_server.client.keys("*")
    assert {f"ours:vector:{key(number).hex()}".encode() for number in range(count)} == set(names)
    assert all(50_000 < redis_server.client.pttl(name) <= 60_000 for name in names)


async def test_prefixes_separate_tenants(connect, redis_server):
    """Services with different prefixes do not see each other's values."""
    await store(await connect(redis_server.url, prefix="one"), 1)

    assert expected(None) == await look_up(await connect(redis_server.url, prefix="two"), 1)


async def test_concurrent_look_ups_get_their_own_answers(connect, redis_server):
    """More look-ups than connections: each gets its own values."""
    tier = await connect(redis_server.url, connections=3)
    await store(tier, *range(50))
    answers = await asyncio.gather(*(look_up(tier, number, number + 1) for number in range(49)))

    assert [expected(number, number + 1) for number in range(49)] == answers


async def test_closing_writes_what_is_pending(connect, redis_server):
    """Pending writes reach Redis, and later look-ups are misses without errors."""
    tier = await connect(redis_server.url)
    numbers = range(2 * PIPELINE_WRITES)
    tier.put_many([key(number) for number in numbers], [value(number) for number in numbers])
    await tier.close()

    assert len(numbers) == redis_server.client.dbsize()
    assert expected(None) == await look_up(tier, 1)
    tier.put_many([key(1)], [value(1)])
    assert 0 == tier.status().pending_bytes
    await tier.close()


async def test_closing_does_not_wait_for_a_redis_that_hangs(connect, redis_proxy, telemetry):
    """Pending writes get a short budget; those not written then are counted."""
    tier = await connect(redis_proxy.url, flush_s=SHORT_S)
    redis_proxy.open.clear()
    count = PIPELINE_WRITES + 5
    tier.put_many([key(number) for number in range(count)], [value(number) for number in range(count)])
    async with asyncio.timeout(PATIENT_S / 2):
        await tier.close()

    assert count == errors(telemetry, "write")


async def test_closing_ends_running_look_ups(connect, redis_proxy, telemetry):
    """A look-up that runs when the cache closes is a miss, and not counted as a fault."""
    tier = await connect(redis_proxy.url)
    await store(tier, 1)
    redis_proxy.open.clear()
    asked = redis_proxy.asked
    waiting = asyncio.create_task(look_up(tier, 1))
    await redis_proxy.asked_more_than(asked)
    await tier.close()

    assert expected(None) == await waiting
    assert 0 == errors(telemetry, "connection")
    assert not tier._client._tasks


# Foreign data


async def test_foreign_bytes_are_misses_and_counted(connect, redis_server, telemetry):
    """Only valid values of that very key are accepted."""
    tier = await connect(redis_server.url)
    await store(tier, 0, 1, 2, 3, 4)
    names = [tier._name(key(number)) for number in range(6)]
    redis_server.client.set(names[1], b"somebody else's")
    redis_server.client.set(names[2], encode(key(2), value(2))[:-1])
    redis_server.client.set(names[3], encode(key(4), value(4)))
    redis_server.client.delete(names[5])
    redis_server.client.rpush(names[5], b"a list is no string")

    assert expected(0, None, None, None, 4, None) == await look_up(tier, *range(6))
    assert 3 == errors(telemetry, "foreign")
    assert tier.status().state == "closed"
    await store(tier, 1, 2, 3)
    assert expected(0, 1, 2, 3, 4) == await look_up(tier, *range(5))


@pytest.mark.parametrize(
    "malformed",
    [
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n", id="another-protocol"),
        pytest.param(b"+OK\r\n", id="a-word-for-a-list"),
        pytest.param(b"*1\r\n$-1\r\n", id="a-list-too-short"),
        pytest.param(b"*2\r\n:1\r\n:2\r\n", id="numbers-for-bytes"),
        pytest.param(b"-ERR no\r\n", id="an-error"),
        pytest.param(bytes(range(256)), id="noise"),
    ],
)
async def test_malformed_replies(connect, redis_proxy, clock, malformed):
    """A malformed reply is a miss, affects no later reply, and Redis is used again once replies are valid."""
    tier = await connect(redis_proxy.url)
    await store(tier, 1, 2)
    redis_proxy.instead = malformed
    for _ in range(4):
        assert expected(None, None) == await look_up(tier, 1, 2)
    redis_proxy.instead = None
    await settled(tier)
    clock.advance(POLICY.backoff.most_s)
    await look_up(tier, 1, 2)
    await settled(tier)

    assert expected(1, 2) == await look_up(tier, 1, 2)


async def test_another_protocol_on_the_port(connect, telemetry):
    """A server with another protocol counts as unreachable, within the budget."""

    async def refuse(reader, writer):
        while await reader.read(1000):
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    listener = await asyncio.start_server(refuse, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    tier = await connect(f"redis://127.0.0.1:{port}/3", timeout_s=SHORT_S, settle_s=SHORT_S)
    await settled(tier)

    assert "open" == shown_state(telemetry)
    assert expected(None) == await look_up(tier, 1)
    await tier.close()
    listener.close()


# Slow


@pytest.mark.slow
async def test_a_slow_redis_costs_the_budget_and_opens_the_circuit(
    connect, redis_proxy, redis_server, telemetry, clock
):
    """Look-ups end with their budget; after some, none is sent any more."""
    tier = await connect(redis_proxy.url, timeout_s=0.5)
    await store(tier, 1)
    assert expected(1) == await look_up(tier, 1)
    redis_proxy.open.clear()
    async with asyncio.timeout(PATIENT_S / 2):
        await open_circuit(tier)

    assert POLICY.failures == errors(telemetry, "timeout")
    assert "open" == shown_state(telemetry)
    asked = redis_server.calls("mget")
    assert expected(None) == await look_up(tier, 1)
    assert asked == redis_server.calls("mget")
    redis_proxy.open.set()
    await settled(tier)
    clock.advance(POLICY.backoff.first_s)
    await look_up(tier, 1)
    await settled(tier)
    assert "closed" == shown_state(telemetry)
    assert expected(1) == await look_up(tier, 1)


async def test_cancelled_look_ups(connect, redis_proxy, telemetry):
    """They are not counted as faults and leave no tasks behind."""
    tier = await connect(redis_proxy.url)
    await store(tier, 1)
    redis_proxy.open.clear()
    callers = [asyncio.create_task(look_up(tier, 1)) for _ in range(2 * POLICY.failures)]
    await asyncio.sleep(0)
    for caller in callers:
        caller.cancel()
    await asyncio.wait(callers)
    redis_proxy.open.set()
    await settled(tier)

    assert all(caller.cancelled() for caller in callers)
    assert (0, 0) == (errors(telemetry, "timeout"), errors(telemetry, "connection"))
    assert expected(1) == await look_up(tier, 1)


# Down and back


async def test_down_at_start(connect, redis_server, telemetry, clock, caplog):
    """The service starts without Redis, warns once, and uses it once it is up."""
    redis_server.kill()
    tier = await connect(redis_server.url)

    assert ("open", "open") == (tier.status().state, shown_state(telemetry))
    assert expected(None) == await look_up(tier, 1)
    await store(tier, 1)
    assert 1 == errors(telemetry, "write")
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert ["Redis does not answer, going on with memory alone"] == [record.message for record in warnings]
    redis_server.start()
    clock.advance(POLICY.backoff.first_s)
    await look_up(tier, 1)
    await settled(tier)
    await store(tier, 1)
    assert expected(1) == await look_up(tier, 1)


async def test_killed_and_restarted(connect, redis_server, telemetry, clock):
    """Killed: misses, then no queries; restarted: one probe, then in use again, through half open."""
    tier = await connect(redis_server.url)
    await store(tier, 1)
    redis_server.kill()
    await open_circuit(tier)

    assert POLICY.failures == errors(telemetry, "connection")
    assert POLICY.backoff.first_s == pytest.approx(tier.status().retry_in_s)
    redis_server.start()
    assert expected(None) == await look_up(tier, 1)
    assert 0 == redis_server.calls("ping")
    clock.advance(POLICY.backoff.first_s)
    assert [expected(None)] * 20 == await asyncio.gather(*(look_up(tier, 1) for _ in range(20)))
    assert "half_open" == shown_state(telemetry)
    await settled(tier)
    assert "closed" == shown_state(telemetry)
    assert (2, 0) == (redis_server.calls("ping"), redis_server.calls("mget"))
    assert expected(None) == await look_up(tier, 1)
    await store(tier, 1)
    assert expected(1) == await look_up(tier, 1)


async def test_a_connection_reset_during_a_look_up(connect, redis_proxy, telemetry):
    """The look-up is a miss at once, not after the budget; the next connects again."""
    tier = await connect(redis_proxy.url)
    await store(tier, 1)
    await look_up(tier, 1)
    redis_proxy.open.clear()
    asked = redis_proxy.asked
    waiting = asyncio.create_task(look_up(tier, 1))
    await redis_proxy.asked_more_than(asked)
    redis_proxy.cut()
    async with asyncio.timeout(PATIENT_S / 2):
        assert expected(None) == await waiting

    assert 1 == errors(telemetry, "connection")
    redis_proxy.open.set()
    await settled(tier)
    assert expected(1) == await look_up(tier, 1)
    assert tier.status().state == "closed"


# Refused


async def test_wrong_password(connect, start_redis, telemetry, caplog):
    """It counts as unreachable; no password shows up in status or logs."""
    server = start_redis("--requirepass", "another")
    wrong = server.url.replace("unix://", "unix://someone:s3cret-w%C3%B6rd@")
    tier = await connect(wrong)
    await look_up(tier, 1)
    status = tier.status()

    assert ("open", f"unix://{server.socket}") == (status.state, status.address)
    assert errors(telemetry, "connection") >= 1
    seen = f"{status} {caplog.text} {[vars(record) for record in caplog.records]} {RedisOptions(url=wrong)}"
    assert "does not answer" in seen
    for secret in (PASSWORD, "s3cret", "someone"):
        assert secret not in seen


async def test_right_password(connect, start_redis):
    """A password with odd characters works when it is percent-encoded."""
    server = start_redis("--requirepass", PASSWORD)
    tier = await connect(server.url.replace("unix://", "unix://:s3cret-w%C3%B6rd@"))
    await store(tier, 1)

    assert expected(1) == await look_up(tier, 1)
    assert f"unix://{server.socket}" == tier.status().address


async def test_a_full_redis_is_still_read(connect, start_redis, telemetry, clock, caplog):
    """maxmemory with noeviction: refused writes are counted and soon not sent; reads go on; writes resume later."""
    server = start_redis("--maxmemory-policy", "noeviction")
    tier = await connect(server.url)
    await store(tier, 1)
    server.client.config_set("maxmemory", 1)
    for number in range(2, 2 + POLICY.failures):
        await store(tier, number)
    sent = server.calls("set")

    assert POLICY.failures == errors(telemetry, "write")
    assert expected(1, None) == await look_up(tier, 1, 2)
    assert "closed" == shown_state(telemetry)
    await store(tier, 8, 9)
    assert sent == server.calls("set")
    assert POLICY.failures + 2 == errors(telemetry, "write")
    assert 1 == caplog.text.count("Redis takes no writes")
    server.client.config_set("maxmemory", 0)
    clock.advance(POLICY.backoff.first_s)
    await store(tier, 8)
    assert expected(8) == await look_up(tier, 8)


async def test_a_user_who_may_not_read(connect, start_redis, telemetry):
    """An ACL that forbids MGET is a fault like any other: misses, then an open circuit."""
    server = start_redis()
    server.client.acl_setuser("default", enabled=True, nopass=True, commands=["+@all", "-mget"])
    tier = await connect(server.url)

    await open_circuit(tier)
    assert POLICY.failures == errors(telemetry, "connection")
    assert "NoPermissionError" in tier.status().last_error


# Bounds and settings


async def test_pending_writes_are_bounded(connect, redis_server, telemetry):
    """Values over the limit of bytes are dropped and counted."""
    tier = await connect(redis_server.url, pending_bytes=10 * 48)  # 48: a header and eight floats
    tier.put_many([key(number) for number in range(25)], [value(number) for number in range(25)])

    assert 10 * 48 == tier.status().pending_bytes
    assert 15 == errors(telemetry, "write")
    await written(tier)
    assert 0 == tier.status().pending_bytes
    assert 10 == redis_server.client.dbsize()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        pytest.param("redis://localhost:6379/0", "redis://localhost:6379/0", id="plain"),
        pytest.param("redis://:pw@host", "redis://host", id="password"),
        pytest.param("rediss://me:p%40w@host:1/2?ssl_cert_reqs=none", "rediss://host:1/2", id="user-and-options"),
        pytest.param("redis://me:p@w@host:1", "redis://host:1", id="at-sign-in-the-password"),
        pytest.param("redis://host?password=pw", "redis://host", id="password-as-option"),
        pytest.param("unix://me:pw@/run/redis.sock?db=1", "unix:///run/redis.sock", id="socket"),
        pytest.param("redis://[::1]:6379/1", "redis://[::1]:6379/1", id="ipv6"),
    ],
)
def test_addresses_hide_secrets(url, shown):
    """Only scheme, host, port and database are shown."""
    assert shown == address(url)


@pytest.mark.parametrize(
    "url",
    [
        "localhost:6379",
        "http://localhost",
        "redis://:s3cret/x@host:6379/0",
        "redis://me:12/s3cret@host:6379/0",
        "redis://me:12#s3cret@host:6379/0",
        "redis://:12?s3cret@host",
        "redis://host:s3cret",
        "redis://[s3cret",
        "redis:///s3cret",
        "",
    ],
)
def test_a_bad_url_stops_the_start(url, telemetry, clock):
    """A malformed URL is a fault of the settings, and the message does not quote it."""
    with pytest.raises(BadSettings, match="REDIS_URL") as caught:
        RedisTier(RedisOptions(url=url), telemetry, clock=clock)

    assert "s3cret" not in f"{caught.value!r} {caught.value.__cause__!r}"
    assert caught.value.__suppress_context__
