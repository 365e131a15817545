"""Cached values are immutable, and ``NullCache`` is a cache."""

import numpy as np
import pytest

from backend.lanes.cache.store import CachedVector, NullCache, VectorCache
from tests.lanes.cache.samples import key, value


def test_owned_copies_out_of_the_batch():
    """An owned row neither keeps the batch alive nor changes with it."""
    batch = np.ones((32, 4), np.float32)
    owned = CachedVector(batch[1], tokens=3, truncated=False).owned()
    batch *= 7

    assert owned.vector.base is None
    assert [1, 1, 1, 1] == owned.vector.tolist()
    assert owned.owned() is owned
    with pytest.raises(ValueError, match="read-only"):
        owned.vector[0] = 0


async def test_null_cache():
    """Every look-up misses, with one None a key, and nothing fails."""
    cache: VectorCache = NullCache()
    await cache.start()
    cache.store([key(1)], [value(1)])
    cache.keep_fragment(key(1), "float", b"[]")

    assert [None, None] == cache.lookup_local([key(1), key(2)])
    assert [None] == await cache.lookup([key(1)])
    assert not cache.status().enabled
    await cache.close()
