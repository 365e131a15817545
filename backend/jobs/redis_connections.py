"""Redis connections for job stores: one pool for commands, one for blocking stream reads. And bytes in parts.

Knows nothing of jobs.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import orjson
from redis.exceptions import RedisError, ResponseError

from backend.errors import BadSettings, Unavailable
from backend.jobs.redis_scripts import OPEN_LIST
from backend.lanes.cache.redis_client import NO_CLUSTER, Command, RedisPool, address, error_code
from backend.retry import Backoff
from backend.telemetry import log_event

_RETRY = Backoff(0.2, 5.0)
_COMMANDS = 16  # at once; further ones wait
_PASSING = frozenset(("OOM", "READONLY", "MASTERDOWN", "MISCONF", "NOREPLICAS", "UNBLOCKED", "LOADING", "BUSY")) | {
    "NOAUTH",
    "WRONGPASS",
    "NOPERM",
}  # codes of error replies that pass, the last when an operator mends them
_CLUSTER = frozenset(("MOVED", "ASK", "CROSSSLOT", "TRYAGAIN", "CLUSTERDOWN"))
_DROPS_ANY = re.compile(r"maxmemory_policy:(allkeys-\w+)")
_MAXMEMORY = re.compile(r"\bmaxmemory:(\d+)")
_logger = logging.getLogger(__name__)
CHUNK_BYTES = 2**20


class RedisConnections:
    """Connections to one Redis. Unlike the cache, jobs cannot do without it, so commands get seconds to answer.

    Two pools, so that blocking reads cannot use up the connections that commands need.

    Args:
        url: REDIS_URL.
        settle_s: timeout of one command, and of getting a connection for it.
        block_s: how long one blocking read waits before it returns nothing.
        readers: blocking reads at once.

    Raises: BadSettings for a bad URL.
    """

    def __init__(self, url: str, *, settle_s: float, block_s: float, readers: int) -> None:
        try:
            self.address = address(url)
            self._commands = RedisPool(url, connections=_COMMANDS, connect_s=settle_s, answer_s=settle_s)
            self._readers = RedisPool(url, connections=readers, connect_s=settle_s, answer_s=block_s + settle_s)
        except ValueError:  # from None: its message may quote the password
            raise BadSettings(["REDIS_URL: not the address of a Redis"]) from None
        self._block_ms = max(1, round(block_s * 1000))
        self._down = False
        self.limit_bytes = 0  # maxmemory; 0: none, or not known yet

    async def call(self, *command: str | bytes | float) -> Any:
        """The raw reply to one command. Raises: Unavailable; ResponseError for an error reply that does not pass."""
        return await self._execute(self._commands, command)

    async def run(self, script: str, keys: Sequence[str], *arguments: str | bytes | float | dict[str, Any]) -> Any:
        """The raw reply of a Lua script; a dict is passed as JSON. Raises as `call`."""
        words = [orjson.dumps(argument) if isinstance(argument, dict) else argument for argument in arguments]
        return await self.call("EVAL", script, len(keys), *keys, *words)

    async def check_server(self) -> None:
        """Know its limit, and warn of a Redis that drops any key when it is full. Raises: Unavailable."""
        try:
            information = (await self.call("INFO")).decode(errors="replace")
        except ResponseError:
            return  # a service that hides it; commands will tell
        if limit := _MAXMEMORY.search(information):
            self.limit_bytes = int(limit[1])
        if policy := _DROPS_ANY.search(information):
            log_event(
                _logger,
                logging.WARNING,
                "a full Redis drops jobs, their queue and shared records: set maxmemory-policy to volatile-ttl",
                redis=self.address,
                maxmemory_policy=policy[1],
            )

    async def read(self, command: str, *arguments: str, streams: dict[str, str]) -> list[tuple[str, dict[str, bytes]]]:
        """Entries (id, fields) of streams after these ids. Waits for one, and returns none after ``block_s``.

        Args:
            command: XREAD or XREADGROUP, with its ``arguments``.
        """
        words: Command = (command, *arguments, "BLOCK", self._block_ms, "STREAMS", *streams, *streams.values())
        return stream_entries(await self._execute(self._readers, words))

    async def pause(self, faults: int) -> None:
        """Wait before the next try, after so many ``faults`` in a row."""
        await asyncio.sleep(_RETRY.wait_s(faults))

    async def close(self) -> None:
        """Close every connection. Waits for no reply: commands in progress raise Unavailable."""
        await self._commands.close()
        await self._readers.close()

    async def _execute(self, pool: RedisPool, command: Command) -> Any:
        try:
            reply = await pool.ask(command)
        except ResponseError as error:
            if (code := error_code(error)) in _CLUSTER:
                raise self._unavailable(NO_CLUSTER) from error
            if code in _PASSING:
                raise self._unavailable(f"takes no jobs ({error})") from error
            raise
        except (RedisError, OSError, TimeoutError) as error:
            raise self._unavailable(f"does not answer ({type(error).__name__})") from error
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
            retry_after_s=_RETRY.most_s,
        )


def stream_entries(reply: Any) -> list[tuple[str, dict[str, bytes]]]:
    """The entries of a raw XREAD reply, of all its streams in one list."""
    return [stream_entry(row) for _, rows in reply or () for row in rows if row[1] is not None]


def stream_entry(row: Any) -> tuple[str, dict[str, bytes]]:
    """Id and fields of a raw stream entry."""
    entry, flat = row
    return entry.decode(), {name.decode(): value for name, value in zip(flat[::2], flat[1::2], strict=True)}


class RedisChunks:
    """Bytes as lists of an empty chunk and then chunks of at most 1 MiB."""

    def __init__(self, redis: RedisConnections) -> None:
        self._redis = redis

    async def put(self, key: str, content: bytes, keep_s: float) -> int:
        """Write bytes that expire after ``keep_s`` unless a job takes them; the length of the list.

        Whatever ends it early, nothing is left of them, or what is left expires. Raises: Unavailable, also where a
        full Redis dropped them again.
        """
        try:
            return await self._write(key, memoryview(content), keep_s)
        except BaseException:
            await self.drop(key)
            raise

    async def get(self, key: str) -> bytes | None:
        chunks = await self._redis.call("LRANGE", key, 0, -1)
        return b"".join(chunks) if chunks else None

    async def drop(self, key: str) -> None:
        """Remove the bytes; where Redis is away, they expire."""
        with suppress(Unavailable):
            await self._redis.call("UNLINK", key)

    async def _write(self, key: str, content: memoryview, keep_s: float) -> int:
        await self._redis.run(OPEN_LIST, (key,), round(keep_s * 1000))
        chunks = 1
        for start in range(0, len(content), CHUNK_BYTES):
            chunks += 1
            if await self._redis.call("RPUSHX", key, bytes(content[start : start + CHUNK_BYTES])) != chunks:
                raise dropped()
        return chunks


def dropped() -> Unavailable:
    """The error for bytes that Redis dropped before their job was written."""
    return Unavailable(
        "jobs: Redis (REDIS_URL) dropped what was just written, for want of memory (maxmemory). Try again later, or "
        "send the file to /v1/documents, which answers without it",
        retry_after_s=5.0,
    )
