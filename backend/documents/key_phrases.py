"""The phrases that say what a text is about: which could be, by its words alone, and which are, by their vectors."""

from __future__ import annotations

import heapq
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backend.documents.diverse_selection import diverse, spread, units
from backend.documents.word_lists import COMMON_VERBS, NUMBER_WORDS, VAGUE_WORDS, connectors, function_words
from backend.models.words import Offsets

Key = tuple[str, ...]  # a phrase's words of content, folded

MAX_WORDS = 4  # words of content in a phrase
MAX_CANDIDATES = 100  # measured: 20 give phrases as good as 200
# Phrases kept while counting; over it, those met once only go. A book has fewer.
_MAX_COUNTED = 200_000
_MAX_KEPT = 2_000  # of them, those weighed
_LONGEST_WORD = 40  # characters; longer ones are addresses and noise
_NESTED = 0.7  # of a longer phrase's occurrences that a part of it loses; not all, for its other words may be a verb
_ONE_COMMON_WORD = 0.5
_NAMED = 1.3
# Weight against nearness to the whole. Measured on XQuAD, words of eight phrases met in the paragraph's questions, F1
# en / es: weight alone 0.38 / 0.37, vectors in context alone 0.34 / 0.30, both as here 0.38 / 0.36; with vectors of the
# 20 heaviest phrases embedded by themselves 0.40 / 0.37.
_OF_WEIGHT = 0.7

_INVISIBLE = "\ufeff\u200b\u200e\u200f\u2060"  # byte order mark, zero width, direction: no part of a word
_ELISION = re.compile(r"(?:[ldsnjcmt]|qu|dell|nell|all|dall|sull|un)['\u2019](?=\w)", re.IGNORECASE)
_POSSESSIVE = re.compile(r"(?<=\w)['\u2019]s?$", re.IGNORECASE)
# Endings of words that name nothing, by language: verbs and adverbs. Small letters only: "United", "Limited" are names.
_NOTHING = re.compile(r"(?!)")
_NO_NOUN: Mapping[str, re.Pattern[str]] = {
    "en": re.compile(r"(?!family|supply|assembly|monopoly|reply|anomaly).{3,}(?:ly|[^e]ed)"),
    "es": re.compile(
        r".{2,}(?:ó|aron|ieron|aban|iendo|ándose|iéndose|arse|irse|aría|ería|arán|erán|irán|ará|erá)|.{4,}mente"
    ),
}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A phrase that could be a key phrase. Inflected forms are one: "contract", "contracts"."""

    text: str  # as written most often, blanks made one
    words: Key  # what makes two phrases alike
    places: Offsets  # (occurrences, 2) first and past-last code point, in order
    weight: float  # by frequency, length, place and capitals; comparable within one text only

    @property
    def count(self) -> int:
        return len(self.places)


@dataclass(frozen=True, slots=True)
class KeyPhrase:
    text: str
    score: float  # 0 to 1; comparable within one text only
    places: Offsets  # (occurrences, 2) first and past-last code point, in order


@dataclass(frozen=True, slots=True)
class _Grammar:
    """What a language's phrases are not made of, and what may join their words."""

    words: frozenset[str]
    joiners: Mapping[str, str]
    no_noun: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class _Word:
    start: int
    stop: int
    folded: str  # "" for a word that joins two of content
    kind: str  # "w" of content, "v" of content but vague alone, "p" preposition, "a" article


def candidates(text: str, words: Offsets, sentences: Offsets, language: str | None) -> list[Candidate]:
    """The phrases worth a vector, heaviest first, at most ``MAX_CANDIDATES``.

    A phrase is one to four words of content within a sentence, joined by nothing but blanks and words like "de" and
    "of"; numbers, dates, punctuation and other words of grammar end it. Scripts without blanks (Chinese, Thai) give
    none: their words are not told apart.

    Args:
        words, sentences: of this text, from ``word_places`` and ``sentence_places``.
        language: ISO 639-1 or None, for words of grammar and of no name.

    Source of the weight: C-value (Frantzi, Ananiadou and Mima 2000), which takes from a phrase what only longer ones
    contribute; place and capitals after YAKE (Campos et al. 2020).
    """
    found: dict[Key, list[tuple[int, int]]] = {}
    limit = _MAX_COUNTED
    for run in _runs(text, words, sentences, language):
        for key, start, stop in _phrases(run):
            found.setdefault(key, []).append((start, stop))
        if len(found) > limit:
            found = {key: places for key, places in found.items() if len(places) > 1}
            limit = max(limit, 2 * len(found))  # so that sifting stays linear in the text
    kept = _heaviest(found)
    own, openings = _own_share(kept), frozenset(sentences[:, 0].tolist())
    made = [_candidate(text, key, places, own[key], openings) for key, places in kept.items()]
    return sorted(made, key=lambda candidate: (-candidate.weight, *candidate.places[0]))[:MAX_CANDIDATES]


def rank(
    found: Sequence[Candidate],
    vectors: NDArray[np.float32],
    whole: NDArray[np.float32],
    *,
    top: int,
    diversity: float = 0.3,
) -> list[KeyPhrase]:
    """The best ``top`` candidates by nearness to the whole and by weight, each unlike those before it; best first.

    Shapes: vectors (candidates, width), whole (width), of any length; a candidate without a vector has zeros.

    Args:
        diversity: 0 ranks by worth alone, 1 by difference alone.

    A phrase that shares most of its words with one chosen before is left out. Source: EmbedRank++ (Bennani-Smires et
    al. 2018), maximal marginal relevance (Carbonell and Goldstein 1998) over phrase vectors.
    """
    if not found or top < 1:
        return []
    parts = units(vectors)
    weights = np.log1p(np.array([candidate.weight for candidate in found]))
    worth = (1 - _OF_WEIGHT) * spread(parts @ units(whole[None])[0]) + _OF_WEIGHT * spread(weights)
    keys = [frozenset(candidate.words) for candidate in found]
    chosen = diverse(
        parts, worth, top, diversity=diversity, same=lambda best: np.array([_alike(keys[best], key) for key in keys])
    )
    return [KeyPhrase(found[best].text, float(worth[best]), found[best].places) for best in chosen]


