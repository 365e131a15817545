"""Sentences that a text repeats, as pages repeat their headers, footers and closing lines: they tell nothing new."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

_LEAST_COPIES = 3  # anywhere; twice may be a point that is made again
_LEAST_COPIES_AT_ENDS = 2  # at the beginning or the end of different pages
_AT_ENDS = 3  # sentences and lines, counted from each
_OVERLAP = 0.9  # of the words; the numbers are the same: "sales of March" is no copy of "sales of May"
_COMPARED = 16  # sentences that begin, or end, alike; bounds the time
_KEY_WORDS = 3
_WORD = re.compile(r"[^\W\d_]+")
_NUMBER = re.compile(r"\d(?:[\d.,]*\d)?")
_PAGE_NUMBER = re.compile(r"\b(?:p[áa]g(?:ina)?s?|pages?|hoja|sheet)\b\.?\s*\d+(?:\s*(?:de|of|/)\s*\d+)?")


@dataclass(frozen=True, slots=True)
class _Said:
    words: frozenset[str]
    numbers: frozenset[str]  # but for the page's
    begins: tuple[str, ...]
    ends: tuple[str, ...]

    def is_like(self, other: _Said) -> bool:
        common, all_words = len(self.words & other.words), len(self.words | other.words)
        return self.numbers == other.numbers and common > _OVERLAP * all_words


def repeated_sentences(texts: Sequence[str], pages: Sequence[int] = ()) -> frozenset[int]:
    """Which sentences the text says three times or more, or on two pages at their beginning or end.

    Takes time linear in the sentences.

    Args:
        texts: the sentences, in order.
        pages: of each; unset: all on one.
    """
    copies = _copies(texts)
    ends = _at_page_ends(pages)
    return frozenset(
        index
        for indexes in copies
        if len(indexes) >= _LEAST_COPIES
        or (indexes <= ends and len({pages[index] for index in indexes}) >= _LEAST_COPIES_AT_ENDS)
        for index in indexes
    )


def _copies(texts: Sequence[str]) -> list[set[int]]:
    """For each different sentence, where it and those like it stand."""
    places: dict[_Said, list[int]] = {}
    for index, text in enumerate(texts):
        places.setdefault(_said(text), []).append(index)
    copies = {said: set(indexes) for said, indexes in places.items()}
    alike: dict[tuple[str, tuple[str, ...]], list[_Said]] = {}
    for said in places:
        alike.setdefault(("begins", said.begins), []).append(said)
        alike.setdefault(("ends", said.ends), []).append(said)
    for group in alike.values():
        for one, other in itertools.combinations(group[:_COMPARED], 2):
            if one.is_like(other):
                copies[one].update(places[other])
                copies[other].update(places[one])
    return [indexes for said, indexes in copies.items() if said.words]


def _said(text: str) -> _Said:
    read = _PAGE_NUMBER.sub(" ", text.lower())
    words = _WORD.findall(read)
    return _Said(
        frozenset(words), frozenset(_NUMBER.findall(read)), tuple(words[:_KEY_WORDS]), tuple(words[-_KEY_WORDS:])
    )


def _at_page_ends(pages: Sequence[int]) -> frozenset[int]:
    """The sentences near the beginning or the end of their page."""
    found: set[int] = set()
    for _, numbered in itertools.groupby(enumerate(pages), key=lambda item: item[1]):
        indexes = [index for index, _ in numbered]
        found.update(indexes[:_AT_ENDS], indexes[-_AT_ENDS:])
    return frozenset(found)
