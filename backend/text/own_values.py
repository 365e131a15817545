"""Reads what stands in a span as the value that a label asks for: numbers, dates, ids, choices; or as none."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from backend.text.entity_merge import Entity
from backend.text.own_labels import BOOLEAN, INTEGER, NUMBER, PATTERN_KINDS, OwnLabel
from backend.text.patterns.numbers import NUMBER as DIGITS
from backend.text.patterns.numbers import NUMBER_OF_CODE, parse_number

Value = str | float | int | bool
_NUMBER = re.compile(rf"-?(?:{DIGITS}|{NUMBER_OF_CODE})")
_YES = frozenset({"si", "yes", "true", "verdadero", "cierto", "x", "☒", "☑", "✓", "✔", "y", "s"})
_NO = frozenset({"no", "false", "falso", "☐", "n", "none", "ninguno", "ninguna"})
_LONGEST = 500  # characters of what a pattern finds
_EDGES = ' \n\t,;:()[]«»“”"'


@dataclass(frozen=True, slots=True)
class ReadValue:
    """A value with its own place, which may be shorter or longer than the span that it was found by."""

    value: Value
    start: int
    end: int
    valid: bool | None = None  # by check digits or the calendar


def read_value(label: OwnLabel, text: str, start: int, end: int, patterns: Sequence[Entity]) -> ReadValue | None:
    """The value of ``text[start:end]``. Args: patterns, what patterns found in the whole text, by start."""
    if label.kind in PATTERN_KINDS:
        return _by_pattern(PATTERN_KINDS[label.kind], start, end, patterns)
    if label.kind in (NUMBER, INTEGER):
        return _number(text, start, end, whole=label.kind == INTEGER)
    start += len(text[start:end]) - len(text[start:end].lstrip(_EDGES))
    end = max(start, end - (len(text[start:end]) - len(text[start:end].rstrip(_EDGES))))
    words = " ".join(text[start:end].split())
    if not words:
        return None
    if label.kind == BOOLEAN:
        plain = plain_of(words)
        return ReadValue(plain in _YES, start, end) if plain in _YES | _NO else None
    if label.choices:
        chosen = _choice(words, label.choices)
        return None if chosen is None else ReadValue(chosen, start, end)
    return ReadValue(words, start, end)


def plain_of(text: str) -> str:
    """In small letters, without accents and with single blanks: how spellings are compared."""
    bare = "".join(one for one in unicodedata.normalize("NFD", text.casefold()) if not unicodedata.combining(one))
    return " ".join(bare.split())


def _by_pattern(types: Sequence[str], start: int, end: int, patterns: Sequence[Entity]) -> ReadValue | None:
    def shared(entity: Entity) -> int:
        return min(end, entity.end) - max(start, entity.start)

    first, last = (bisect_left(patterns, at, key=lambda entity: entity.start) for at in (start - _LONGEST, end))
    touched = [entity for entity in patterns[first:last] if entity.type in types and shared(entity) > 0]
    if not touched:
        return None
    best = max(touched, key=shared)
    return ReadValue(best.value or best.text, best.start, best.end, best.valid)


def _number(text: str, start: int, end: int, *, whole: bool) -> ReadValue | None:
    match = _NUMBER.search(text, start, end)
    if match is None:
        return None
    digits = match.group()
    number: Decimal = parse_number(digits.lstrip("-")) * (-1 if digits.startswith("-") else 1)
    if number == number.to_integral_value():
        return ReadValue(int(number), match.start(), match.end())
    return None if whole else ReadValue(float(number), match.start(), match.end())


def _choice(words: str, choices: Sequence[str]) -> str | None:
    plain = plain_of(words)
    for choice in choices:
        if plain_of(choice) == plain:
            return choice
    inside = [choice for choice in choices if re.search(rf"(?<!\w){re.escape(plain_of(choice))}(?!\w)", plain)]
    return inside[0] if len(inside) == 1 else None