def _runs(text: str, words: Offsets, sentences: Offsets, language: str | None) -> Iterator[list[_Word]]:
    """Words of content, and those that join them, that stand together with nothing else between."""
    no_noun = _NO_NOUN.get(language or "en", _NOTHING)
    grammar = _Grammar(function_words(language) | COMMON_VERBS, connectors(language), no_noun)
    numbers = np.searchsorted(sentences[:, 0], words[:, 0], side="right").tolist()
    run: list[_Word] = []
    before = (0, 0)  # sentence and end of the word before
    for (start, stop), sentence in zip(words.tolist(), numbers, strict=True):
        gap = text[before[1] : start]
        word = _read(text, start, stop, grammar)
        if run and (word is None or sentence != before[0] or "\t" in gap or len(gap) > 2):
            yield run
            run = []
        before = (sentence, stop)
        if word is not None:
            run.append(word)
    if run:
        yield run


def _read(text: str, start: int, stop: int, grammar: _Grammar) -> _Word | None:
    """The word as part of a phrase, without "l'" and "'s"; None when it ends one."""
    if stop - start > _LONGEST_WORD:
        return None
    while start < stop and text[start] in _INVISIBLE:
        start += 1
    if possessive := _POSSESSIVE.search(text[start:stop]):
        stop = start + possessive.start()
    if elision := _ELISION.match(text[start:stop]):
        start += elision.end()
    word = text[start:stop]
    small = word.lower()
    if kind := grammar.joiners.get(small):
        return _Word(start, stop, "", kind)
    if _names_nothing(word) or small in grammar.words or (word == small and grammar.no_noun.fullmatch(word)):
        return None
    vague = small in VAGUE_WORDS or (len(word) < 3 and word == small)
    return _Word(start, stop, _folded(small), "v" if vague else "w")


def _names_nothing(word: str) -> bool:
    """A number, also in words, a date, a single letter, an address, a code."""
    letters, digits = sum(map(str.isalpha, word)), sum(map(str.isdigit, word))
    return letters < 2 or digits >= letters or "@" in word or word.lower() in NUMBER_WORDS


def _folded(small: str) -> str:
    """Without accents and the endings of a plural."""
    marks = unicodedata.normalize("NFD", small).replace("-", "")
    plain = marks if marks.isascii() else "".join(mark for mark in marks if unicodedata.category(mark) != "Mn") or small
    if len(plain) <= 3 or not plain.endswith("s") or plain.endswith(("ss", "us", "is")):
        return plain
    if plain.endswith("ies") and len(plain) > 4:
        return plain[:-3] + "y"
    # "condiciones", "taxes"; but "services", "leases"
    return plain[:-2] if plain.endswith(("nes", "res", "des", "xes", "shes", "ches")) and len(plain) > 4 else plain[:-1]


def _phrases(run: list[_Word]) -> Iterator[tuple[Key, int, int]]:
    """Key, start and stop of every phrase within a run."""
    for first, word in enumerate(run):
        key: Key = (word.folded,) if word.folded else ()
        vague = word.kind != "w"
        if key and not vague:
            yield key, word.start, word.stop
        joined = ""  # the words of grammar since the last one of content, "p" and "a"
        for last in run[first + 1 :] if key else ():
            if last.folded:
                key, joined, vague = (*key, last.folded), "", vague and last.kind != "w"
                if not vague:
                    yield key, word.start, last.stop
            else:
                joined += last.kind
            if len(key) == MAX_WORDS or joined not in ("", "p", "pa"):
                break


def _heaviest(found: Mapping[Key, list[tuple[int, int]]]) -> dict[Key, list[tuple[int, int]]]:
    """The phrases that are said most, longer ones first: what is looked at closely, so that a book costs no more."""
    keys = heapq.nlargest(
        _MAX_KEPT, found, key=lambda key: (len(found[key]) * math.log2(1 + len(key)), -found[key][0][0])
    )
    return {key: found[key] for key in keys}


def _own_share(kept: Mapping[Key, list[tuple[int, int]]]) -> dict[Key, float]:
    """How often each phrase is said other than within the commonest longer one."""
    within: Counter[Key] = Counter()
    for key, places in kept.items():
        for length in range(1, len(key)):
            for first in range(len(key) - length + 1):
                part = key[first : first + length]
                within[part] = max(within[part], len(places))
    return {key: len(places) - _NESTED * within[key] for key, places in kept.items()}


def _candidate(text: str, key: Key, places: list[tuple[int, int]], own: float, openings: frozenset[int]) -> Candidate:
    written = Counter(" ".join(text[start:stop].split()) for start, stop in places)
    named = any(text[start].isupper() for start, _ in places if start not in openings)
    length = math.log2(1 + len(key)) if len(key) > 1 else 1.0 if named else _ONE_COMMON_WORD
    early = 1.5 - places[0][0] / len(text)
    weight = max(0.0, own) * length * early * (_NAMED if named else 1.0)
    return Candidate(written.most_common(1)[0][0], key, np.array(places, np.int64), weight)


def _alike(one: frozenset[str], other: frozenset[str]) -> bool:
    """Whether ``other`` is a part of ``one``, or most words of both are the same."""
    return other <= one or len(one & other) > 0.5 * len(one | other)
