"""Deadlines, cancellations and closing hold whatever Redis does: silent, stopped, full, refusing connections, gone."""

import asyncio
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
from redis.exceptions import RedisError, ResponseError

from backend.lanes.cache.redis_client import RedisPool
from tests.fakes import TEST_TIMEOUT_S, turns
from tests.redis_server import RedisProxy, RedisServer

pytestmark = pytest.mark.redis

NEVER_S = 3600.0  # a deadline that no test waits for
FOREVER = ("BLPOP", "absent", 0)  # Redis never answers this
TURNS = range(16)  # of the event loop: a command is sent within two, or within twelve with a new connection
LARGE = b"x" * 32 * 2**20  # more than sockets take while nobody reads


@pytest.fixture
async def open_pool():
    """Open a pool; all are closed after the test."""
    pools: list[RedisPool] = []

    def start(url: str, *, connections: int = 4, connect_s: float = NEVER_S, answer_s: float = NEVER_S, **options):
        pools.append(RedisPool(url, connections=connections, connect_s=connect_s, answer_s=answer_s, **options))
        return pools[-1]

    yield start
    for pool in pools:
        await pool.close()


async def ended(task: asyncio.Task) -> asyncio.Task:
    """The task, which must end by itself."""
    await asyncio.wait({task}, timeout=TEST_TIMEOUT_S)
    if not task.done():
        task.cancel()
        pytest.fail("the task does not end")
    return task


async def test_commands_and_refusals(open_pool, redis_server):
    """Raw replies in order; an error reply is one of them in a pipeline, and is raised for a lone command."""
    pool = open_pool(redis_server.url)
    stored, refused, read = await pool.execute((("SET", "a", 1.5), ("LPOP", "a"), ("GET", "a")), list)

    assert (b"OK", b"1.5") == (stored, read)
    assert isinstance(refused, ResponseError)
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        await pool.ask(("LPOP", "a"))


@pytest.mark.parametrize(
    "refusal",
    ["READONLY You can't write", "MASTERDOWN Link is down", "UNBLOCKED force unblock", "NOREPLICAS Not enough"],
)
async def test_what_no_master_answers_ends_the_connection(open_pool, redis_proxy, refusal):
    """After a failover the address leads to the new master; connections to the old one stayed for ever."""
    pool = open_pool(redis_proxy.url, connections=1)
    redis_proxy.instead = f"-{refusal}\r\n".encode()
    with pytest.raises(ResponseError):
        await pool.ask(("MGET", "a"))
    redis_proxy.instead = None

    assert [None] == await pool.ask(("MGET", "a"))
    assert 2 == redis_proxy.connections


async def test_unused_connections_are_closed(open_pool, redis_server):
    """Each is an open file here and there: those of the busiest second stayed for ever. The next command opens one."""
    pool = open_pool(redis_server.url, connections=8, idle_s=0.05)
    for _ in range(2):
        await asyncio.gather(*(pool.ask(("BLPOP", "absent", 0.1)) for _ in range(8)))
        async with asyncio.timeout(TEST_TIMEOUT_S):
            while len(redis_server.client.client_list()) > 1:  # noqa: ASYNC110 - a process of its own; one is the test's
                await asyncio.sleep(0.02)

    assert b"PONG" == await pool.ask(("PING",))


async def test_replies_that_cannot_be_read(open_pool, redis_proxy):
    """The connection that brought them is not used again."""
    pool = open_pool(redis_proxy.url, connections=1)

    def refuse(_replies: list) -> None:
        raise ValueError

    for _ in range(2):
        with pytest.raises(ValueError):  # noqa: PT011 - our own
            await pool.execute((("PING",),), refuse)

    assert 2 == redis_proxy.connections


@pytest.mark.parametrize("is_new", [False, True], ids=["open-connection", "new-connection"])
@pytest.mark.parametrize("options", ["", "?socket_timeout=3600&socket_connect_timeout=3600"])
async def test_a_cancellation_at_any_moment(open_pool, redis_server, options, is_new):
    """It ends a command at once, also when it comes while the bytes are being sent."""
    pool = open_pool(redis_server.url + options)
    for count in TURNS:
        if not is_new:
            await pool.ask(("PING",))
        task = asyncio.create_task(pool.ask(FOREVER))
        await turns(count)
        task.cancel()

        assert (await ended(task)).cancelled(), f"after {count} turns of the loop"


async def test_a_deadline_of_the_caller_at_any_moment(open_pool, redis_server):
    """`asyncio.timeout` works by cancelling, and is never lost."""
    pool = open_pool(redis_server.url)

    async def ask(deadline: asyncio.Timeout) -> None:
        async with deadline:
            await pool.ask(FOREVER)

    for count in TURNS:
        await pool.ask(("PING",))
        deadline = asyncio.timeout(None)
        task = asyncio.create_task(ask(deadline))
        await turns(count + 1)
        deadline.reschedule(0)

        assert isinstance((await ended(task)).exception(), TimeoutError), f"after {count} turns of the loop"


