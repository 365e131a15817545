"""Redis connections for job stores: one pool for commands, one for blocking stream reads. Knows nothing of jobs."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import MasterDownError, OutOfMemoryError, ReadOnlyError, RedisError, ResponseError

from backend.cache.redis_client import address
from backend.errors import BadSettings, Unavailable
from backend.telemetry import log_event

_RETRY_S = (0.2, 5.0)  # the first wait after a fault, and the longest; each is twice the one before
_TEMPORARY = (OutOfMemoryError, ReadOnlyError, MasterDownError)  # errors that pass
_logger = logging.getLogger(__name__)


class RedisConnections:
    """Connections to one Redis. Unlike the cache, jobs cannot do without it, so commands get seconds to answer.

    Two pools, so that blocking reads cannot use up the connections that commands need.

    Args:
        url: REDIS_URL.
        settle_s: timeout of one command.
        block_s: how long one blocking read waits before it returns nothing.
        readers: blocking reads at once.

    Raises: BadSettings for a bad URL.
    """

    def __init__(self, url: str, *, settle_s: float, block_s: float, readers: int) -> None:
        try:
            self.address = address(url)
            self._commands = _client(url, connections=16, wait_s=settle_s, answer_s=settle_s)
            self._readers = _client(url, connections=readers, wait_s=settle_s, answer_s=block_s + settle_s)
        except ValueError:  # from None: its message may quote the password
            raise BadSettings(["REDIS_URL: not the address of a Redis"]) from None
        self._block_ms = max(1, round(block_s * 1000))
        self._down = False

    async def call(self, *command: str | bytes | float) -> Any:
        """The raw reply to one command. Raises: Unavailable; ResponseError for an error reply."""
        return await self._execute(self._commands, command)

    async def read(self, command: str, *arguments: str, streams: dict[str, str]) -> list[tuple[str, dict[str, bytes]]]:
        """Entries (id, fields) of streams after these ids. Waits for one, and returns none after ``block_s``.

        Args:
            command: XREAD or XREADGROUP, with its ``arguments``.
        """
        words = (command, *arguments, "BLOCK", self._block_ms, "STREAMS", *streams, *streams.values())
        return stream_entries(await self._execute(self._readers, words))

    async def pause(self, faults: int) -> None:
        """Wait before the next try: exponential backoff by the number of ``faults`` in a row."""
        first_s, most_s = _RETRY_S
        await asyncio.sleep(min(first_s * 2 ** min(faults, 10), most_s))

    async def close(self) -> None:
        for client in (self._commands, self._readers):
            try:
                await client.aclose(close_connection_pool=True)
            except (RedisError, OSError) as error:
                log_event(_logger, logging.DEBUG, "closing the Redis connections failed", error=type(error).__name__)

    async def _execute(self, client: Redis, command: tuple[Any, ...]) -> Any:
        task = asyncio.current_task()
        assert task is not None, "jobs are asked for in tasks"
        cancels = task.cancelling()
        try:
            reply = await client.execute_command(*command)  # type: ignore[no-untyped-call]  # as its own callers
        except ResponseError as error:
            if isinstance(error, _TEMPORARY) or str(error).startswith("MISCONF"):
                raise self._unavailable(f"takes no jobs ({error})") from error
            raise
        except (RedisError, OSError, TimeoutError) as error:
            raise self._unavailable(f"does not answer ({type(error).__name__})") from error
        finally:
            if task.cancelling() > cancels:  # redis-py 8.1 sometimes swallows it (seen with XAUTOCLAIM)
                raise asyncio.CancelledError
        if self._down:
            self._down = False
            log_event(_logger, logging.INFO, "Redis answers for jobs again", redis=self.address)
        return reply

    def _unavailable(self, reason: str) -> Unavailable:
        if not self._down:
            self._down = True
            log_event(_logger, logging.WARNING, "Redis fails jobs", redis=self.address, what=reason)
        return Unavailable(
            f"jobs: Redis (REDIS_URL), where all replicas keep them, {reason}. Try again, or send the file to "
            "/v1/documents, which answers without it",
            retry_after_s=_RETRY_S[1],
        )


def stream_entries(reply: Any) -> list[tuple[str, dict[str, bytes]]]:
    """The entries of a raw XREAD reply, of all its streams in one list."""
    return [stream_entry(row) for _, rows in reply or () for row in rows if row[1] is not None]


def stream_entry(row: Any) -> tuple[str, dict[str, bytes]]:
    """Id and fields of a raw stream entry."""
    entry, flat = row
    return entry.decode(), {name.decode(): value for name, value in zip(flat[::2], flat[1::2], strict=True)}


def _client(url: str, *, connections: int, wait_s: float, answer_s: float) -> Redis:
    pool = BlockingConnectionPool.from_url(
        url,
        max_connections=connections,
        timeout=wait_s,
        socket_timeout=answer_s,
        socket_connect_timeout=wait_s,
        retry=Retry(NoBackoff(), 0),
        protocol=2,
    )
    client = Redis(connection_pool=pool)
    client.response_callbacks.clear()  # raw replies, as the Lua scripts give them
    return client
