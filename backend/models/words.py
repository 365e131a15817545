"""Splits a text into words as the training data of entity taggers does. Independent of any tokenizer."""

from __future__ import annotations

import re
import unicodedata

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
