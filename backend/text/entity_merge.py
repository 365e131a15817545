"""Merges the entities of a model and of patterns into one list without overlaps, and records what was left out.

Of two that overlap the stronger is kept: by the first matching row of `PRIORITY`, then the longer, then the higher
score, then the earlier. A model's entity that overlaps a stronger one of another type is first cut back to its own
words: the ORG "Aceros del Norte S.A., CIF B12345674" becomes "Aceros del Norte S.A.".
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from backend.reasons import because

MODEL = "model"
PATTERN = "pattern"


@dataclass(frozen=True, slots=True)
class Entity:
    """One name or number in a text; ``text`` is ``caller_text[start:end]``, in Unicode code points."""

    type: str  # PER, ORG, LOC, … from a model; one of patterns.PATTERN_TYPES from a pattern
    text: str
    start: int
    end: int
    score: float  # 0 to 1: a model's mean probability; a pattern's score by form, context and checksum
    source: str  # MODEL or PATTERN
    value: str | None = None  # compact id, ISO 8601 date, decimal and currency; None where the text is ambiguous
    valid: bool | None = None  # by checksum or calendar; None where neither applies


_CHECKED = frozenset({"IBAN", "CCC", "VAT", "NIF", "NIE", "CIF"})
_ACCOUNTS = frozenset({"IBAN", "CCC"})
_ADDRESSES = frozenset({"EMAIL", "URL"})
_COMPANY = "ORG"  # the one type that both find: the model knows its bounds, the legal form its type
_AMOUNTS = frozenset({"DATE", "MONEY", "PERCENT"})
_STRONG_SCORE = 0.6  # of a pattern: below, its form could as well be something else (pattern.WEAK)


def _is_strong(entity: Entity) -> bool:
    return entity.source == PATTERN and entity.score >= _STRONG_SCORE and entity.type != _COMPANY


def _is_pattern(entity: Entity, types: Collection[str]) -> bool:
    return entity.source == PATTERN and entity.type in types


PRIORITY: tuple[tuple[str, Callable[[Entity], bool]], ...] = (
    ("its checksum is right", lambda entity: _is_pattern(entity, _CHECKED) and entity.valid is True),
    ("an address of mail or web", lambda entity: _is_strong(entity) and entity.type in _ADDRESSES),
    ("a labelled number", lambda entity: _is_strong(entity) and entity.type in ("INVOICE_NUMBER", "BIC")),
    ("the form of an account", lambda entity: _is_pattern(entity, _ACCOUNTS) and entity.valid is False),
    ("a date or an amount", lambda entity: _is_strong(entity) and entity.type in _AMOUNTS),
    ("a clear pattern", _is_strong),
    ("an organisation, by the model", lambda entity: entity.source == MODEL and entity.type == _COMPANY),
    ("a company, by its legal form", lambda entity: entity.source == PATTERN and entity.type == _COMPANY),
    ("found by the model", lambda entity: entity.source == MODEL),
    ("a weak pattern", lambda _: True),
)

_EDGES = " \t\r\n\xa0,;:(-\N{EN DASH}\N{EM DASH}/[|·\"'"
# Labels of numbers that a model included in a name: "Aceros S.A., CIF", "Tel.: Ana".
_LABEL = (
    r"(?:N\.?I\.?[FE]|C\.?I\.?F|D\.?N\.?I|V\.?A\.?T|IVA|IBAN|BIC|SWIFT|Tel[eé]?f?(?:ono)?|Tfno|Fax|E-?mail|Web|C\.?P"
    r"|n[.º°]*|no\.?|con|with)\.?"
)
_LABEL_BEFORE = re.compile(rf"(?:^|(?<=[\s,;:(/\u2013\u2014-])){_LABEL}[\s:.ºn°]{{0,8}}$", re.IGNORECASE)
_LABEL_AFTER = re.compile(rf"^\W*+{_LABEL}[\s:]++", re.IGNORECASE)
_LABEL_CHARS = 40  # at the end of a part: a label and what stands around it
_WORD = re.compile(r"[^\W\d_]{2,}")


@dataclass(frozen=True, slots=True)
class Lost:
    """An entity that was left out or cut back."""

    entity: Entity
    to: Entity  # the one that was kept instead
    why: str


@dataclass(frozen=True, slots=True)
class MergeResult:
    """The entities that were kept, and those that were not."""

    kept: list[Entity]  # by start, without overlaps
    lost: list[Lost]  # by start


def merge(entities: Sequence[Entity], types: Collection[str] | None = None) -> MergeResult:
    """Resolve all overlaps; linear in the characters that the entities cover.

    Of the same type and span from model and pattern, the pattern's is kept, as it has the value.

    Args:
        types: the types to return; the others still displace weaker ones. None: all.
    """
    if not entities:
        return MergeResult([], [])
    owners = array("q", [0]) * max(entity.end for entity in entities)  # 1 + index of the kept entity of each character
    kept: list[Entity] = []
    lost: list[Lost] = []
    by_pattern = {(entity.type, entity.start, entity.end): entity for entity in entities if entity.source == PATTERN}
    for entity in sorted(entities, key=_sort_key):
        twin = by_pattern.get((entity.type, entity.start, entity.end))
        if twin is not None and entity.source == MODEL:
            lost.append(Lost(entity, twin, because("pattern_has_value")))
            continue
        overlapped = [kept[number - 1] for number in _owners(owners, entity)]
        remainder = entity if not overlapped else _cut_back(entity, owners) if _may_be_cut(entity, overlapped) else None
        if overlapped:
            lost.append(Lost(entity, overlapped[0], _reason(entity, overlapped[0], remainder)))
        if remainder is not None:
            kept.append(remainder)
            owners[remainder.start : remainder.end] = array("q", [len(kept)]) * (remainder.end - remainder.start)
    returned = [entity for entity in kept if types is None or entity.type in types]
    reported = [loss for loss in lost if types is None or loss.entity.type in types]
    return MergeResult(sorted(returned, key=_span), sorted(reported, key=lambda loss: _span(loss.entity)))


def _rank(entity: Entity) -> int:
    return next(rank for rank, (_, matches) in enumerate(PRIORITY) if matches(entity))


def _sort_key(entity: Entity) -> tuple[int, int, float, int, bool, str]:
    return (
        _rank(entity),
        entity.start - entity.end,
        -entity.score,
        entity.start,
        entity.source == MODEL,
        entity.type,
    )


def _span(entity: Entity) -> tuple[int, int]:
    return entity.start, entity.end


def _owners(owners: array[int], entity: Entity) -> list[int]:
    """Numbers of the kept entities that it overlaps, the strongest first."""
    return sorted(set(owners[entity.start : entity.end]) - {0})


def _may_be_cut(entity: Entity, overlapped: Sequence[Entity]) -> bool:
    """Only a model's entity next to patterns of other types; half a DATE or half a number is of no use."""
    return entity.source == MODEL and all(other.type != entity.type and other.source == PATTERN for other in overlapped)