async def test_no_answer_in_time(open_pool, redis_server):
    """The command fails at its deadline, and its late reply answers no other one."""
    pool = open_pool(redis_server.url, connections=1, answer_s=0.05)
    with pytest.raises(TimeoutError):
        await pool.ask(FOREVER)
    pool._answer_s = NEVER_S

    assert b"PONG" == await pool.ask(("PING",))


async def test_no_connection_in_time(open_pool, redis_server):
    """Waiting for a free connection has a deadline of its own."""
    pool = open_pool(redis_server.url, connections=1)
    task = asyncio.create_task(pool.ask(FOREVER))
    await turns(max(TURNS))
    pool._connect_s = 0.05

    with pytest.raises(TimeoutError):
        await pool.ask(("PING",))
    await pool.close()
    await ended(task)


Fault = Callable[[Callable[..., RedisPool], RedisServer, RedisProxy], Awaitable[tuple[RedisPool, asyncio.Task]]]


async def no_reply(open_pool, _server, proxy):
    pool = open_pool(proxy.url)
    await pool.ask(("PING",))
    proxy.open.clear()
    asked = proxy.asked
    task = asyncio.create_task(pool.ask(("GET", "a")))
    await proxy.asked_more_than(asked)
    return pool, task


async def no_reply_to_the_first_bytes(open_pool, _server, proxy):
    proxy.open.clear()
    pool = open_pool(proxy.url)
    task = asyncio.create_task(pool.ask(("GET", "a")))
    await proxy.asked_more_than(0)
    return pool, task


async def nobody_reads(open_pool, server, _proxy):
    pool = open_pool(server.url)
    await pool.ask(("PING",))
    os.kill(server._process.pid, signal.SIGSTOP)
    task = asyncio.create_task(pool.ask(("SET", "a", LARGE)))
    await turns(max(TURNS))
    assert any(one._writer.transport.get_write_buffer_size() for one in pool._pool._in_use_connections)
    return pool, task


async def nobody_accepts(open_pool, _server, _proxy):
    listener = socket.create_server(("127.0.0.1", 0), backlog=0)
    address = listener.getsockname()
    waiting = [socket.socket() for _ in range(3)]
    for client in waiting:  # fill the queue of connections, so that one more gets no answer
        client.setblocking(False)
        with suppress(BlockingIOError):
            client.connect(address)
    pool = open_pool("redis://{}:{}".format(*address))
    task = asyncio.create_task(pool.ask(("PING",)))
    await turns(max(TURNS))
    task.add_done_callback(lambda _: [one.close() for one in (listener, *waiting)])
    return pool, task


async def no_free_connection(open_pool, server, _proxy):
    pool = open_pool(server.url, connections=1)
    await pool.ask(("PING",))
    blocking = asyncio.create_task(pool.ask(FOREVER))
    await turns(max(TURNS))
    task = asyncio.create_task(pool.ask(("PING",)))
    task.add_done_callback(lambda _: blocking.exception())
    await turns(max(TURNS))
    return pool, task


@pytest.mark.parametrize(
    "fault", [no_reply, no_reply_to_the_first_bytes, nobody_reads, nobody_accepts, no_free_connection]
)
async def test_closing_waits_for_nothing(open_pool, redis_server, redis_proxy, fault: Fault):
    """It ends at once, and so does each command: with an error, not by cancelling its caller."""
    pool, task = await fault(open_pool, redis_server, redis_proxy)
    assert not task.done()
    async with asyncio.timeout(TEST_TIMEOUT_S):
        await pool.close()

    assert isinstance((await ended(task)).exception(), TimeoutError | RedisError)
    assert not any(connection.is_connected for connection in pool._pool._available_connections)
    assert not pool._pool._in_use_connections
    with pytest.raises(RedisError, match="closed"):
        await pool.ask(("PING",))


async def test_closing_at_any_moment(open_pool, redis_server):
    """A command that is about to get its connection is not sent after the pool is closed."""
    for count in TURNS:
        pool = open_pool(redis_server.url)
        task = asyncio.create_task(pool.ask(FOREVER))
        await turns(count)
        await pool.close()

        assert isinstance((await ended(task)).exception(), TimeoutError | RedisError)
        assert not any(connection.is_connected for connection in pool._pool._available_connections)


async def test_closing_when_redis_is_gone(open_pool, redis_server):
    """Connections that Redis has closed are no fault; closing twice is none either."""
    pool = open_pool(redis_server.url)
    await pool.ask(("PING",))
    redis_server.kill()
    await pool.close()
    await pool.close()
