"""The connections through which jobs reach Redis: plain commands, and reads that wait. Knows nothing of jobs."""

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

_AGAIN_S = (0.2, 5.0)  # the first wait after a fault, and the longest; each is twice the one before
_NOT_NOW = (OutOfMemoryError, ReadOnlyError, MasterDownError)  # refusals that pass
_logger = logging.getLogger(__name__)


class RedisDoor:
    """One Redis, asked with patience: unlike the cache, a job has nowhere else to be.

    Two pools, so that readers that wait for events cannot keep commands from their turn.

    Args:
        url: REDIS_URL.
        settle_s: what one command may take.
        block_s: how long a read waits for something to come before it is asked again.
        readers: reads that may wait at once.

    Raises: BadSettings for what is no URL of a Redis.
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
        """The reply to one command as it came. Raises: Unavailable; ResponseError for a refusal."""
        return await self._ask(self._commands, command)

    async def read(self, kind: str, *rest: str, streams: dict[str, str]) -> list[tuple[str, dict[str, bytes]]]:
        """Entries (id, fields) of streams after these ids; waits for one, and gives none after ``block_s``.

        Args:
            kind: XREAD or XREADGROUP; ``rest`` follows it.
        """
        command = (kind, *rest, "BLOCK", self._block_ms, "STREAMS", *streams, *streams.values())
        return entries_of(await self._ask(self._readers, command))

    async def pause(self, faults: int) -> None:
        """Wait before the next try, the longer the more in a row failed."""
        first_s, most_s = _AGAIN_S
        await asyncio.sleep(min(first_s * 2 ** min(faults, 10), most_s))

    async def close(self) -> None:
        """Close every connection."""
        for client in (self._commands, self._readers):
            try:
                await client.aclose(close_connection_pool=True)
            except (RedisError, OSError) as error:
                log_event(_logger, logging.DEBUG, "closing the Redis connections failed", error=type(error).__name__)

    async def _ask(self, client: Redis, command: tuple[Any, ...]) -> Any:
        task = asyncio.current_task()
        assert task is not None, "jobs are asked for in tasks"
        cancels = task.cancelling()
        try:
            reply = await client.execute_command(*command)  # type: ignore[no-untyped-call]  # as its own callers
        except ResponseError as error:
            if isinstance(error, _NOT_NOW) or str(error).startswith("MISCONF"):
                raise self._unavailable(f"takes no jobs ({error})") from error
            raise
        except (RedisError, OSError, TimeoutError) as error:
            raise self._unavailable(f"does not answer ({type(error).__name__})") from error
        finally:
            if task.cancelling() > cancels:  # redis-py 8.1 now and then swallows it (seen with XAUTOCLAIM)
                raise asyncio.CancelledError
        if self._down:
            self._down = False
            log_event(_logger, logging.INFO, "Redis answers for jobs again", redis=self.address)
        return reply

    def _unavailable(self, what: str) -> Unavailable:
        if not self._down:
            self._down = True
            log_event(_logger, logging.WARNING, "Redis fails jobs", redis=self.address, what=what)
        return Unavailable(
            f"jobs: Redis (REDIS_URL), where all replicas keep them, {what}. Try again, or send the file to "
            "/v1/documents, which answers without it",
            retry_after_s=_AGAIN_S[1],
        )


def entries_of(reply: Any) -> list[tuple[str, dict[str, bytes]]]:
    """The entries of a raw reply to XREAD, one list for all its streams."""
    return [entry_of(row) for _, rows in reply or () for row in rows if row[1] is not None]


def entry_of(row: Any) -> tuple[str, dict[str, bytes]]:
    """One entry of a stream: its id and its fields."""
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
    client.response_callbacks.clear()  # replies as they come: the scripts' are ours, and one form is enough
    return client
