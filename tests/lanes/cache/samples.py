"""Keys and values for the tests of the cache."""

import numpy as np

from backend.lanes.cache.store import CachedVector


def key(number: int) -> bytes:
    """The key of the input with this number."""
    return number.to_bytes(16, "big")


def value(number: int, *, width: int = 8, truncated: bool = False) -> CachedVector:
    """An owned value that differs by number in every field."""
    vector = np.random.default_rng(number).standard_normal(width).astype(np.float32)
    return CachedVector(vector, tokens=number + 2, truncated=truncated).owned()


def content(cached: CachedVector | None) -> tuple[bytes, int, bool] | None:
    """The fields in which equal values agree, bit for bit."""
    return None if cached is None else (cached.vector.tobytes(), cached.tokens, cached.truncated)


def contents(cached: list[CachedVector | None]) -> list[tuple[bytes, int, bool] | None]:
    """`content` of each."""
    return [content(entry) for entry in cached]
