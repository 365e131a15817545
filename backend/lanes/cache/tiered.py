"""The cache of the service: memory in front of a shared tier. Counts hits and misses."""

from __future__ import annotations

from collections.abc import Sequence

from backend.lanes.cache.memory_tier import MemoryTier
from backend.lanes.cache.store import CachedVector, CacheStatus, NullRemote, RemoteTier
from backend.telemetry import Telemetry


class TieredCache:
    """Looks up memory first; what it lacks is fetched from the shared tier in one query and stored in memory.

    A request looks up memory, and awaits `lookup` only with the missing keys:

        values = cache.lookup_local(keys)                    # no await: hits cost next to nothing
        missing = [key for key, value in zip(keys, values) if value is None]
        if missing: … = await cache.lookup(missing)
    """

    def __init__(self, memory: MemoryTier, remote: RemoteTier | None, telemetry: Telemetry) -> None:
        self._memory = memory
        self._remote = remote or NullRemote()
        self._memory_hits = telemetry.cache_hits_total.labels("memory")
        self._remote_hits = telemetry.cache_hits_total.labels("redis")
        self._misses = telemetry.cache_misses_total
        telemetry.cache_bytes.set_function(lambda: memory.size_bytes)
        telemetry.cache_entries.set_function(lambda: len(memory))

    def lookup_local(self, keys: Sequence[bytes]) -> list[CachedVector | None]:
        """The values in memory, without waiting. Counts hits; an absent value is not a miss yet."""
        values = self._memory.get_many(keys)
        hits = len(values) - values.count(None)
        if hits:
            self._memory_hits.inc(hits)
        return values

    async def lookup(self, keys: Sequence[bytes]) -> list[CachedVector | None]:
        """The values in either tier. Counts hits by tier and misses."""
        values = self.lookup_local(keys)
        absent = [index for index, value in enumerate(values) if value is None]
        if not absent:
            return values
        fetched = await self._remote.get_many([keys[index] for index in absent])
        for index, value in zip(absent, fetched, strict=True):
            if value is not None:
                values[index] = value
                self._memory.put(keys[index], value)
        misses = fetched.count(None)
        self._misses.inc(misses)
        self._remote_hits.inc(len(fetched) - misses)
        return values

    def store(self, keys: Sequence[bytes], values: Sequence[CachedVector]) -> None:
        """Store values: in memory at once, in the shared tier in the background."""
        owned = [value.owned() for value in values]
        for key, value in zip(keys, owned, strict=True):
            self._memory.put(key, value)
        self._remote.put_many(keys, owned)

    def keep_fragment(self, key: bytes, form: str, fragment: bytes) -> None:
        """Store a vector's serialised form beside it in memory."""
        self._memory.keep_fragment(key, form, fragment)

    def shrink(self) -> None:
        """Forget the half in memory that was used longest ago."""
        self._memory.shrink()

    async def start(self) -> None:
        """Connect the shared tier, within its time budget."""
        await self._remote.start()

    async def close(self) -> None:
        """Write what is pending, close the shared tier, and clear memory."""
        await self._remote.close()
        self._memory.clear()

    def status(self) -> CacheStatus:
        """The size of memory and the state of the shared tier."""
        memory = self._memory
        return CacheStatus(True, len(memory), memory.size_bytes, memory.limit_bytes, self._remote.status())
