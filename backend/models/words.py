"""Splits a text into words as the training data of entity taggers does. Independent of any tokenizer.

The capitalisation of each word, for models whose tokenizer lower-cases every letter.

An uncased encoder never sees that "Banco" is a name and "banco" a bench. Its table of token types has one row that
single texts use; a model trained with more rows gets here the row of each word.
"""

from __future__ import annotations

import re
import unicodedata
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

Offsets = NDArray[np.int64]  # (spans, 2): first and past-last code point of each span

_JOINERS = "-\N{HYPHEN}\N{NON-BREAKING HYPHEN}'\N{RIGHT SINGLE QUOTATION MARK}.&@_\N{MIDDLE DOT}"
_DIGIT_JOINERS = ",:/"
# Scripts written without spaces: each character is a word, as in BERT's pre-tokenizer for Han; and kana.
_IDEOGRAPHS = ((0x3040, 0x30FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x323AF))
# Kinds of characters: w letter (and any other), d digit, j joiner, k joiner of digits, p other punctuation,
# c ideograph, and a blank. An abbreviation keeps its last full stop: "S.A.", "EE.UU." does not.
_WORD = re.compile(r"(?<![wdj])(?:w\.){2,}(?![wd])|[wd]+(?:(?:[j.]|(?<=d)k(?=d))[wd]+)*|[^ ]")
Ids = NDArray[np.int64]


class _Kinds(dict[int, str]):
    """Each code point's kind, computed once; for ``str.translate``."""

    def __missing__(self, code: int) -> str:
        kind = self[code] = _kind(chr(code))
        return kind


def word_places(text: str) -> Offsets:
    """First and past-last code point of each word, in order: (words, 2) int64.

    A word ends at a blank and at punctuation, which is a word of its own ("Madrid," is two), but continues over a
    joiner between letters or digits ("O'Brien", "12/03/2024", "AT&T"). Annotated data is split like this, and a tagger
    is trained on the label of a word's first token only.
    """
    matches = _WORD.finditer(text.translate(_KINDS))
    # Made number by number: an array of a list of a million spans holds the interpreter lock for 0.3 s.
    return np.fromiter((place for match in matches for place in match.span()), np.int64).reshape(-1, 2)


def word_of_pieces(pieces: Offsets, words: Offsets, characters: int) -> NDArray[np.int64]:
    """The index of the word that each token belongs to, by its first character that is not blank; -1 without one.

    Shapes: pieces (tokens, 2), words (words, 2) -> (tokens).
    """
    lengths = words[:, 1] - words[:, 0]
    numbers = np.repeat(np.arange(len(words)), lengths)
    filled = np.repeat(words[:, 0] - (np.cumsum(lengths) - lengths), lengths) + np.arange(len(numbers))
    nearest = np.searchsorted(filled, pieces[:, 0])  # the first character of a word at or after each piece's start
    places = np.append(filled, characters)[nearest]
    word_of_piece: NDArray[np.int64] = np.where(places < pieces[:, 1], np.append(numbers, -1)[nearest], -1)
    return word_of_piece


def _kind(character: str) -> str:
    category = unicodedata.category(character)
    if character.isspace() or category in ("Zs", "Zl", "Zp"):
        return " "
    if character == ".":
        return "."
    if character in _JOINERS:
        return "j"
    if character in _DIGIT_JOINERS:
        return "k"
    if category[0] == "P" or (character.isascii() and not character.isalnum() and category != "Cc"):
        return "p"
    if any(first <= ord(character) <= last for first, last in _IDEOGRAPHS):
        return "c"
    return "d" if category == "Nd" else "w"


_KINDS = _Kinds()


class Spelling(IntEnum):
    """A row of the table of token types."""

    PLAIN = 0  # lower case, or nothing that has a case: "banco", "2024", "東京"; and special tokens
    CAPITALISED = 1  # each of its parts, or all but the first letters small: "Banco", "O'Brien", "Ruiz-Mateos"
    CAPITALS = 2  # two letters and more: "IVA", "S.A.", "COVID-19"
    INITIAL = 3  # one letter, a capital: "J.", "A"
    MIXED = 4  # any other: "iPhone", "McDonald", "SpA"


KINDS = len(Spelling)
_BARE, _UNCASED, _SMALL, _CAPITAL = range(4)  # of characters


class _Cases(dict[int, str]):
    """Each code point's case, computed once; for ``str.translate``."""

    def __missing__(self, code: int) -> str:
        case = self[code] = chr(_case(chr(code)))
        return case


def word_spellings(text: str, words: Offsets) -> Ids:
    """The row of each word. Shapes: words (words, 2), code points, in order and not empty -> (words) int64."""
    cases = np.frombuffer(text.translate(_CASES).encode("latin-1"), np.uint8)
    letters, capitals = cases != _BARE, cases == _CAPITAL
    begins = letters & ~np.concatenate([[False], letters[:-1]])  # of a run of letters: of "O" and "Brien"
    begins[words[:, 0]] = letters[words[:, 0]]  # also where the word before it touches it, as ideographs do
    count, high, led = (_within(flags, words) for flags in (letters, capitals, capitals & begins))
    small = _within(cases == _SMALL, words)
    runs = _within(begins, words)
    rows = np.full(len(words), Spelling.MIXED, np.int64)
    rows[(high == led) & _first_is_capital(cases, words)] = Spelling.CAPITALISED
    rows[(high > 1) & (small == 0)] = Spelling.CAPITALS
    rows[(high == 1) & (count == 1) & (runs == 1)] = Spelling.INITIAL
    rows[high == 0] = Spelling.PLAIN
    return rows


def _within(flags: NDArray[np.bool_], words: Offsets) -> Ids:
    """How many of each word's characters are marked. Shapes: flags (characters), words (words, 2) -> (words)."""
    before = np.concatenate([[0], np.cumsum(flags)])
    counts: Ids = before[words[:, 1]] - before[words[:, 0]]
    return counts


def _first_is_capital(cases: NDArray[np.uint8], words: Offsets) -> NDArray[np.bool_]:
    """Whether the first letter of each word that has a case is a capital. Shapes: cases (characters) -> (words)."""
    cased = np.append(np.flatnonzero(cases >= _SMALL), len(cases))
    first = cased[np.searchsorted(cased, words[:, 0])]
    is_capital: NDArray[np.bool_] = (first < words[:, 1]) & (np.append(cases, _BARE)[first] == _CAPITAL)
    return is_capital


def _case(character: str) -> int:
    if character.isupper() or character.istitle():
        return _CAPITAL
    if character.islower():
        return _SMALL
    # A combining mark belongs to the letter before it and ends no run: "É" may be two code points.
    return _UNCASED if character.isalpha() or unicodedata.category(character)[0] == "M" else _BARE


_CASES = _Cases()
