"""Connections to one Redis that end when told to: each command has a deadline, and closing waits for no reply.

redis-py alone can promise neither. With a ``socket_timeout`` it sends under `asyncio.wait_for`, which until Python 3.12
drops a cancellation, also one by `asyncio.timeout`, that comes when the bytes have just been sent: the task then waits
for the reply as if nobody had cancelled it. And it closes a connection by waiting until Redis has taken all of them.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeAlias, TypeVar

from redis.asyncio import BlockingConnectionPool
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

T = TypeVar("T")
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
