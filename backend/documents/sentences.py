"""Where the sentences of a text stand, in prose and in papers made of lines. Knows no model.

Written here because what there is gives tokens instead of places (syntok), is slow and no longer kept (pysbd), or takes
the lines of an invoice for one sentence (both).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from backend.documents.word_lists import (
    ABBREVIATIONS_ANYWHERE,
    ABBREVIATIONS_BEFORE_NUMBERS,
    ABBREVIATIONS_BEFORE_WORDS,
    ENGLISH_OR_SPANISH,
)
from backend.models.words import Offsets

MAX_CHARACTERS = 1_000  # longer than any sentence that a reader would quote; some 250 tokens

_LINE_END = re.compile(r"\r\n|[\n\r\v\f\x85\u2028\u2029]")
_PARAGRAPH_ENDS = "\f\u2029"
# A stop with what closes after it: brackets, quotes, marks of notes. Only the start of a run of stops is tried, and
# what closes is taken whole, so that no text makes this quadratic.
STOPS = ".!?…"
FOREIGN_STOPS = "\u3002\uff01\uff1f\uff61\u061f\u06d4\u0964\u0965"  # Chinese and Japanese; Arabic, Urdu, Hindi
CLOSERS = ")]}\"'»”\u2019\u203a\u300d\u300f\uff09"
_STOP = re.compile(
    rf"(?<![{STOPS}])[{STOPS}]++(?:[{re.escape(CLOSERS)}]|\[\d{{1,3}}\])*+(?=\s|$)"
    rf"|[{FOREIGN_STOPS}]++[{re.escape(CLOSERS)}]*+"
)
_ITEM = re.compile(
    r"(?:[-\u2013—*•·▪◦●○■□►▶➢✓‣\u2043]|(?:\d{1,3}|[a-zA-Z]|[ivxIVX]{1,5})[.)]|\(\w{1,3}\)"
    r"|\d{1,3}(?:\.\d{1,3})+\.?)\s"
)
_ENUMERATOR = re.compile(r"\(?(?:\d{1,3}(?:\.\d{1,3})*|[a-zA-Z]|[ivxIVX]{1,5})\)?")
_ADDRESS = re.compile(r"www\.|https?://|[^\s@]+@[^\s@]")
_FIGURES = re.compile(r"(?:\s+[(\-$€£]*\d[\d.,]*[%)]*){2,}$")
_COLUMNS = re.compile(r"\S(?:\t|\s{3,})\S")

_DOTTED = re.compile(r"(?:[^\W\d_]{1,2}\.)+[^\W\d_]{1,2}")
_PLURAL = re.compile(r"([A-Z])\1")  # Spanish doubles the letters of a plural: "EE. UU.", "RR. HH."
_TOKEN = re.compile(r"[^\s(\[{\"'«“\u2018¿¡/]+$")
_WORD = re.compile(r"[^\W\d_]+")
_VOWELS = set("aeiouy")
_WIDEST = 160  # characters; a longer line was not wrapped by whoever made it: its end is meant
_NARROWEST = 40  # a shorter line is a heading or a field, unless the next one plainly goes on
_RAGGED = 0.85  # of the widest line: letters differ in width, and what wrapped the lines counted widths
_LONGEST_TOKEN = 24  # characters looked at on either side of a stop


def sentence_places(text: str) -> Offsets:
    """First and past-last code point of each sentence, in order: (sentences, 2) int64.

    Every character that is not a blank is in exactly one sentence; none begins or ends with a blank or is longer than
    ``MAX_CHARACTERS``. A sentence ends at a stop that is not an abbreviation's, an initial's, a number's or a list's;
    at a blank line; and at a line's end unless the line was only wrapped there. Linear in the text's length.

    Source of the rule for abbreviations that may end a sentence: Kiss and Strunk 2006, frequent sentence starters.
    """
    found = [
        piece
        for paragraph in _paragraphs(text)
        for sentence in _sentences(text, *paragraph)
        for piece in _short_enough(text, *sentence)
    ]
    return np.array(found, np.int64).reshape(-1, 2)


def _paragraphs(text: str) -> Iterator[tuple[int, int]]:
    """Lines joined where one was wrapped into the next; trimmed, none of them blank."""
    start = 0
    lines = list(_lines(text))
    for block in _blocks(lines):
        width = max((stop - start for start, stop in block if stop - start <= _WIDEST), default=0)
        start = block[0][0]
        for (line_start, line_stop), (next_start, next_stop) in pairwise(block):
            if not _goes_on(text[line_start:line_stop], text[next_start:next_stop], width):
                yield start, line_stop
                start = next_start
        yield start, block[-1][1]


def _lines(text: str) -> Iterator[tuple[int, int]]:
    """Each line without the blanks around it; a blank line as an empty place."""
    start = 0
    for end in _LINE_END.finditer(text):
        yield _trimmed(text, start, end.start())
        if end[0] in _PARAGRAPH_ENDS:
            yield end.start(), end.start()
        start = end.end()
    yield _trimmed(text, start, len(text))


def _blocks(lines: list[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """Lines with no blank line between them."""
    block: list[tuple[int, int]] = []
    for line in lines:
        if line[0] < line[1]:
            block.append(line)
        elif block:
            yield block
            block = []
    if block:
        yield block


def _goes_on(line: str, after: str, width: int) -> bool:
    """Whether a line was only wrapped: its sentence goes on in the next one.

    In turn: a list's item, a row of columns, and an address of mail or web stand for themselves; a stop is for
    ``_sentences`` to judge; a comma, a word of grammar, a hyphen or a small letter after it goes on; a short or
    unwrapped line ends; and of the rest, one that had room for the next line's first word was ended on purpose.
    """
    if _ITEM.match(after) or _ADDRESS.match(after[:_WIDEST]) or _is_row(line) or _is_row(after):
        return False
    last = line[-1]
    first = after.split(maxsplit=1)[0]
    if last in STOPS or last in ":;":
        return last in STOPS and len(line) >= _NARROWEST
    words = line[-_LONGEST_TOKEN:].split()
    if last in ",-(/&¬\xad\u2010" or after[0].islower() or (len(words) > 1 and words[-1] in ENGLISH_OR_SPANISH):
        return True
    return _NARROWEST <= len(line) <= _WIDEST and len(line) + 1 + len(first) > _RAGGED * width


def _is_row(line: str) -> bool:
    """A line of columns: wide gaps in it, or two figures at its end."""
    return _COLUMNS.search(line[:_WIDEST]) is not None or _FIGURES.search(line[-_LONGEST_TOKEN:]) is not None


def _sentences(text: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """A paragraph cut at its stops."""
    for match in _STOP.finditer(text, start, stop):
        if match.end() < stop and _ends(text, start, match):
            yield start, match.end()
            start = _next_solid(text, match.end())
    yield start, stop


def _ends(text: str, start: int, match: re.Match[str]) -> bool:
    """Whether a stop ends the sentence that began at ``start``."""
    if match[0][0] in FOREIGN_STOPS:
        return True  # a stop of a script that has no capitals and writes no abbreviations with it
    after = _next_solid(text, match.end())
    following = text[after : after + _LONGEST_TOKEN]
    if following[0].islower():
        return False
    if match[0][0] != "." or match[0].startswith(".."):
        return True
    before = _TOKEN.search(text, max(start, match.start() - _LONGEST_TOKEN), match.start())
    return before is None or not _abbreviates(before[0], following, first=before.start() == start)


def _abbreviates(token: str, following: str, *, first: bool) -> bool:
    """Whether the full stop after a token belongs to it and ends nothing."""
    if first and _ENUMERATOR.fullmatch(token):
        return True
    small = token.lower()
    if small in ABBREVIATIONS_BEFORE_WORDS and (not token.isupper() or following[:2].isupper()):
        return True
    if small in ABBREVIATIONS_BEFORE_NUMBERS and (following[0].isdigit() or following[0] in "º§IVXLC"):
        return True
    if _PLURAL.fullmatch(token) and _PLURAL.match(following) and following[2:3] == ".":
        return True
    if not _either(token, small):
        return False
    word = _WORD.match(following)
    return word is None or word[0].lower() not in ENGLISH_OR_SPANISH or len(word[0]) < 2


def _either(token: str, small: str) -> bool:
    """A token whose full stop may be its own: listed, an initial, letters with stops between, or no vowel in it."""
    if small in ABBREVIATIONS_ANYWHERE or _DOTTED.fullmatch(token) or _PLURAL.fullmatch(token):
        return True
    if not token.isalpha():
        return False
    return len(token) == 1 or (len(token) <= 4 and not token.isupper() and token.isascii() and not _VOWELS & set(small))


def _short_enough(text: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """A sentence in pieces of at most ``MAX_CHARACTERS``, cut at the last blank that allows it."""
    while stop - start > MAX_CHARACTERS:
        cut = start + MAX_CHARACTERS
        if not text[cut].isspace():
            cut = _last_blank(text, start, cut) or _between_characters(text, cut)
        yield _trimmed(text, start, cut)
        start = _next_solid(text, cut)
    yield start, stop


def _last_blank(text: str, start: int, stop: int) -> int | None:
    """The last blank of the second half, or None."""
    return next((place for place in range(stop - 1, start + MAX_CHARACTERS // 2, -1) if text[place].isspace()), None)


def _between_characters(text: str, cut: int) -> int:
    """The nearest place before that parts no letter from its accents and no emoji from its joiners, within reason."""
    for place in range(cut, cut - 32, -1):
        category = unicodedata.category(text[place])
        if category[0] != "M" and category != "Sk" and "\u200d" not in text[place - 1 : place + 1]:
            return place
    return cut


def _next_solid(text: str, place: int) -> int:
    while place < len(text) and text[place].isspace():
        place += 1
    return place


def _trimmed(text: str, start: int, stop: int) -> tuple[int, int]:
    if start == stop:
        return start, stop
    piece = text[start:stop]
    start += len(piece) - len(piece.lstrip())
    return start, max(start, start + len(piece.strip()))
