"""Stores bytes, such as read pages, in the cache of vectors, under the same limits and lifetimes."""

from __future__ import annotations

import struct

import numpy as np

from backend.lanes.cache.store import CachedVector, VectorCache

_LENGTH = struct.Struct("<I")
_FLOAT_BYTES = 4


class BlobCache:
    """Bytes by key. Loop only; a fault of the cache is a miss.

    Bytes are stored as the bits of float32 numbers, which no tier computes with.
    """

    def __init__(self, vectors: VectorCache) -> None:
        self._vectors = vectors

    async def get(self, key: bytes) -> bytes | None:
        """The bytes of a key; None where it has none, or they are malformed."""
        [cached] = await self._vectors.lookup([key])
        if cached is None:
            return None
        packed = cached.vector.tobytes()
        [length] = _LENGTH.unpack_from(packed)
        return packed[_LENGTH.size : _LENGTH.size + length] if length <= len(packed) - _LENGTH.size else None

    def put(self, key: bytes, blob: bytes) -> None:
        """Store these bytes; a key's first value stays."""
        padding = -len(blob) % _FLOAT_BYTES
        packed = _LENGTH.pack(len(blob)) + blob + bytes(padding)
        self._vectors.store([key], [CachedVector(np.frombuffer(packed, np.float32), tokens=0, truncated=False)])
