"""The format of values in Redis: a header of 16 bytes, then the vector as little-endian float32. Pure.

    magic "FIv" (3), version (1), flags (1), zero (3), tokens (4), crc32 (4), vector (4 x width)

The checksum covers the key, the rest of the header and the vector. So foreign, torn or altered bytes are recognised,
and values of another key (a reply out of order, a renamed key).
"""

from __future__ import annotations

import struct
from zlib import crc32

import numpy as np

from backend.lanes.cache.store import CachedVector

_HEAD = struct.Struct("<3sBB3xI")
_SUM = struct.Struct("<I")
HEADER_BYTES = _HEAD.size + _SUM.size
_MAGIC = b"FIv"
_VERSION = 1
_TRUNCATED = 1  # the one flag there is
_FLOAT = np.dtype("<f4")


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
