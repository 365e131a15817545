"""A Redis client with time budgets and a circuit breaker, for any command, over connections that end when told to.

redis-py alone cannot promise that each command has a deadline and that closing waits for no reply. With a
``socket_timeout`` it sends under `asyncio.wait_for`, which until Python 3.12 drops a cancellation, also one by
`asyncio.timeout`, that comes when the bytes have just been sent: the task then waits for the reply as if nobody had
cancelled it. And it closes a connection by waiting until Redis has taken all of them.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias, TypeVar
from urllib.parse import urlsplit

from redis import exceptions
from redis.asyncio import BlockingConnectionPool
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from backend.errors import BadSettings
from backend.retry import Backoff
from backend.telemetry import CACHE_STATES, Telemetry, log_event

Command: TypeAlias = tuple[str | bytes | float, ...]
_NO_MASTER = frozenset(("READONLY", "MASTERDOWN", "UNBLOCKED", "NOREPLICAS"))
_IN_SCRIPT = re.compile(r"@user_script: ?\d+: -?([A-Z]+) ")  # how Redis 6 quotes the error of a command in a script
IDLE_S = 10.0
_CLOSE_S = 1.0  # an aborted connection is gone in the next turn of the loop; this bounds what should not happen


class RedisPool:
    """Sends commands and returns raw replies, over a bounded number of connections. Belongs to the event loop.

    Args:
        url: REDIS_URL; its ``socket_timeout`` does not count, as a deadline of the whole command does.
        connections: at once; further commands wait for one.
        connect_s: deadline of getting a connection, be it free or new.
        answer_s: deadline of sending the commands on it and reading all their replies.
        idle_s: for which an unused connection is kept at least, and at most twice as long.
        database: in place of the URL's.

    Raises: ValueError for a bad URL, whose message may quote the password.
    """

    def __init__(
        self,
        url: str,
        *,
        connections: int,
        connect_s: float,
        answer_s: float,
        idle_s: float = IDLE_S,
        database: int | None = None,
    ) -> None:
        self._pool = BlockingConnectionPool.from_url(
            url,
            max_connections=connections,
            timeout=None,
            retry=Retry(NoBackoff(), 0),  # the callers decide when to try again
            protocol=2,  # one round trip less to connect than 3, and every server supports it
        )
        self._pool.update_connection_kwargs(socket_timeout=None, socket_connect_timeout=None)
        if database is not None:
            self._pool.update_connection_kwargs(db=database)
        self._connect_s, self._answer_s, self._idle_s = connect_s, answer_s, idle_s
        self._idle_since_s: dict[AbstractConnection, float] = {}
        self._looking: asyncio.TimerHandle | None = None
        self._deadlines: set[asyncio.Timeout] = set()  # of the commands in progress
        self._closed = False

    def without_password(self, error: BaseException) -> str:
        """What an error says, without the password of the URL should a server repeat it."""
        password: str | None = self._pool.connection_kwargs.get("password")
        return str(error).replace(password, "***") if password else str(error)

    async def ask(self, command: Command) -> Any:
        """The reply to one command. Raises as `execute`; ResponseError for an error reply."""
        (reply,) = await self.execute((command,), list)
        if isinstance(reply, ResponseError):
            raise reply
        return reply

    async def execute(self, commands: Sequence[Command], read: Callable[[list[Any]], T]) -> T:
        """Send a pipeline of commands on one connection and read a reply to each; a refusal is a reply, not raised.

        After any fault, also one that ``read`` raises, that connection is closed, so that its late replies cannot
        answer another command; and after a refusal that a master does not give, so that the next one leads to the
        master after a failover.

        Raises: TimeoutError after a deadline and when the pool is closed meanwhile; RedisError, OSError.
        """
        async with self._deadline() as deadline:
            connection = await self._pool.get_connection()  # type: ignore[no-untyped-call]  # its decorator has no types
            try:
                self._refuse_when_closed()  # else the new deadline would replace the one that `close` has set
                deadline.reschedule(asyncio.get_running_loop().time() + self._answer_s)
                await connection.send_packed_command(connection.pack_commands(commands))
                replies = [await _reply(connection) for _ in commands]
                if any(isinstance(reply, ResponseError) and error_code(reply) in _NO_MASTER for reply in replies):
                    await _abort(connection)
                return read(replies)
            except BaseException:
                await _abort(connection)
                raise
            finally:
                self._idle_since_s[connection] = asyncio.get_running_loop().time()
                self._look_later()
                await self._pool.release(connection)

    async def close(self) -> None:
        """Close every connection at once. Commands in progress raise `TimeoutError`, later ones `RedisError`."""
        self._closed = True
        if self._looking is not None:
            self._looking.cancel()
        for deadline in self._deadlines:
            if not deadline.expired():
                deadline.reschedule(asyncio.get_running_loop().time())
        free, used = self._pool._available_connections, self._pool._in_use_connections  # noqa: SLF001 - not offered
        writers = [writer for connection in (*free, *used) if (writer := await _abort(connection)) is not None]
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)

    def _look_later(self) -> None:
        if self._looking is None and not self._closed:
            self._looking = asyncio.get_running_loop().call_later(self._idle_s, self._close_unused)

    def _close_unused(self) -> None:
        """Close those that a busy second opened: the pool gives the last used one first, so others rest."""
        self._looking, free = None, self._pool._available_connections  # noqa: SLF001 - not offered
        before_s = asyncio.get_running_loop().time() - self._idle_s
        unused = [connection for connection in free if self._idle_since_s.get(connection, 0.0) <= before_s]
        for connection in unused:
            free.remove(connection)
            self._idle_since_s.pop(connection, None)
            # Without waiting, as redis-py does it where no task runs.
            connection._close()  # type: ignore[no-untyped-call]  # noqa: SLF001
        if free:
            self._look_later()

    @asynccontextmanager
    async def _deadline(self) -> AsyncIterator[asyncio.Timeout]:
        """Bounds a command by ``connect_s`` until it is given another deadline."""
        self._refuse_when_closed()
        async with asyncio.timeout(self._connect_s) as deadline:
            self._deadlines.add(deadline)
            try:
                yield deadline
            finally:
                self._deadlines.discard(deadline)

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise RedisConnectionError("the connections to Redis are closed")


def error_code(error: ResponseError) -> str:
    """The code that an error reply begins with, such as "OOM", also where it comes out of a script."""
    text = str(error)
    if quoted := _IN_SCRIPT.search(text):
        return quoted[1]
    return str(getattr(error, "status_code", None) or text.partition(" ")[0])


async def _abort(connection: AbstractConnection) -> asyncio.StreamWriter | None:
    """Close a connection without waiting for Redis to take what was not sent yet; returns its stream if it had one."""
    writer = connection._writer  # noqa: SLF001 - redis-py offers no way to close that does not wait for the peer
    if writer is not None:
        writer.transport.abort()
    await connection.disconnect(nowait=True)
    return writer


async def _reply(connection: AbstractConnection) -> Any:
    try:
        return await connection.read_response()
    except ResponseError as refusal:
        return refusal


_BACKOFF = Backoff(0.5, 30.0)
T = TypeVar("T")
_WANTED = (
    "not redis://host:port/database, rediss://host:port/database or unix:///path; "
    "special characters of a password must be percent-encoded, and a Sentinel's address does not lead to the master"
)
NO_CLUSTER = (
    "is part of a Redis Cluster, which cannot keep jobs: a job's keys would lie on several nodes. Give the service a "
    "Redis of its own (cluster-enabled no), with replicas and Sentinel or a managed failover where it must not fail"
)
_NO_SENTINEL = "is a Sentinel, which keeps no data. Give the address of the master: a name or a proxy that follows it"
_CREDENTIALS = (
    "Give those of the master as redis://user:password@host:port/database, redis://:password@… where it has no users; "
    "a Sentinel's address does not lead to the master"
)
_logger = logging.getLogger(__name__)


class State(StrEnum):
    """Closed: in use. Open: not called. Half open: one probe is running."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """When the circuit opens, and for how long."""

    failures: int = 3  # in a row
    backoff: Backoff = _BACKOFF  # by openings in a row


@dataclass(frozen=True, slots=True)
class Permit:
    """Permission for one call, which must be reported by succeed, fail or abandon."""

    epoch: int  # number of state changes before it; outcomes from before the latest change are ignored
    probe: bool  # this call decides whether the circuit closes


class CircuitBreaker:
    """Opens after failures in a row, half opens after a back-off that doubles up to a cap, one probe at a time.

    After it closes, it is not trusted until a real call succeeds: one failure opens it again and the back-off keeps
    growing. So a server that answers probes but fails real calls costs little, as does one that never existed: a new
    circuit is closed and not trusted.
    """

    def __init__(self, policy: BreakerPolicy, clock: Callable[[], float]) -> None:
        self.state = State.CLOSED
        self._policy = policy
        self._clock = clock
        self._permit = Permit(epoch=0, probe=False)
        self._failures = 0
        self._trusted = False
        self._openings = 0  # since a real call succeeded
        self._reopens_at_s = 0.0

    def acquire(self) -> Permit | None:
        """A permit for one call, or None: do not call. Every permit must be reported."""
        if self.state is State.CLOSED:
            return self._permit
        if self.state is State.OPEN and self._clock() >= self._reopens_at_s:
            return self._move(State.HALF_OPEN)
        return None

    def succeed(self, permit: Permit) -> None:
        """Report that the call succeeded."""
        if permit.epoch != self._permit.epoch:
            return
        self._failures = 0
        if permit.probe:
            self._move(State.CLOSED)
        else:
            self._trusted = True
            self._openings = 0

    def fail(self, permit: Permit) -> None:
        """Report that the call failed or was late."""
        if permit.epoch != self._permit.epoch:
            return
        self._failures += 1
        if permit.probe or not self._trusted or self._failures >= self._policy.failures:
            self._open()

    def abandon(self, permit: Permit) -> None:
        """Report that the call was cancelled, which says nothing about the server."""
        if permit.probe and permit.epoch == self._permit.epoch:
            self._move(State.OPEN)  # the back-off is over already, so the next call probes

    def retry_in_s(self) -> float:
        """Seconds until an open circuit lets a probe through; 0 when it is not open."""
        return max(0.0, self._reopens_at_s - self._clock()) if self.state is State.OPEN else 0.0

    def _open(self) -> None:
        self._move(State.OPEN)
        self._openings += 1
        self._reopens_at_s = self._clock() + self._policy.backoff.wait_s(self._openings)
        self._failures = 0
        self._trusted = False

    def _move(self, state: State) -> Permit:
        self.state = state
        self._permit = Permit(self._permit.epoch + 1, probe=state is State.HALF_OPEN)
        return self._permit


@dataclass(frozen=True, slots=True)
class RedisOptions:
    """Where Redis is and what it may cost."""

    url: str = field(repr=False)  # may hold a password
    prefix: str = "financia"  # of every key
    ttl_s: float = 86_400.0
    timeout_s: float = 0.05  # time a look-up may add to its request
    settle_s: float = 1.0  # limit of a connection, a write, or a late reply
    flush_s: float = 0.5  # for pending writes when closing
    pending_bytes: int = 16 * 2**20  # vectors waiting to be written; more are dropped and counted
    connections: int = 16  # further look-ups wait for one, within their budget
    breaker: BreakerPolicy = field(default_factory=BreakerPolicy)


class RedisClient:
    """A connection pool behind a circuit breaker. Loop only; ``query`` never raises for a fault of Redis.

    The circuit opens when queries fail or are late. Then nothing is sent, and once the back-off is over the next query
    starts a probe in the background without waiting for it: no request pays for the probe.
    """

    def __init__(self, options: RedisOptions, telemetry: Telemetry, *, clock: Callable[[], float]) -> None:
        self._pool, self.address = open_pool(options)
        self.last_error: str | None = None
        self._options = options
        self._clock = clock
        self._circuit = CircuitBreaker(options.breaker, clock)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._errors = telemetry.cache_errors_total
        self._duration_s = telemetry.cache_lookup_duration_seconds
        self._state_gauge = telemetry.cache_circuit_state
        self._published = State.CLOSED
        self._publish_gauge()

    @property
    def state(self) -> State:
        """The circuit's state; writes make sense only while it is closed."""
        return self._circuit.state

    @property
    def retry_in_s(self) -> float:
        """Seconds until an open circuit may be probed; else 0."""
        return self._circuit.retry_in_s()

    async def start(self) -> None:
        """Connect in the background, and wait for that no longer than a query may take.

        A failed connection opens the circuit at once.
        """
        permit = self._circuit.acquire()
        if permit is not None:
            probe = self.spawn(self._probe(permit))
            await asyncio.wait({probe}, timeout=self._options.timeout_s)

    async def query(self, command: Command, read: Callable[[object], T]) -> T | None:
        """The result of one command, or None: the circuit is open, the command failed, or the reply is late.

        A late reply is awaited in the background, within ``settle_s``: cancelling would close the connection, and a
        slow Redis would have to accept a new one for each query.

        Args:
            command: name and arguments.
            read: parses the reply; raises InvalidResponse for one that does not fit the command.
        """
        permit = self._circuit.acquire()
        if permit is None or permit.probe:
            if permit is not None:
                self.spawn(self._probe(permit))
            return None
        sent_s = self._clock()
        task = self.spawn(self._execute_one(command, read))
        try:
            await asyncio.wait({task}, timeout=self._options.timeout_s)
        except asyncio.CancelledError:
            self._circuit.abandon(permit)
            raise
        self._duration_s.observe(self._clock() - sent_s)
        return self._outcome(task, permit)

    async def execute(self, commands: Sequence[Command], read: Callable[[list[object]], T]) -> T:
        """`RedisPool.execute`, whether the circuit is open or not.

        Raises what went wrong; TimeoutError after ``settle_s`` without a connection, or on it without all replies.
        """
        return await self._pool.execute(commands, read)

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine in the background until it ends or the client closes."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def close(self) -> None:
        """Cancel background tasks and close every connection. Waits for no reply."""
        for task in self._tasks:
            task.cancel()
        await self._pool.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def describe(self, error: BaseException) -> str:
        """An error for logs and status, without the password should a server repeat it."""
        return f"{type(error).__name__}: {self._pool.without_password(error)}"

    async def _execute_one(self, command: Command, read: Callable[[object], T]) -> T:
        return await self.execute((command,), lambda replies: read(_checked(replies[0])))

    def _outcome(self, task: asyncio.Task[T], permit: Permit) -> T | None:
        if task.cancelled():  # the client was closed
            self._circuit.abandon(permit)
            return None
        fault = _fault(task)
        if fault is None:
            self._circuit.succeed(permit)
            return task.result()
        self._failed(permit, fault)
        return None

    async def _probe(self, permit: Permit) -> None:
        """Connect with a generous limit, then require a reply within that of a query."""
        self._publish_gauge()
        try:
            for budget_s in (self._options.settle_s, self._options.timeout_s):
                async with asyncio.timeout(budget_s):
                    await self._execute_one(("PING",), _pong)
        except asyncio.CancelledError:
            self._circuit.abandon(permit)
            raise
        except Exception as error:  # noqa: BLE001 - border: whatever the network answers, the probe has failed
            self._failed(permit, error)
        else:
            self._circuit.succeed(permit)
            self._publish_state()

    def _failed(self, permit: Permit, error: Exception) -> None:
        late = isinstance(error, TimeoutError | exceptions.TimeoutError)
        self._errors.labels("timeout" if late else "connection").inc()
        self.last_error = self.describe(error)
        self._circuit.fail(permit)
        self._publish_state()

    def _publish_state(self) -> None:
        """Update gauge and log; the log reports opening and closing, not every probe."""
        if self.state is self._published:
            return
        if self.state is State.CLOSED:
            log_event(_logger, logging.INFO, "Redis answers again", redis=self.address)
        elif self._published is State.CLOSED:
            log_event(
                _logger,
                logging.WARNING,
                "Redis does not answer, going on with memory alone",
                redis=self.address,
                error=self.last_error,
                retry_in_s=f"{self.retry_in_s:.1f}",
            )
        self._publish_gauge()

    def _publish_gauge(self) -> None:
        self._published = self.state
        for name in CACHE_STATES:
            self._state_gauge.labels(name).set(name == self._published)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # marks it as retrieved; a late reply was counted when it became late