def _cut_back(entity: Entity, owners: array[int]) -> Entity | None:
    """Its longest free part, without labels of the numbers next to it; None where no word is left."""
    spans: list[tuple[int, int]] = []
    for index in range(entity.start, entity.end):
        if owners[index]:
            continue
        if spans and spans[-1][1] == index:
            spans[-1] = (spans[-1][0], index + 1)
        else:
            spans.append((index, index + 1))
    parts = [_trim(entity, start, end) for start, end in spans]
    with_words = [part for part in parts if part.end > part.start and _WORD.search(part.text)]
    return max(with_words, key=lambda part: (part.end - part.start, -part.start), default=None)


def _trim(entity: Entity, start: int, end: int) -> Entity:
    """The part of an entity from ``start`` to ``end``, without labels and punctuation at its edges."""
    text = entity.text[start - entity.start : end - entity.start]
    if end < entity.end:
        text = _without_label(text)
    if start > entity.start:
        shorter = _LABEL_AFTER.sub("", text)
        start, text = start + len(text) - len(shorter), shorter
    stripped = text.lstrip(_EDGES + ")].")
    start += len(text) - len(stripped)
    stripped = stripped.rstrip(_EDGES)
    return replace(entity, text=stripped, start=start, end=start + len(stripped))


def _without_label(text: str) -> str:
    """A part without a label at its end. The search for it sees the last characters only, however long the part is."""
    end = len(text.rstrip())
    label = _LABEL_BEFORE.search(text, max(0, end - _LABEL_CHARS), end)
    return text if label is None else text[: label.start()].rstrip()


def _reason(loser: Entity, winner: Entity, remainder: Entity | None) -> str:
    if remainder is not None:
        rank = PRIORITY[_rank(winner)][0]
        return because("cut_back", start=remainder.start, end=remainder.end, type=winner.type, winner=rank)
    ranks = _rank(loser), _rank(winner)
    if ranks[0] != ranks[1]:
        return because("goes_before", winner=PRIORITY[ranks[1]][0], loser=PRIORITY[ranks[0]][0])
    if (loser.end - loser.start) != (winner.end - winner.start):
        return because("longer_stands")
    return because("score_stands" if loser.score != winner.score else "first_stands")
