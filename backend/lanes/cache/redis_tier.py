"""The tier in Redis, shared by replicas: one MGET a look-up, written in the background in pipelines.

The format of values in Redis: a header of 16 bytes, then the vector as little-endian float32. Pure.

    magic "FIv" (3), version (1), flags (1), zero (3), tokens (4), crc32 (4), vector (4 x width)

The checksum covers the key, the rest of the header and the vector. So foreign, torn or altered bytes are recognised,
and values of another key (a reply out of order, a renamed key).
"""

from __future__ import annotations

import asyncio
import logging
import struct
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from zlib import crc32

import numpy as np
from redis.exceptions import InvalidResponse, ResponseError

from backend.lanes.cache.redis_client import CircuitBreaker, Permit, RedisClient, RedisOptions, State
from backend.lanes.cache.store import CachedVector, RedisStatus
from backend.supervision import Supervisor
from backend.telemetry import Telemetry, log_event

PIPELINE_WRITES = 64  # encoding and packing so many blocks the loop for about a millisecond
_logger = logging.getLogger(__name__)
_HEAD = struct.Struct("<3sBB3xI")
_SUM = struct.Struct("<I")
HEADER_BYTES = _HEAD.size + _SUM.size
_MAGIC = b"FIv"
_VERSION = 1
_TRUNCATED = 1  # the one flag there is
_FLOAT = np.dtype("<f4")


