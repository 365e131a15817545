"""Cached values never change, and no cache is a cache too."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from backend.cache.store import CachedVector, NullCache, VectorCache
from tests.cache.samples import key, value


def test_owned_lets_go_of_the_batch():
    """A kept row neither keeps the batch alive nor follows what its caller does to the batch."""
    batch = np.ones((32, 4), np.float32)
    kept = CachedVector(batch[1], tokens=3, truncated=False).owned()
    batch *= 7

    assert kept.vector.base is None
    assert [1, 1, 1, 1] == kept.vector.tolist()
    assert kept.owned() is kept
    with pytest.raises(ValueError, match="read-only"):
        kept.vector[0] = 0


def test_fragments_make_a_new_value():
    """A written form is kept by a value that takes the old one's place; the old one stays as it was."""
    plain = value(1)
    fuller = plain.with_fragment("float", b"[1]").with_fragment("base64", b'"AA"')

    assert plain.fragment("float") is None
    assert (b"[1]", b'"AA"', None) == tuple(fuller.fragment(form) for form in ("float", "base64", "other"))
    assert fuller.vector is plain.vector
    with pytest.raises(dataclasses.FrozenInstanceError):
        plain.tokens = 7  # type: ignore[misc]


async def test_null_cache():
    """Without a cache every look-up misses, in order and number, and nothing fails."""
    cache: VectorCache = NullCache()
    await cache.start()
    cache.store([key(1)], [value(1)])
    cache.keep_fragment(key(1), "float", b"[]")

    assert [None, None] == cache.lookup_local([key(1), key(2)])
    assert [None] == await cache.lookup([key(1)])
    assert not cache.status().enabled
    await cache.close()
