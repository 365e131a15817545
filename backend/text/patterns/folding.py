"""Normalises text for the patterns: one spelling of each digit, blank, hyphen and letter, with a map to the original.

Patterns are written for plain characters; real text has no-break spaces, en dashes, full-width or Arabic digits,
composed and decomposed accents, direction marks, soft hyphens. Each character becomes one plain character, or none if
it has no width, so that offsets in the folded text map to offsets in the original.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from backend.normal_forms import normalized

_ZERO_WIDTH = ("Mn", "Me", "Cf")  # combining and enclosing marks; joiners, direction marks, soft hyphen
_MARKS = ("Mn", "Me")
_SLICE_CHARS = 16_384  # in one step, which holds the interpreter for 3 ms
_MAX_CACHED_CODE = 0x10000  # codes above are rare and not cached, so that hostile text cannot fill the table
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
    "\N{DEGREE SIGN}": "\N{MASCULINE ORDINAL INDICATOR}",  # "n.°" is as common as "n.º"
}


class _PlainCharacters(dict[int, str]):
    """Cached table from code point to plain character, for ``str.translate``."""

    def __missing__(self, code: int) -> str:
        plain = _plain(chr(code))
        if code < _MAX_CACHED_CODE:
            self[code] = plain
        return plain


@dataclass(frozen=True, slots=True)
class Folded:
    """A folded text; each of its characters comes from the one at the same index of ``offsets`` in the original."""

    text: str
    original: str
    offsets: list[int] | None  # None where each character became exactly one

    def span(self, start: int, end: int) -> tuple[int, int]:
        """The span in the original of a non-empty span, including combining marks on its last character."""
        if self.offsets is None:
            return start, end
        first, stop = self.offsets[start], self.offsets[end - 1] + 1
        while stop < len(self.original) and unicodedata.category(self.original[stop]) in _MARKS:
            stop += 1
        return first, stop


def fold(text: str) -> Folded:
    """Fold a text. The result is never longer; linear time. Other threads run in between."""
    folded = "".join(
        text[start : start + _SLICE_CHARS].translate(_PLAIN) for start in range(0, len(text), _SLICE_CHARS)
    )
    if len(folded) == len(text):
        return Folded(folded, text, None)
    return Folded(folded, text, [index for index, character in enumerate(text) if _PLAIN[ord(character)]])


def letters_of(text: str) -> str:
    """Letters and digits of a text without accents, in lower case."""
    folded = fold(text).text.lower()
    slices = (folded[start : start + _SLICE_CHARS] for start in range(0, len(folded), _SLICE_CHARS))
    return "".join("".join(filter(str.isalnum, part)) for part in slices)


def visible(text: str) -> str:
    """Original text in composed form (NFC), without format characters such as joiners and soft hyphens."""
    composed = normalized("NFC", text)
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
    decomposed = unicodedata.normalize("NFD", character)
    base, marks = decomposed[0], decomposed[1:]
    return base if marks and all(unicodedata.category(mark) in _MARKS for mark in marks) else character


_PLAIN = _PlainCharacters()
