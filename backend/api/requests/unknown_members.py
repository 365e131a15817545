"""Members that a request does not have: a likely typo is refused, for its request would be answered without it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rapidfuzz.distance import Levenshtein

from backend.api.requests.places import param_of
from backend.errors import InvalidField

_TYPO_LETTERS = 2  # wrong, missing or too many
_MOST_CHECKED = 20  # of one object; the others are counted


def unknown_members(names: Iterable[str], known: Sequence[str], place: str = "") -> tuple[str, ...]:
    """A warning for each name that is not known. Raises: InvalidField for one within two letters of a known one.

    Args:
        place: of the object in the request, such as ``ranking_options``; empty for the body.
    """
    unknown = [name for name in names if name not in known]
    for name in unknown[:_MOST_CHECKED]:
        meant = _nearest(name, known)
        if meant is not None:
            at = _at(name, place)
            raise InvalidField(f"{at}: is not a member; did you mean '{meant}'?", param=param_of(at))
    named = tuple(f"{_at(name, place):.80}: is not a member, and was ignored" for name in unknown[:_MOST_CHECKED])
    left = len(unknown) - len(named)
    return (*named, f"{place or 'body'}: {left:,} more unknown members were ignored") if left else named


def _at(name: str, place: str) -> str:
    return f"{place}.{name}" if place else name


def _nearest(name: str, known: Sequence[str]) -> str | None:
    """The known name that this one most likely misspells."""
    near = [(Levenshtein.distance(name.lower(), one, score_cutoff=_TYPO_LETTERS), one) for one in known]
    letters, meant = min(near)
    return meant if letters <= _TYPO_LETTERS else None
