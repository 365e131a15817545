"""The cache of the service: an LRU tier in memory, bounded in bytes, in front of a shared tier. Loop only."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from backend.lanes.cache.store import CachedVector, CacheStatus, NullRemote, RemoteTier
from backend.telemetry import Telemetry

# Beside the vector's own bytes: key, dictionary slot, record, array header. Measured with tracemalloc on
# CPython 3.11 and numpy 2.4: 334 to 415, depending on how full the dictionary's table is and on the vector's origin.
ENTRY_BYTES = 416
FRAGMENT_BYTES = 136  # beside a fragment's own bytes: its header, the pair and its place; measured 107 to 120
MAX_FRAGMENTS = 4  # forms of one vector: float and base64, each also shortened


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


class MemoryTier:
    """An LRU cache of vectors, of at most ``limit_bytes``."""

    __slots__ = ("_bytes", "_entries", "limit_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._entries: OrderedDict[bytes, CachedVector] = OrderedDict()
        self._bytes = 0

    @property
    def size_bytes(self) -> int:
        """Bytes held, overhead and fragments included."""
        return self._bytes

    def __len__(self) -> int:
        return len(self._entries)

    def get_many(self, keys: Sequence[bytes]) -> list[CachedVector | None]:
        """The values of these keys, None where there is none; each hit becomes the most recent."""
        entries, touch = self._entries, self._entries.move_to_end
        values = list(map(entries.get, keys))
        for key, value in zip(keys, values, strict=True):
            if value is not None:
                touch(key)
        return values

    def put(self, key: bytes, value: CachedVector) -> None:
        """Store an owned value as the most recent. A key's first value stays; a value over the limit is not stored."""
        if key in self._entries:
            self._entries.move_to_end(key)
            return
        size = _size(value)
        if size > self.limit_bytes:
            return
        self._entries[key] = value
        self._bytes += size
        self._evict(self.limit_bytes)

    def keep_fragment(self, key: bytes, form: str, fragment: bytes) -> None:
        """Store a serialised form beside its vector. Its bytes count, and may evict the least recent."""
        value = self._entries.get(key)
        if value is None or len(value.wire) >= MAX_FRAGMENTS or value.fragment(form) is not None:
            return
        extended = value.with_fragment(form, fragment)
        if _size(extended) > self.limit_bytes:
            return
        self._entries[key] = extended
        self._entries.move_to_end(key)
        self._bytes += _size(extended) - _size(value)
        self._evict(self.limit_bytes)

    def clear(self) -> None:
        self._entries.clear()
        self._bytes = 0

    def shrink(self) -> None:
        """Forget the half that was used longest ago; the limit stays."""
        self._evict(self._bytes // 2)

    def _evict(self, most_bytes: int) -> None:
        while self._bytes > most_bytes:
            _, oldest = self._entries.popitem(last=False)
            self._bytes -= _size(oldest)


def _size(value: CachedVector) -> int:
    return ENTRY_BYTES + value.vector.nbytes + sum(FRAGMENT_BYTES + len(fragment) for _, fragment in value.wire)
