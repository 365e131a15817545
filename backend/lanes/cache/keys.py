"""Keys of cached results. Pure: no clock, no store, no model.

For whom results are cached: for all callers, or for one alone (CACHE_SCOPE=key).

Whoever begins work for a caller enters `cached_for`; every key of a cache, and so every work item that equal inputs
would share, is then that caller's own, in this task and those that it starts. What is entered by nobody, such as the
vectors of bundled texts, is shared.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from hashlib import blake2b
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

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
    """Keep what is cached meanwhile for this owner alone."""
    token = _owner.set(owner.encode("ascii"))
    try:
        yield
    finally:
        _owner.reset(token)


@contextmanager
def cached_for_all() -> Iterator[None]:
    """Share what is cached meanwhile: nothing of it comes from a caller."""
    token = _owner.set(b"")
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
