"""Bytes in the cache of vectors."""

import pytest

from backend.lanes.cache.redis_tier import decode, encode
from backend.lanes.cache.store import BlobCache, CachedVector, MemoryTier, NullCache, TieredCache
from backend.telemetry import Telemetry

KEY = bytes(range(16))


@pytest.fixture
def cache() -> TieredCache:
    return TieredCache(MemoryTier(2**20), None, Telemetry())


@pytest.mark.parametrize(
    "blob",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"1", id="no-whole-number"),
        pytest.param(b"abcd", id="whole"),
        pytest.param(bytes(range(256)) * 5, id="every-byte"),
        pytest.param(b"\x01\x00\x80\x7f" * 9, id="signalling-nan"),
        pytest.param(b"abc\0\0\0", id="zeros-at-its-end"),
    ],
)
async def test_what_comes_out_is_what_went_in(cache: TieredCache, blob: bytes) -> None:
    """Bit for bit, also through the format in Redis."""
    blobs = BlobCache(cache)

    blobs.put(KEY, blob)

    assert blob == await blobs.get(KEY)
    [cached] = cache.lookup_local([KEY])
    again = decode(KEY, encode(KEY, cached))
    assert cached.vector.tobytes() == again.vector.tobytes()


async def test_an_absent_blob(cache: TieredCache) -> None:
    """A miss is None, from an empty cache and from one that is off."""
    BlobCache(NullCache()).put(KEY, b"lost")

    assert await BlobCache(cache).get(KEY) is None
    assert await BlobCache(NullCache()).get(KEY) is None


async def test_a_vector_is_not_taken_for_a_blob(cache: TieredCache) -> None:
    """A length beyond the data makes it a miss."""
    import numpy as np

    cache.store([KEY], [CachedVector(np.full(3, 1e30, np.float32), 3, False)])

    assert await BlobCache(cache).get(KEY) is None
