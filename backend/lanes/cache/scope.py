"""For whom results are cached: for all callers, or for one alone (CACHE_SCOPE=key).

Whoever begins work for a caller enters `cached_for`; every key of a cache, and so every work item that equal inputs
would share, is then that caller's own, in this task and those that it starts. What is entered by nobody, such as the
vectors of bundled texts, is shared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Literal

CacheScope = Literal["service", "key"]
Enter = Callable[[str], AbstractContextManager[None]]  # by the `Caller.owner` that the work is for
_owner: ContextVar[bytes] = ContextVar("cached_for", default=b"")


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
