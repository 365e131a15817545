"""What the cache keeps and what it promises. Knows no Redis, no clock and no HTTP; `NullCache` keeps nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class CachedVector:
    """One text's vector and what was learnt on the way to it. Never changes; a cache swaps whole values."""

    vector: NDArray[np.float32] = field(repr=False)  # shape (width,), read-only once a cache holds it
    tokens: int  # the text's tokens, special ones included, as usage counts them
    truncated: bool  # the text was cut at the model's length
    wire: tuple[tuple[str, bytes], ...] = field(
        default=(), repr=False
    )  # (form, the vector as already written out); memory only, few

    def fragment(self, form: str) -> bytes | None:
        """The vector written out in this form, if it has been kept."""
        for name, fragment in self.wire:
            if name == form:
                return fragment
        return None

    def with_fragment(self, form: str, fragment: bytes) -> CachedVector:
        """The same value that also carries the vector written out in this form."""
        return replace(self, wire=(*self.wire, (form, fragment)))

    def owned(self) -> CachedVector:
        """The same value on read-only memory of its own.

        A row of a batch's output would keep the whole batch alive, and its caller may yet normalise it in place.
        """
        assert self.vector.dtype == np.float32
        assert self.vector.ndim == 1
        base: object = self.vector.base  # numpy's stub knows arrays only; frombuffer's is the bytes
        if not self.vector.flags.writeable and (base is None or isinstance(base, bytes)):
            return self
        vector = np.array(self.vector, order="C")
        vector.flags.writeable = False
        return replace(self, vector=vector)


@dataclass(frozen=True, slots=True)
class RedisStatus:
    """Where the shared tier stands, for people and for /health."""

    address: str  # without user, password and options
    state: str  # "closed" (in use) | "open" (left alone) | "half_open" (being tried)
    retry_in_s: float  # until an open circuit is tried again, at the next request; else 0
    pending_bytes: int  # vectors that wait to be written
    last_error: str | None  # the last fault of a look-up, password blanked out


@dataclass(frozen=True, slots=True)
class CacheStatus:
    """What the cache holds now."""

    enabled: bool
    memory_entries: int
    memory_bytes: int
    memory_limit_bytes: int
    redis: RedisStatus | None


class VectorCache(Protocol):
    """A cache of vectors. Loop only; no method raises for a fault of the cache.

    A hit is bit for bit what was stored. Values in answers follow the keys' order, None for a miss. Equal keys
    in one request, and requests under way for the same text, are the service's business.
    """

    def lookup_local(self, keys: Sequence[bytes]) -> list[CachedVector | None]:
        """What memory holds, at once. Counts hits; what is absent is not a miss yet."""

    async def lookup(self, keys: Sequence[bytes]) -> list[CachedVector | None]:
        """What any tier holds: memory, then one question to Redis for the rest, within its time budget."""

    def store(self, keys: Sequence[bytes], values: Sequence[CachedVector]) -> None:
        """Keep values: in memory at once, in Redis in the background. The first value of a key stays."""

    def keep_fragment(self, key: bytes, form: str, fragment: bytes) -> None:
        """Keep a vector's written form beside it in memory, so that later hits need not format it.

        Worth its bytes (2 to 8 KB for 384 floats) from a text's first hit on, not for texts seen once.
        """

    async def start(self) -> None:
        """Connect; returns within the time budget whether that worked or not."""

    async def close(self) -> None:
        """Write what is pending within a short budget and let go. Later look-ups miss, later values are dropped."""

    def status(self) -> CacheStatus:
        """What it holds and how Redis does."""


class RemoteTier(Protocol):
    """A shared tier behind memory. Loop only; never raises for a fault of its own and keeps its time budget."""

    async def get_many(self, keys: Sequence[bytes]) -> list[CachedVector | None]:
        """One question for all keys; None where there is no sound answer in time."""

    def put_many(self, keys: Sequence[bytes], values: Sequence[CachedVector]) -> None:
        """Take values to be written in the background; what does not fit is dropped and counted."""

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    def status(self) -> RedisStatus | None: ...


class NullRemote:
    """No shared tier: memory is the whole cache."""

    async def get_many(self, keys: Sequence[bytes]) -> list[CachedVector | None]:
        return [None] * len(keys)

    def put_many(self, keys: Sequence[bytes], values: Sequence[CachedVector]) -> None: ...

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    def status(self) -> RedisStatus | None:
        return None


class NullCache:
    """No cache: every look-up misses and nothing is counted."""

    def lookup_local(self, keys: Sequence[bytes]) -> list[CachedVector | None]:
        return [None] * len(keys)

    async def lookup(self, keys: Sequence[bytes]) -> list[CachedVector | None]:
        return [None] * len(keys)

    def store(self, keys: Sequence[bytes], values: Sequence[CachedVector]) -> None: ...

    def keep_fragment(self, key: bytes, form: str, fragment: bytes) -> None: ...

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    def status(self) -> CacheStatus:
        return CacheStatus(enabled=False, memory_entries=0, memory_bytes=0, memory_limit_bytes=0, redis=None)
