"""The in-process tier: an LRU cache bounded in bytes. Not thread-safe: loop only."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from backend.lanes.cache.store import CachedVector

# Beside the vector's own bytes: key, dictionary slot, record, array header. Measured with tracemalloc on
# CPython 3.11 and numpy 2.4: 334 to 415, depending on how full the dictionary's table is and on the vector's origin.
ENTRY_BYTES = 416
FRAGMENT_BYTES = 136  # beside a fragment's own bytes: its header, the pair and its place; measured 107 to 120
MOST_FRAGMENTS = 4  # forms of one vector: float and base64, each also shortened


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
        if value is None or len(value.wire) >= MOST_FRAGMENTS or value.fragment(form) is not None:
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
