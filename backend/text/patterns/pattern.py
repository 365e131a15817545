"""Building blocks of patterns: an entity type with a function that finds it in folded text, scores, word edges."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from backend.abandoned import require_wanted

# Scores of a match from its form, its context and its checksum together. They order and filter; they are no
# probabilities. Next to its keyword > recognisable alone > could as well be something else.
SURE, CLEAR, LIKELY, WEAK = 0.99, 0.95, 0.8, 0.5
LEAST = 0.35  # a form alone, whose checksum is wrong

# Edges of a number or code: no letter or digit next to it. `re` searches many times faster when a pattern begins with
# a class or a literal, so patterns begin with their first character and look back over it.
START, AFTER_START, END = r"(?<![^\W_])", r"(?<![^\W_].)", r"(?![^\W_])"


@dataclass(frozen=True, slots=True)
class PatternMatch:
    """One match, with its span in the folded text."""

    start: int
    end: int
    value: str | None = None
    valid: bool | None = None
    score: float = CLEAR


# Characters of a text that are searched in one piece, and those behind them that a match or its look-ahead may reach.
# A search holds the interpreter: 2 to 5 us a character where much looks like a number and is none, 5 s of a megabyte.
_SLICE_CHARS, _REACH_CHARS = 16_384, 4_096

Finder = Callable[[str], Iterator[PatternMatch]]  # matches in any order; they may overlap
Parser = Callable[[re.Match[str]], PatternMatch | None]


@dataclass(frozen=True, slots=True)
class Pattern:
    """How one type of entity is found."""

    type: str
    find: Finder
    needs_digit: bool = True  # texts without a digit are skipped
    normalize: Callable[[str], str] | None = None  # value from the original spelling, where folding would change it


def matches(regex: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """The matches of ``regex.finditer``, searched slice by slice, so that other threads run in between.

    Args:
        regex: neither a match nor what it looks at behind it is longer than `_REACH_CHARS`.

    Raises: CallerGone where nobody waits for them any more.
    """
    start = 0
    while start < len(text):
        require_wanted()
        stop = start + _SLICE_CHARS
        for match in regex.finditer(text, start, stop + _REACH_CHARS):
            if match.start() >= stop:
                break
            yield match
            start = match.end()
        start = max(start, stop)


def from_regex(type_: str, regex: re.Pattern[str], parse: Parser) -> Pattern:
    """A pattern that parses each match of one regular expression; None from ``parse`` rejects the match."""

    def find(text: str) -> Iterator[PatternMatch]:
        return (parsed for match in matches(regex, text) if (parsed := parse(match)))

    return Pattern(type_, find)


def has_before(text: str, start: int, cue: re.Pattern[str], characters: int = 40) -> bool:
    """Whether ``cue`` occurs in the characters before ``start``; directly before it if the regex ends in ``$``."""
    return cue.search(text, max(0, start - characters), start) is not None


def plain_tax_id(text: str) -> str:
    """What tells who is meant by a tax id: without separators, and without the ES of a Spanish VAT number."""
    plain = compact(text)
    return plain[2:] if plain.startswith("ES") and len(plain) == 11 else plain


def compact(text: str) -> str:
    """Letters and digits only, in capitals: an id without its separators."""
    return "".join(character for character in text if character.isalnum()).upper()
