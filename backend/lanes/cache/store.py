"""The cache of the service: its keys, and an LRU tier in memory, bounded in bytes, in front of a shared tier.

For whom results are cached: for all callers, or for one alone (CACHE_SCOPE=key). Whoever begins work for a caller
enters `cached_for`; every key, and so every work item that equal inputs would share, is then that caller's own, in this
task and those that it starts. What is entered by nobody, such as the vectors of bundled texts, is shared.

Tiers belong to the event loop; keys are pure. The shared tier is an interface here: knows no Redis, no clock and no
HTTP.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, Literal, Protocol, overload

import numpy as np
from numpy.typing import NDArray

from backend.telemetry import Telemetry

KEY_BYTES = 16  # 128 bits: 2^64 texts until a collision is likely
_LAYOUT = b"financia-key-1"  # blake2b's personalisation; a new number invalidates every older key

Kind = Literal["text", "ids", "file"]
CacheScope = Literal["service", "key"]
Enter = Callable[[str], AbstractContextManager[None]]  # by the `Caller.owner` that the work is for
_owner: ContextVar[bytes] = ContextVar("cached_for", default=b"")


class CacheNamespace:
    """The keys of one model, one task and one set of parameters.

    The parts are hashed once; a key costs a copy of that state, the input's bytes and a digest (measured
    0.6 us for a sentence). Parts and inputs are length-prefixed, so that no two namespaces or inputs share
    a key: ("ab", "c") is not ("a", "bc"), and a text is not its token ids.

    Args:
        parts: whatever changes the result. For a model: its fingerprint, runtime and dtype.
        framed: the parts of the namespace that this one narrows; set by `narrow`.
    """

    __slots__ = ("_framed", "_states")

    def __init__(self, *parts: str, framed: bytes = b"") -> None:
        self._framed = framed + _frame(parts)
        self._states = {kind: _state(self._framed, kind) for kind in _BYTES}

    def narrow(self, *parameters: str) -> CacheNamespace:
        """The keys of the same model under these task parameters, such as prompt, truncation and dimensions."""
        return CacheNamespace(*parameters, framed=self._framed)

    @overload
    def key(self, kind: Literal["text"], data: str) -> bytes: ...
    @overload
    def key(self, kind: Literal["ids"], data: Sequence[int] | NDArray[np.integer[Any]]) -> bytes: ...
    @overload
    def key(self, kind: Literal["file"], data: bytes) -> bytes: ...

    def key(self, kind: Kind, data: Any) -> bytes:
        """The key of one input, 16 bytes.

        Any text has one, lone surrogates and NUL included. Token ids must be checked against the vocabulary
        first: one that is no integer raises TypeError, one beyond 64 bits OverflowError.
        """
        state = self._states[kind].copy()
        state.update(_BYTES[kind](data))
        if scope := owner_scope():  # under CACHE_SCOPE=key each caller has keys of its own
            return blake2b(state.digest(), digest_size=KEY_BYTES, key=scope, person=_LAYOUT).digest()
        return state.digest()


def _state(framed: bytes, kind: str) -> blake2b:
    data_follows = b"D" + kind.encode().ljust(7)  # the last part needs no length
    return blake2b(framed + data_follows, digest_size=KEY_BYTES, person=_LAYOUT)


def _frame(parts: Sequence[str]) -> bytes:
    encoded = [_text_bytes(part) for part in parts]
    return b"P%d:" % len(encoded) + b"".join(b"%d:%b" % (len(part), part) for part in encoded)


def _text_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")  # injective, lone surrogates included


def _ids_bytes(ids: Sequence[int] | NDArray[np.integer[Any]]) -> bytes:
    if isinstance(ids, np.ndarray):  # of windows: a number at a time would hold up the loop in long texts
        return ids.astype("<i8").tobytes()
    words = array("q", ids)
    if sys.byteorder == "big":  # replicas share Redis
        words.byteswap()
    return words.tobytes()


_BYTES: Mapping[str, Callable[[Any], bytes]] = {"text": _text_bytes, "ids": _ids_bytes, "file": bytes}


def owner_scope() -> bytes:
    """Part of every cache key; empty where it is shared by all."""
    return _owner.get()


@contextmanager
def cached_for(owner: str) -> Iterator[None]:
    """Keep what is cached meanwhile for this owner alone; "": for all, as nothing of it comes from a caller."""
    token = _owner.set(owner.encode("ascii"))
    try:
        yield
    finally:
        _owner.reset(token)


def share_with_all(_owner: str) -> AbstractContextManager[None]:
    """`Enter` where all callers share the caches."""
    return nullcontext()


def entry(scope: CacheScope) -> Enter:
    """How work for a caller begins under CACHE_SCOPE."""
    return cached_for if scope == "key" else share_with_all


@dataclass(frozen=True, slots=True, eq=False)
class CachedVector:
    """One text's vector with its token count. Immutable; a cache replaces whole values."""

    vector: NDArray[np.float32] = field(repr=False)  # shape (width,), read-only once a cache holds it
    tokens: int  # the text's tokens, special ones included, as usage counts them
    truncated: bool  # the text was cut at the model's length
    wire: tuple[tuple[str, bytes], ...] = field(
        default=(), repr=False
    )  # (form, the serialised vector); in memory only, few

    def fragment(self, form: str) -> bytes | None:
        """The vector serialised in this form, if it was stored."""
        for name, fragment in self.wire:
            if name == form:
                return fragment
        return None

    def with_fragment(self, form: str, fragment: bytes) -> CachedVector:
        """The same value with the vector serialised in this form."""
        return replace(self, wire=(*self.wire, (form, fragment)))

    def owned(self) -> CachedVector:
        """The same value in read-only memory of its own.

        A row of a batch's output would keep the whole batch alive, and its caller may still normalise it in place.
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
    """State of the shared tier, for /health."""

    address: str  # without user, password and options
    state: str  # "closed" (in use) | "open" (not called) | "half_open" (being probed)
    retry_in_s: float  # until an open circuit is probed, by the next request; else 0
    pending_bytes: int  # vectors that wait to be written
    last_error: str | None  # the last fault of a look-up, without the password


@dataclass(frozen=True, slots=True)
class CacheStatus:
    """Size and state of the cache."""

    enabled: bool
    memory_entries: int
    memory_bytes: int
    memory_limit_bytes: int
    redis: RedisStatus | None


class VectorCache(Protocol):
    """A cache of vectors. Loop only; no method raises for a fault of the cache.

    A hit is bit for bit what was stored. Results are in the order of the keys, None for a miss. Services deduplicate
    equal keys of a request and of concurrent requests.
    """

    def lookup_local(self, keys: Sequence[bytes]) -> list[CachedVector | None]:
        """The values in memory, without waiting. Counts hits; an absent value is not a miss yet."""

    async def lookup(self, keys: Sequence[bytes]) -> list[CachedVector | None]:
        """The values in any tier: memory, then one query to Redis for the others, within its time budget."""

    def store(self, keys: Sequence[bytes], values: Sequence[CachedVector]) -> None:
        """Store values: in memory at once, in Redis in the background. The first value of a key stays."""

    def keep_fragment(self, key: bytes, form: str, fragment: bytes) -> None:
        """Store a vector's serialised form beside it in memory, so that later hits need not format it.

        Worth its bytes (2 to 8 KB for 384 floats) from a text's first hit on, not for texts seen once.
        """

    def shrink(self) -> None:
        """Forget half of what is in memory."""

    async def start(self) -> None:
        """Connect; returns within the time budget whether that worked or not."""

    async def close(self) -> None:
        """Write what is pending within a short budget and close. Later look-ups miss, later values are dropped."""

    def status(self) -> CacheStatus:
        """Its size, and the state of Redis."""


class RemoteTier(Protocol):
    """A shared tier behind memory. Loop only; never raises for a fault of its own and keeps its time budget."""

    async def get_many(self, keys: Sequence[bytes]) -> list[CachedVector | None]:
        """One query for all keys; None where there is no valid value in time."""

    def put_many(self, keys: Sequence[bytes], values: Sequence[CachedVector]) -> None:
        """Queue values to be written in the background; what does not fit is dropped and counted."""

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

    def shrink(self) -> None: ...

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    def status(self) -> CacheStatus:
        return CacheStatus(enabled=False, memory_entries=0, memory_bytes=0, memory_limit_bytes=0, redis=None)


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
