"""The cache the service talks to: memory in front, a shared tier behind, every count kept once a request."""

from __future__ import annotations

from collections.abc import Sequence

from backend.cache.memory_tier import MemoryCache
from backend.cache.store import CachedVector, CacheStatus, NullRemote, RemoteTier
from backend.telemetry import Telemetry


class TieredCache:
    """Memory first; what it lacks is asked of the shared tier in one question and then kept in memory.

    A request looks up locally, and awaits `lookup` with the rest only:

        found = cache.lookup_local(keys)                    # no await: hits cost next to nothing
        missing = [key for key, value in zip(keys, found) if value is None]
        if missing: … = await cache.lookup(missing)
    """

    def __init__(self, memory: MemoryCache, remote: RemoteTier | None, telemetry: Telemetry) -> None:
        self._memory = memory
        self._remote = remote or NullRemote()
        self._memory_hits = telemetry.cache_hits_total.labels("memory")
        self._remote_hits = telemetry.cache_hits_total.labels("redis")
        self._misses = telemetry.cache_misses_total
        telemetry.cache_bytes.set_function(lambda: memory.size_bytes)
        telemetry.cache_entries.set_function(lambda: len(memory))

    def lookup_local(self, keys: Sequence[bytes]) -> list[CachedVector | None]:
        """What memory holds, at once. Counts hits; what is absent is not a miss yet."""
        found = self._memory.get_many(keys)
        hits = len(found) - found.count(None)
        if hits:
            self._memory_hits.inc(hits)
        return found

    async def lookup(self, keys: Sequence[bytes]) -> list[CachedVector | None]:
        """What either tier holds. Counts hits by tier and misses."""
        found = self.lookup_local(keys)
        absent = [index for index, value in enumerate(found) if value is None]
        if not absent:
            return found
        fetched = await self._remote.get_many([keys[index] for index in absent])
        for index, value in zip(absent, fetched, strict=True):
            if value is not None:
                found[index] = value
                self._memory.put(keys[index], value)
        misses = fetched.count(None)
        self._misses.inc(misses)
        self._remote_hits.inc(len(fetched) - misses)
        return found

    def store(self, keys: Sequence[bytes], values: Sequence[CachedVector]) -> None:
        """Keep values: in memory at once, in the shared tier in the background."""
        owned = [value.owned() for value in values]
        for key, value in zip(keys, owned, strict=True):
            self._memory.put(key, value)
        self._remote.put_many(keys, owned)

    def keep_fragment(self, key: bytes, form: str, fragment: bytes) -> None:
        """Keep a vector's written form beside it in memory."""
        self._memory.keep_fragment(key, form, fragment)

    async def start(self) -> None:
        """Connect the shared tier, within its time budget."""
        await self._remote.start()

    async def close(self) -> None:
        """Write what is pending, let the shared tier go, and forget."""
        await self._remote.close()
        self._memory.clear()

    def status(self) -> CacheStatus:
        """What memory holds and how the shared tier does."""
        memory = self._memory
        return CacheStatus(True, len(memory), memory.size_bytes, memory.limit_bytes, self._remote.status())
