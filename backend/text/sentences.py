"""Splits a text into sentences, in prose and in documents made of lines, and sentences into chunks. Needs no model.

Written here because other libraries give tokens instead of offsets (syntok), are slow and unmaintained (pysbd), or take
the lines of an invoice for one sentence (both).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise

import numpy as np
from numpy.typing import NDArray

from backend.models.words import Offsets
from backend.text.word_lists import (
    ABBREVIATIONS_ANYWHERE,
    ABBREVIATIONS_BEFORE_NUMBERS,
    ABBREVIATIONS_BEFORE_WORDS,
    ENGLISH_OR_SPANISH,
)

MAX_CHARACTERS = 1_000  # some 250 tokens; longer than any sentence worth quoting

_LINE_END = re.compile(r"[\n\r\v\f\x85\u2028\u2029](?:(?<=\r)\n)?")
_PARAGRAPH_ENDS = "\f\u2029"
# A stop with closing brackets, quotes and note marks after it. Only the start of a run of stops is tried, and closers
# are matched possessively, so that no text makes this quadratic.
STOPS = ".!?…"
FOREIGN_STOPS = "\u3002\uff01\uff1f\uff61\u061f\u06d4\u0964\u0965"  # Chinese and Japanese; Arabic, Urdu, Hindi
_STOP_MARK = re.compile(f"[{STOPS}{FOREIGN_STOPS}]")  # looked for first: fast, where few stop
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
_WEB_ADDRESS = re.compile(r"www\.|https?://|[^\s@]+@[^\s@]")
_FIGURES = re.compile(r"(?:(?<!\s)\s+[(\-$€£]*\d[\d.,]*[%)]*){2,}$")
_COLUMNS = re.compile(r"\S(?:\t|\s{3,})\S")

_DOTTED = re.compile(r"(?:[^\W\d_]{1,2}\.)+[^\W\d_]{1,2}")
_PLURAL = re.compile(r"([A-Z])\1")  # Spanish plural abbreviations: "EE. UU.", "RR. HH."
_TOKEN = re.compile(r"[^\s(\[{\"'«“\u2018¿¡/]+$")
_WORD = re.compile(r"[^\W\d_]+")
_VOWELS = set("aeiouy")
_WIDEST = 160  # characters; a longer line was not wrapped, so its end is intended
_NARROWEST = 40  # a shorter line is a heading or a field, unless the next one clearly continues it
_RAGGED = 0.85  # of the widest line: lines are wrapped by width, and letters differ in width
_LONGEST_TOKEN = 24  # characters examined on either side of a stop


def sentence_spans(text: str) -> Offsets:
    """First and past-last code point of each sentence, in order: (sentences, 2) int64.

    Every non-blank character is in exactly one sentence; none begins or ends with a blank or is longer than
    ``MAX_CHARACTERS``. A sentence ends at a stop that does not belong to an abbreviation, an initial, a number or a
    list; at a blank line; and at the end of a line that was not just wrapped there. Linear in the text's length.

    Source of the rule for abbreviations that may end a sentence: Kiss and Strunk 2006, frequent sentence starters.
    """
    spans = (
        piece
        for paragraph in _paragraphs(text)
        for sentence in _sentences(text, *paragraph)
        for piece in _limit_length(text, *sentence)
    )
    return np.fromiter(chain.from_iterable(spans), np.int64).reshape(-1, 2)


def chunk_spans(token_starts: NDArray[np.int64], sentences: Offsets, most_tokens: int) -> list[tuple[int, int]]:
    """First and past-last code point of each chunk of whole sentences that fits a model, in order.

    Consecutive sentences are joined while they fit; one that is too long by itself is cut between tokens. Every token
    of a sentence is in exactly one chunk. A sentence counts the tokens from the end of the one before it: SentencePiece
    lets the first token of a word begin at the space before it.

    Args:
        token_starts: (tokens) where each token of the text begins, ascending; without special tokens.
        sentences: (sentences, 2) from `sentence_spans`.
        most_tokens: in a chunk.
    """
    chunks: list[tuple[int, int]] = []
    open_start = open_end = open_tokens = last = 0
    for start, end in sentences.tolist():
        first, last = last, int(np.searchsorted(token_starts, end))
        if open_tokens and open_tokens + last - first > most_tokens:
            chunks.append((open_start, open_end))
            open_tokens = 0
        if last - first > most_tokens:
            chunks += _cut_between_tokens(token_starts[first:last].tolist(), start, end, most_tokens)
            continue
        open_start, open_end = (open_start if open_tokens else start), end
        open_tokens += last - first
    return [*chunks, (open_start, open_end)] if open_tokens else chunks


def _paragraphs(text: str) -> Iterator[tuple[int, int]]:
    """Spans of lines, joined where one was wrapped into the next; trimmed, never blank."""
    start = 0
    lines = list(_lines(text))
    for block in _blocks(lines):
        width = max((stop - start for start, stop in block if stop - start <= _WIDEST), default=0)
        start = block[0][0]
        for (line_start, line_stop), (next_start, next_stop) in pairwise(block):
            if not _continues(text[line_start:line_stop], text[next_start:next_stop], width):
                yield start, line_stop
                start = next_start
        yield start, block[-1][1]


def _lines(text: str) -> Iterator[tuple[int, int]]:
    """Trimmed span of each line; an empty span for a blank line."""
    start = 0
    for end in _LINE_END.finditer(text):
        yield trimmed(text, start, end.start())
        if end[0] in _PARAGRAPH_ENDS:
            yield end.start(), end.start()
        start = end.end()
    yield trimmed(text, start, len(text))


def _blocks(lines: list[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """Groups of lines between blank lines."""
    block: list[tuple[int, int]] = []
    for line in lines:
        if line[0] < line[1]:
            block.append(line)
        elif block:
            yield block
            block = []
    if block:
        yield block


def _continues(line: str, next_line: str, width: int) -> bool:
    """Whether a line was only wrapped: its sentence continues on the next one.

    In this order: list items, table rows, e-mail addresses and URLs are separate; a stop is left to ``_sentences``; a
    line continues after a comma, function word or hyphen, or if the next begins in lower case; short and very long
    lines end; and so does a line on which the first word of the next would still have fitted.
    """
    if _ITEM.match(next_line) or _WEB_ADDRESS.match(next_line[:_WIDEST]) or _is_row(line) or _is_row(next_line):
        return False
    last = line[-1]
    first = next_line.split(maxsplit=1)[0]
    if last in STOPS or last in ":;":
        return last in STOPS and len(line) >= _NARROWEST
    words = line[-_LONGEST_TOKEN:].split()
    if last in ",-(/&¬\xad\u2010" or next_line[0].islower() or (len(words) > 1 and words[-1] in ENGLISH_OR_SPANISH):
        return True
    return _NARROWEST <= len(line) <= _WIDEST and len(line) + 1 + len(first) > _RAGGED * width


def _is_row(line: str) -> bool:
    """Whether a line is a table row: it has wide gaps, or ends in two figures."""
    return _COLUMNS.search(line[:_WIDEST]) is not None or _FIGURES.search(line[-_LONGEST_TOKEN:]) is not None


def _sentences(text: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """The sentences of a paragraph."""
    read_to = start
    for mark in _STOP_MARK.finditer(text, start, stop):
        match = _STOP.match(text, mark.start(), stop) if mark.start() >= read_to else None
        if match is None:
            continue
        read_to = match.end()
        if match.end() < stop and _ends(text, start, match):
            yield start, match.end()
            start = _skip_blanks(text, match.end())
    yield start, stop


def _ends(text: str, start: int, match: re.Match[str]) -> bool:
    """Whether a stop ends the sentence that began at ``start``."""
    if match[0][0] in FOREIGN_STOPS:
        return True  # of scripts that have no capitals and use it for no abbreviations
    after = _skip_blanks(text, match.end())
    following = text[after : after + _LONGEST_TOKEN]
    if following[0].islower():
        return False
    if match[0][0] != "." or match[0].startswith(".."):
        return True
    before = _TOKEN.search(text, max(start, match.start() - _LONGEST_TOKEN), match.start())
    return before is None or not _is_abbreviation(before[0], following, is_first=before.start() == start)


def _is_abbreviation(token: str, following: str, *, is_first: bool) -> bool:
    """Whether the full stop after a token belongs to the token and does not end the sentence."""
    if is_first and _ENUMERATOR.fullmatch(token):
        return True
    lowered = token.lower()
    if lowered in ABBREVIATIONS_BEFORE_WORDS and (not token.isupper() or following[:2].isupper()):
        return True
    if lowered in ABBREVIATIONS_BEFORE_NUMBERS and (following[0].isdigit() or following[0] in "º§IVXLC"):
        return True
    if _PLURAL.fullmatch(token) and _PLURAL.match(following) and following[2:3] == ".":
        return True
    if not _may_be_abbreviation(token, lowered):
        return False
    word = _WORD.match(following)
    return word is None or word[0].lower() not in ENGLISH_OR_SPANISH or len(word[0]) < 2


def _may_be_abbreviation(token: str, lowered: str) -> bool:
    """Whether a token may be an abbreviation: it is listed, an initial, has stops between letters, or has no vowel."""
    if lowered in ABBREVIATIONS_ANYWHERE or _DOTTED.fullmatch(token) or _PLURAL.fullmatch(token):
        return True
    if not token.isalpha():
        return False
    return len(token) == 1 or (
        len(token) <= 4 and not token.isupper() and token.isascii() and not _VOWELS & set(lowered)
    )


def _limit_length(text: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """A sentence in pieces of at most ``MAX_CHARACTERS``, cut at the last possible blank."""
    while stop - start > MAX_CHARACTERS:
        cut = start + MAX_CHARACTERS
        if not text[cut].isspace():
            cut = _last_blank(text, start, cut) or _grapheme_boundary(text, cut)
        yield trimmed(text, start, cut)
        start = _skip_blanks(text, cut)
    yield start, stop


def _last_blank(text: str, start: int, stop: int) -> int | None:
    """The last blank in the second half of a piece, or None."""
    return next((index for index in range(stop - 1, start + MAX_CHARACTERS // 2, -1) if text[index].isspace()), None)


def _grapheme_boundary(text: str, cut: int) -> int:
    """The last position up to ``cut`` that splits no letter from its accents and no emoji from its joiners."""
    for index in range(cut, cut - 32, -1):  # a longer cluster is split
        category = unicodedata.category(text[index])
        if category[0] != "M" and category != "Sk" and "\u200d" not in text[index - 1 : index + 1]:
            return index
    return cut


def _skip_blanks(text: str, index: int) -> int:
    while index < len(text) and text[index].isspace():
        index += 1
    return index


def trimmed(text: str, start: int, stop: int, edges: str | None = None) -> tuple[int, int]:
    """A span without blanks, or the characters of ``edges``, at both ends; of these alone an empty one at its end."""
    piece = text[start:stop]
    start += len(piece) - len(piece.lstrip(edges))
    return start, start + len(piece.strip(edges))


def _cut_between_tokens(token_starts: Sequence[int], start: int, end: int, most_tokens: int) -> list[tuple[int, int]]:
    edges = [start, *token_starts[most_tokens::most_tokens], end]
    return list(pairwise(edges))
