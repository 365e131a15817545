"""Files and results in Redis: lists of chunks, each with an expiry from its first byte on. Knows nothing of jobs."""

from __future__ import annotations

from contextlib import suppress

from backend.errors import Unavailable
from backend.jobs.redis_connections import RedisConnections
from backend.jobs.redis_scripts import OPEN_LIST

CHUNK_BYTES = 2**20


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
