"""What a pattern is: a type, and a finder that goes through a folded text once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

# Scores: how telling the form, the context and the checksum are together. They order and filter; they are no
# probabilities. Found beside its keyword > recognisable alone > could as well be something else.
SURE, CLEAR, LIKELY, WEAK = 0.99, 0.95, 0.8, 0.5
LEAST = 0.35  # a form alone, whose checksum says no

# An edge of a number or code: no letter or digit beside it. `re` scans for a pattern's first character many times
# faster when that is a class or a literal, so patterns begin with one and look back over it.
START, AFTER_START, END = r"(?<![^\W_])", r"(?<![^\W_].)", r"(?![^\W_])"


@dataclass(frozen=True, slots=True)
class Found:
    """One stretch of the folded text."""

    start: int
    end: int
    value: str | None = None
    valid: bool | None = None
    score: float = CLEAR


Finder = Callable[[str], Iterator[Found]]  # in any order; they may overlap
Reader = Callable[[re.Match[str]], Found | None]


@dataclass(frozen=True, slots=True)
class Kind:
    """A row of the table of patterns."""

    type: str
    find: Finder
    needs_digit: bool = True  # a text without one is not looked at
    normal: Callable[[str], str] | None = None  # value of the caller's own spelling, where folding would change it


def by_pattern(type_: str, pattern: re.Pattern[str], read: Reader, *, needs_digit: bool = True) -> Kind:
    """A kind that reads each match of one expression; what the reader refuses is no entity."""

    def find(text: str) -> Iterator[Found]:
        return (found for match in pattern.finditer(text) if (found := read(match)))

    return Kind(type_, find, needs_digit)


def has_before(text: str, start: int, cue: re.Pattern[str], characters: int = 40) -> bool:
    """Whether ``cue`` stands in the few characters before a place; right before it, if the expression ends in ``$``."""
    return cue.search(text, max(0, start - characters), start) is not None


def compact(text: str) -> str:
    """Letters and digits alone, capitals: how ids are written without their groups."""
    return "".join(character for character in text if character.isalnum()).upper()
