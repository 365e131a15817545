"""One list of entities from a model and from patterns: what stands in each place, and what it displaced.

The stronger of two that overlap stays. Strength is the first row of `PRIORITY` that fits, then the longer, then the
higher score, then the earlier. A model's entity of another type that reaches over a stronger one is cut back to its own
words first: of the ORG "Aceros del Norte S.A., CIF B12345674" stays "Aceros del Norte S.A.".
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from backend.documents.entities import MODEL, PATTERN, Entity

_CHECKED = frozenset({"IBAN", "CCC", "VAT", "NIF", "NIE", "CIF"})
_ADDRESSES = frozenset({"EMAIL", "URL"})
_COMPANY = "ORG"  # the one type that both find: the model has seen its bounds, the legal form is sure of its kind
_AMOUNTS = frozenset({"DATE", "MONEY", "PERCENT"})
_STRONG_SCORE = 0.6  # of a pattern: below, its form could as well be something else (patterns/kind.py, WEAK)


def _is_strong(entity: Entity) -> bool:
    return entity.source == PATTERN and entity.score >= _STRONG_SCORE and entity.type != _COMPANY


PRIORITY: tuple[tuple[str, Callable[[Entity], bool]], ...] = (
    ("its checksum is right", lambda one: one.source == PATTERN and one.type in _CHECKED and one.valid is True),
    ("an address of mail or web", lambda one: _is_strong(one) and one.type in _ADDRESSES),
    ("a labelled number", lambda one: _is_strong(one) and one.type in ("INVOICE_NUMBER", "BIC")),
    (
        "the form of an account",
        lambda one: one.source == PATTERN and one.type in ("IBAN", "CCC") and one.valid is False,
    ),
    ("a date or an amount", lambda one: _is_strong(one) and one.type in _AMOUNTS),
    ("a clear pattern", _is_strong),
    ("an organisation, by the model", lambda one: one.source == MODEL and one.type == _COMPANY),
    ("a company, by its legal form", lambda one: one.source == PATTERN and one.type == _COMPANY),
    ("found by the model", lambda one: one.source == MODEL),
    ("a weak pattern", lambda _: True),
)

_EDGES = " \t\r\n\xa0,;:(-\N{EN DASH}\N{EM DASH}/[|·\"'"
# Labels of numbers that a model took along: "Aceros S.A., CIF", "Tel.: Ana".
_LABEL = (
    r"(?:N\.?I\.?[FE]|C\.?I\.?F|D\.?N\.?I|V\.?A\.?T|IVA|IBAN|BIC|SWIFT|Tel[eé]?f?(?:ono)?|Tfno|Fax|E-?mail|Web|C\.?P"
    r"|n[.º°]*|no\.?|con|with)\.?"
)
_LABEL_BEFORE = re.compile(rf"(?:^|[\s,;:(/\u2013\u2014-]+){_LABEL}[\s:.ºn°]*$", re.IGNORECASE)
_LABEL_AFTER = re.compile(rf"^\W*{_LABEL}[\s:]+", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_]{2,}")


@dataclass(frozen=True, slots=True)
class Lost:
    """An entity that is not in the answer, or not in full."""

    entity: Entity
    to: Entity  # the one that stands in its place
    why: str


@dataclass(frozen=True, slots=True)
class Merged:
    """The answer and what it left out."""

    kept: list[Entity]  # by start; they never overlap
    lost: list[Lost]  # by start of the loser


def merge(entities: Sequence[Entity], types: Collection[str] | None = None) -> Merged:
    """The entities that stand, whoever found them; linear in the characters they cover.

    The same type in the same place from both sides is one entity: the pattern's, which has the value.

    Args:
        types: the kinds to answer with; the others still displace what they are stronger than. Unset: all.
    """
    if not entities:
        return Merged([], [])
    owners = array("q", [0]) * max(one.end for one in entities)  # number of the kept entity at each character, from 1
    kept: list[Entity] = []
    lost: list[Lost] = []
    spots = {(one.type, one.start, one.end): one for one in entities if one.source == PATTERN}
    for one in sorted(entities, key=_strength):
        twin = spots.get((one.type, one.start, one.end))
        if twin is not None and one.source == MODEL:
            lost.append(Lost(one, twin, "the pattern found the same and has its value"))
            continue
        over = _owners(owners, one)
        stands = one if not over else _cut_back(one, owners) if _may_be_cut(one, [kept[i - 1] for i in over]) else None
        if over:
            winner = kept[over[0] - 1]
            lost.append(Lost(one, winner, _reason(one, winner, stands)))
        if stands is not None:
            kept.append(stands)
            owners[stands.start : stands.end] = array("q", [len(kept)]) * (stands.end - stands.start)
    answer = [one for one in kept if types is None or one.type in types]
    told = [one for one in lost if types is None or one.entity.type in types]
    return Merged(sorted(answer, key=_place), sorted(told, key=lambda one: _place(one.entity)))


def _rank(entity: Entity) -> int:
    return next(rank for rank, (_, fits) in enumerate(PRIORITY) if fits(entity))


def _strength(entity: Entity) -> tuple[int, int, float, int, bool, str]:
    return (
        _rank(entity),
        entity.start - entity.end,
        -entity.score,
        entity.start,
        entity.source == MODEL,
        entity.type,
    )


def _place(entity: Entity) -> tuple[int, int]:
    return entity.start, entity.end


def _owners(owners: array[int], entity: Entity) -> list[int]:
    """Numbers of the kept entities it reaches over, the strongest first."""
    return sorted(set(owners[entity.start : entity.end]) - {0})


def _may_be_cut(entity: Entity, over: Sequence[Entity]) -> bool:
    """Only a model's words beside other kinds: a second DATE around a DATE adds nothing, and half a number is none."""
    return entity.source == MODEL and all(one.type != entity.type and one.source == PATTERN for one in over)


