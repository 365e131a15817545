"""A text as patterns read it: one spelling of each digit, blank, hyphen and letter, and the way back to its places.

Patterns are written for plain characters; what people and OCR write has no-break spaces, en dashes, full-width or
Arabic digits, accents composed or not, marks of direction, soft hyphens. Each character becomes one plain one, or none
where it has no width, so that a place in the folded text is a place in the caller's.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

_ZERO_WIDTH = ("Mn", "Me", "Cf")  # combining marks, enclosing ones; joiners, marks of direction, soft hyphen
_MARKS = ("Mn", "Me")
_KEPT_CODES = 0x10000  # what is above is rare: not remembered, so that hostile text cannot fill the table
_SINGLE = {
    "\t": " ",
    "\r": " ",
    "\v": "\n",
    "\f": "\n",
    "\N{NEXT LINE}": "\n",
    "\N{LINE SEPARATOR}": "\n",
    "\N{PARAGRAPH SEPARATOR}": "\n",
    "\N{MINUS SIGN}": "-",
    "\N{LEFT SINGLE QUOTATION MARK}": "'",
    "\N{RIGHT SINGLE QUOTATION MARK}": "'",
    "\N{MODIFIER LETTER APOSTROPHE}": "'",
    "\N{ARABIC DECIMAL SEPARATOR}": ",",
    "\N{ARABIC THOUSANDS SEPARATOR}": ".",
    "\N{DEGREE SIGN}": "\N{MASCULINE ORDINAL INDICATOR}",  # "n.°" is written as often as "n.º"
}


class _Plain(dict[int, str]):
    """Each code point's plain character, found once; for ``str.translate``."""

    def __missing__(self, code: int) -> str:
        plain = _plain(chr(code))
        if code < _KEPT_CODES:
            self[code] = plain
        return plain


@dataclass(frozen=True, slots=True)
class Folded:
    """A folded text; its characters stand for those at ``places`` of the original."""

    text: str
    original: str
    places: list[int] | None  # None where each character became exactly one

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Where a stretch that is not empty stands in the original, with the marks of its last character."""
        if self.places is None:
            return start, end
        first, stop = self.places[start], self.places[end - 1] + 1
        while stop < len(self.original) and unicodedata.category(self.original[stop]) in _MARKS:
            stop += 1
        return first, stop


def fold(text: str) -> Folded:
    """The plain form of a text; never longer than it, in linear time."""
    folded = text.translate(_PLAIN)
    if len(folded) == len(text):
        return Folded(folded, text, None)
    return Folded(folded, text, [place for place, character in enumerate(text) if _PLAIN[ord(character)]])


def visible(text: str) -> str:
    """A stretch of the caller's text as it is seen: letters composed, nothing in it that has no width."""
    composed = unicodedata.normalize("NFC", text)
    return "".join(character for character in composed if unicodedata.category(character) != "Cf")


def _plain(character: str) -> str:
    if character in _SINGLE:
        return _SINGLE[character]
    category = unicodedata.category(character)
    if category in _ZERO_WIDTH:
        return ""
    if category == "Nd":
        return str(unicodedata.digit(character))
    if category == "Pd":
        return "-"
    if category == "Zs":
        return " "
    if 0xFF01 <= ord(character) <= 0xFF5E:  # full-width forms
        return unicodedata.normalize("NFKC", character)
    spelt = unicodedata.normalize("NFD", character)
    base, rest = spelt[0], spelt[1:]
    return base if rest and all(unicodedata.category(mark) in _MARKS for mark in rest) else character


_PLAIN = _Plain()
