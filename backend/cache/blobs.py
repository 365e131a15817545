"""Bytes of any kind in the cache of vectors: what a page says is kept where vectors are, by the same rules."""

from __future__ import annotations

import struct

import numpy as np

from backend.cache.store import CachedVector, VectorCache

_LENGTH = struct.Struct("<I")
_FLOAT_BYTES = 4


class BlobCache:
    """Bytes by key. Loop only; a fault of the cache is a miss.

    Bytes travel as the bits of float32 numbers, which no tier computes with: what comes out is what went in.
    """

    def __init__(self, vectors: VectorCache) -> None:
        self._vectors = vectors

    async def get(self, key: bytes) -> bytes | None:
        """What is kept under a key; None where nothing is, or what is there cannot be ours."""
        [kept] = await self._vectors.lookup([key])
        if kept is None:
            return None
        packed = kept.vector.tobytes()
        [length] = _LENGTH.unpack_from(packed)
        return packed[_LENGTH.size : _LENGTH.size + length] if length <= len(packed) - _LENGTH.size else None

    def put(self, key: bytes, blob: bytes) -> None:
        """Keep these bytes; the first ones of a key stay."""
        padding = -len(blob) % _FLOAT_BYTES
        packed = _LENGTH.pack(len(blob)) + blob + bytes(padding)
        self._vectors.store([key], [CachedVector(np.frombuffer(packed, np.float32), tokens=0, truncated=False)])