def _cut_back(entity: Entity, owners: array[int]) -> Entity | None:
    """Its longest stretch of own words, without the label of the number that followed; None where no word is left."""
    free = [place for place in range(entity.start, entity.end) if not owners[place]]
    pieces: list[tuple[int, int]] = []
    for place in free:
        if pieces and pieces[-1][1] == place:
            pieces[-1] = (pieces[-1][0], place + 1)
        else:
            pieces.append((place, place + 1))
    trimmed = [_trim(entity, start, end) for start, end in pieces]
    worded = [one for one in trimmed if one.end > one.start and _WORD.search(one.text)]
    return max(worded, key=lambda one: (one.end - one.start, -one.start), default=None)


def _trim(entity: Entity, start: int, end: int) -> Entity:
    text = entity.text[start - entity.start : end - entity.start]
    if end < entity.end:
        text = _LABEL_BEFORE.sub("", text)
    if start > entity.start:
        shorter = _LABEL_AFTER.sub("", text)
        start, text = start + len(text) - len(shorter), shorter
    stripped = text.lstrip(_EDGES + ")].")
    start += len(text) - len(stripped)
    stripped = stripped.rstrip(_EDGES)
    return replace(entity, text=stripped, start=start, end=start + len(stripped))


def _reason(loser: Entity, winner: Entity, stands: Entity | None) -> str:
    if stands is not None:
        return f"cut back to {stands.start}-{stands.end}: the rest is {winner.type}, {PRIORITY[_rank(winner)][0]}"
    ranks = _rank(loser), _rank(winner)
    if ranks[0] != ranks[1]:
        return f"{PRIORITY[ranks[1]][0]} goes before {PRIORITY[ranks[0]][0]}"
    if (loser.end - loser.start) != (winner.end - winner.start):
        return "the longer one stands"
    return "the higher score stands" if loser.score != winner.score else "the first found stands"
