"""The capitalisation of each word, for models whose tokenizer lower-cases every letter.

An uncased encoder never sees that "Banco" is a name and "banco" a bench. Its table of token types has one row that
single texts use; a model trained with more rows gets here the row of each word.
"""

from __future__ import annotations

import unicodedata
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from backend.models.words import Offsets

Ids = NDArray[np.int64]


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