def address(url: str) -> str:
    """A Redis URL for logs: without user, password and options.

    Raises ValueError for one that Redis clients parse differently than meant, because of a ``/``, ``#`` or ``?`` in
    its password.

    >>> address("rediss://user:secret@cache.local:6380/2?password=secret")
    'rediss://cache.local:6380/2'
    """
    parts = urlsplit(url)
    if parts.fragment or (parts.scheme != "unix" and not (parts.hostname and re.fullmatch(r"/?\d*", parts.path))):
        raise ValueError("not scheme://host:port/database")
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def open_pool(options: RedisOptions, *, database: int | None = None) -> tuple[RedisPool, str]:
    """A pool without connections yet, and its address for logs; ``database`` as for it. Raises: BadSettings."""
    limit_s = options.settle_s
    try:
        where = address(options.url)
        pool = RedisPool(
            options.url, connections=options.connections, connect_s=limit_s, answer_s=limit_s, database=database
        )
    except ValueError:
        # from None: the message of the original may quote the password
        raise BadSettings([f"REDIS_URL: {_WANTED}"]) from None
    return pool, where


async def refuse_unfit(url: str) -> None:
    """Raise BadSettings for a bad URL, one that Redis refuses, a Sentinel, and a node of a Redis Cluster.

    A Redis that is away or hides what it is passes: commands will tell.
    """
    # Without a database at first: a Sentinel and a cluster refuse to select one, and would not say what they are.
    pool, where = open_pool(RedisOptions(url), database=0)
    try:
        information = (await _ask_once(pool, ("INFO",))).decode(errors="replace")
        if "redis_mode:sentinel" in information:
            raise BadSettings([f"REDIS_URL: {where} {_NO_SENTINEL}"])
        if "cluster_enabled:1" in information:
            raise BadSettings([f"REDIS_URL: the Redis on {where} {NO_CLUSTER}"])
        pool, _ = open_pool(RedisOptions(url))
        await _ask_once(pool, ("PING",))
    except exceptions.AuthenticationError as refusal:
        words = pool.without_password(refusal)
        raise BadSettings([f"REDIS_URL: {where} refuses its user and password ({words}). {_CREDENTIALS}"]) from None
    except exceptions.ResponseError as refusal:
        if "DB index" in str(refusal):
            raise BadSettings([f"REDIS_URL: the Redis on {where} has no such database ({refusal})"]) from None
    except (exceptions.RedisError, OSError, TimeoutError):
        pass


async def _ask_once(pool: RedisPool, command: Command) -> bytes:
    try:
        reply: bytes = await pool.ask(command)
    finally:
        await pool.close()
    return reply


def _checked(reply: object) -> object:
    """A single command's reply; raises it if it is a refusal."""
    if isinstance(reply, exceptions.ResponseError):
        raise reply
    return reply


def _pong(reply: object) -> None:
    if reply != b"PONG":
        raise exceptions.InvalidResponse("the answer to PING is not PONG")


def _fault(task: asyncio.Task[Any]) -> Exception | None:
    """Why there is no result; None when there is one."""
    if not task.done():
        return TimeoutError("no answer within the time budget")
    error = task.exception()
    return error if isinstance(error, Exception) else None
