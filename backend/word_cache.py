"""A cache of what is known of words, which holds no long ones: what callers send must not stay by the megabyte."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, TypeVar, cast

_MAX_CHARS = 200  # of a word that is kept: 20,000 of them are 4 MB
_Reader = TypeVar("_Reader", bound=Callable[..., Any])


def word_cache(entries: int) -> Callable[[_Reader], _Reader]:
    """As `functools.lru_cache`, of a function of a word; a long one is computed each time it comes."""

    def cached(function: _Reader) -> _Reader:
        kept = lru_cache(entries)(function)

        @wraps(function)
        def of(word: str, *others: Any) -> Any:
            return (kept if len(word) <= _MAX_CHARS else function)(word, *others)

        return cast("_Reader", of)

    return cached