class RedisTier:
    """The shared tier. A fault of Redis costs a look-up its time budget at most and never raises.

    Two circuits: the client's, for look-ups; and one for writes, which opens when a Redis that answers refuses them
    (full, read-only). Nothing is written while either is open.
    """

    def __init__(
        self,
        options: RedisOptions,
        telemetry: Telemetry,
        supervisor: Supervisor | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._prefix = options.prefix
        self._ttl_ms = max(1, round(options.ttl_s * 1000))
        self._write_s = options.settle_s
        self._flush_s = options.flush_s
        self._supervisor = supervisor or Supervisor(telemetry)
        self._client = RedisClient(options, telemetry, clock=clock)
        self._writes = CircuitBreaker(options.breaker, clock)
        self._pending = PendingWrites(options.pending_bytes)
        self._writer: asyncio.Task[None] | None = None
        self._closed = False
        self._errors = telemetry.cache_errors_total

    async def start(self) -> None:
        """Connect; returns within the time budget whether that worked or not."""
        await self._client.start()

    async def get_many(self, keys: Sequence[bytes]) -> list[CachedVector | None]:
        """The values in Redis; None for what is absent, invalid, late, or not queried."""
        replies = None
        if keys and not self._closed:
            replies = await self._client.query(("MGET", *map(self._name, keys)), read=partial(_values, len(keys)))
        if replies is None:
            return [None] * len(keys)
        values = [_decoded(key, reply) for key, reply in zip(keys, replies, strict=True)]
        self._count_errors("foreign", values.count(None) - replies.count(None))
        return values

    def put_many(self, keys: Sequence[bytes], values: Sequence[CachedVector]) -> None:
        """Queue values to be written in the background; those dropped for lack of space or of Redis are counted."""
        if self._closed or self._client.state is not State.CLOSED:
            self._count_errors("write", len(keys))
            return
        dropped = sum(not self._pending.add(key, value) for key, value in zip(keys, values, strict=True))
        self._count_errors("write", dropped)
        if self._writer is None or self._writer.done():
            self._writer = self._supervisor.run("write_cache", self._write_pending)

    async def close(self) -> None:
        """Give pending writes ``flush_s`` to end, count the rest as dropped, close every connection."""
        self._closed = True
        if self._writer is not None:
            await asyncio.wait({self._writer}, timeout=self._flush_s)
            self._writer.cancel()
        self._count_errors("write", self._pending.clear())
        await self._client.close()
        if self._writer is not None:
            await asyncio.gather(self._writer, return_exceptions=True)

    def status(self) -> RedisStatus:
        """Address, circuit and backlog; never the password."""
        client = self._client
        return RedisStatus(
            client.address, client.state.value, client.retry_in_s, self._pending.size_bytes, client.last_error
        )

    async def _write_pending(self) -> None:
        """Write until nothing is pending. One task at a time: `put_many` starts it, `close` awaits it."""
        while batch := self._pending.take(PIPELINE_WRITES):
            lost = len(batch)
            try:
                lost = await self._write(batch)
            finally:
                self._count_errors("write", lost)

    async def _write(self, batch: Sequence[tuple[bytes, CachedVector]]) -> int:
        """Write these in one pipeline; returns how many were not written."""
        permit = self._writes.acquire() if self._client.state is State.CLOSED else None
        if permit is None:
            return len(batch)
        try:
            async with asyncio.timeout(self._write_s):
                replies = await self._set(batch)
        except asyncio.CancelledError:
            self._writes.abandon(permit)
            raise
        except Exception as error:  # noqa: BLE001 - border: whatever went wrong, nothing is written
            self._refused(permit, error)
            return len(batch)
        errors = [reply for reply in replies if isinstance(reply, ResponseError)]
        if errors:
            self._refused(permit, errors[0])
        else:
            self._accepted(permit)
        return len(errors)

    async def _set(self, batch: Sequence[tuple[bytes, CachedVector]]) -> list[object]:
        commands = [("SET", self._name(key), encode(key, value), "PX", self._ttl_ms) for key, value in batch]
        return await self._client.execute(commands, read=list)

    def _refused(self, permit: Permit, error: Exception) -> None:
        self._writes.fail(permit)
        if self._writes.state is State.OPEN and not permit.probe:
            log_event(
                _logger,
                logging.WARNING,
                "Redis takes no writes, new vectors stay in memory alone",
                redis=self._client.address,
                error=self._client.describe(error),
            )

    def _accepted(self, permit: Permit) -> None:
        self._writes.succeed(permit)
        if permit.probe:
            log_event(_logger, logging.INFO, "Redis takes writes again", redis=self._client.address)

    def _name(self, key: bytes) -> str:
        return f"{self._prefix}:vector:{key.hex()}"

    def _count_errors(self, kind: str, count: int) -> None:
        if count:
            self._errors.labels(kind).inc(count)


class PendingWrites:
    """Values waiting to be written, oldest first, bounded in bytes."""

    def __init__(self, limit_bytes: int) -> None:
        self.size_bytes = 0
        self._limit_bytes = limit_bytes
        self._waiting: deque[tuple[bytes, CachedVector]] = deque()

    def add(self, key: bytes, value: CachedVector) -> bool:
        """Queue a value unless the limit is reached."""
        size = HEADER_BYTES + value.vector.nbytes
        if self.size_bytes + size > self._limit_bytes:
            return False
        self._waiting.append((key, value))
        self.size_bytes += size
        return True

    def take(self, most: int) -> list[tuple[bytes, CachedVector]]:
        """Remove and return the oldest values, at most so many."""
        taken = [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]
        self.size_bytes -= sum(HEADER_BYTES + value.vector.nbytes for _, value in taken)
        return taken

    def clear(self) -> int:
        """Drop everything; returns how many values that were."""
        return len(self.take(len(self._waiting)))


def _values(count: int, reply: object) -> list[object]:
    if not isinstance(reply, list) or len(reply) != count:
        raise InvalidResponse("the answer to MGET is not a list of that many values")
    return reply


def _decoded(key: bytes, reply: object) -> CachedVector | None:
    return decode(key, reply) if isinstance(reply, bytes) else None


def encode(key: bytes, value: CachedVector) -> bytes:
    """The bytes to store under this key."""
    head = _HEAD.pack(_MAGIC, _VERSION, _TRUNCATED if value.truncated else 0, value.tokens)
    vector = value.vector.astype(_FLOAT, copy=False).tobytes()
    return b"".join((head, _SUM.pack(_checksum(key, head, vector)), vector))


def decode(key: bytes, data: bytes) -> CachedVector | None:
    """The value of this key, or None if the bytes are not a valid value of it.

    The vector is a read-only view of ``data``: nothing is copied.
    """
    floats, rest = divmod(len(data) - HEADER_BYTES, _FLOAT.itemsize)
    if floats < 1 or rest:
        return None
    head, body = data[: _HEAD.size], memoryview(data)[HEADER_BYTES:]
    magic, version, flags, tokens = _HEAD.unpack(head)
    if (magic, version) != (_MAGIC, _VERSION) or flags & ~_TRUNCATED:
        return None
    if _SUM.unpack_from(data, _HEAD.size)[0] != _checksum(key, head, body):
        return None
    vector = np.frombuffer(data, _FLOAT, offset=HEADER_BYTES)
    return CachedVector(vector.astype(np.float32, copy=False), tokens, bool(flags & _TRUNCATED))


def _checksum(key: bytes, head: bytes, vector: bytes | memoryview) -> int:
    return crc32(vector, crc32(head, crc32(key)))
