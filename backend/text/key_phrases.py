"""Key phrases of a text: candidates from its words, ranked by frequency and by their vectors."""

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

from backend.abandoned import require_wanted
from backend.models.words import Offsets
from backend.normal_forms import normalized
from backend.text.diverse_selection import min_max_scaled, select_diverse, unit_vectors
from backend.text.word_lists import COMMON_VERBS, NUMBER_WORDS, VAGUE_WORDS, connectors, function_words

Key = tuple[str, ...]  # a phrase's content words, folded

MAX_WORDS = 4  # content words in a phrase
MAX_CANDIDATES = 100  # measured: 20 give phrases as good as 200
# Phrases while counting; above it, those met only once are dropped. A book has fewer.
_MAX_COUNTED = 200_000
_MAX_WEIGHTED = 2_000  # the most frequent of them, for which weights are computed
_WORDS_AT_ONCE = 4096
_LONGEST_WORD = 40  # characters; longer ones are URLs and noise
_NESTED = 0.7  # share of a longer phrase's occurrences that a nested phrase loses; not all, as the rest may be a verb
_COMMON_WORD_FACTOR = 0.5  # for a single word in lower case
_NAME_FACTOR = 1.3  # for a phrase with a capital inside a sentence
# Share of the weight against similarity to the text. Measured on XQuAD, F1 (en / es) of the words of eight phrases
# against those of the paragraph's questions: weight alone 0.38 / 0.37, vectors in context alone 0.34 / 0.30, both as
# here 0.38 / 0.36; with the 20 heaviest phrases embedded separately 0.40 / 0.37.
_WEIGHT_SHARE = 0.7

_INVISIBLE = "\ufeff\u200b\u200e\u200f\u2060"  # byte order mark, zero width, direction: not part of a word
_ELISION = re.compile(r"(?:[ldsnjcmt]|qu|dell|nell|all|dall|sull|un)['\u2019](?=\w)", re.IGNORECASE)
_POSSESSIVE = re.compile(r"(?<=\w)['\u2019]s?$", re.IGNORECASE)
# Endings of verbs and adverbs, by language. Lower case only: "United", "Limited" are names.
_NOTHING = re.compile(r"(?!)")
_NO_NOUN: Mapping[str, re.Pattern[str]] = {
    "en": re.compile(r"(?!family|supply|assembly|monopoly|reply|anomaly).{3,}(?:ly|[^e]ed)"),
    "es": re.compile(
        r".{2,}(?:ó|aron|ieron|aban|iendo|ándose|iéndose|arse|irse|aría|ería|arán|erán|irán|ará|erá)|.{4,}mente"
    ),
}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A possible key phrase. Inflected forms count as one: "contract", "contracts"."""

    text: str  # the most frequent spelling, with single spaces
    words: Key  # identifies the phrase
    places: Offsets  # (occurrences, 2) first and past-last code point, in order
    weight: float  # by frequency, length, position and capitals; comparable within one text only

    @property
    def count(self) -> int:
        return len(self.places)


@dataclass(frozen=True, slots=True)
class KeyPhrase:
    text: str
    score: float  # 0 to 1; comparable within one text only
    places: Offsets  # (occurrences, 2) first and past-last code point, in order

    @property
    def count(self) -> int:
        return len(self.places)


@dataclass(frozen=True, slots=True)
class _Grammar:
    """A language's words that end a phrase, and those that may join its words."""

    excluded: frozenset[str]
    joiners: Mapping[str, str]
    no_noun: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class _Word:
    start: int
    stop: int
    folded: str  # "" for a joiner
    kind: str  # "w" content word, "v" content word but vague alone, "p" preposition, "a" article


def phrase_candidates(text: str, words: Offsets, sentences: Offsets, language: str | None) -> list[Candidate]:
    """The possible key phrases, heaviest first, at most ``MAX_CANDIDATES``.

    A phrase is one to four content words within a sentence, joined only by blanks and words like "de" and "of";
    numbers, dates, punctuation and other function words end it. Scripts without blanks (Chinese, Thai) give none.

    Args:
        words, sentences: of this text, from ``word_places`` and ``sentence_spans``.
        language: ISO 639-1 or None, selects the word lists.

    Source of the weight: C-value (Frantzi, Ananiadou and Mima 2000), which discounts occurrences inside longer
    phrases; position and capitals as in YAKE (Campos et al. 2020).
    """
    spans: dict[Key, list[tuple[int, int]]] = {}
    limit = _MAX_COUNTED
    for run in _runs(text, words, sentences, language):
        for key, start, stop in _phrases(run):
            spans.setdefault(key, []).append((start, stop))
        if len(spans) > limit:
            spans = {key: places for key, places in spans.items() if len(places) > 1}
            limit = max(limit, 2 * len(spans))  # keeps the total cost linear in the text
    frequent = _most_frequent(spans)
    own_counts, sentence_starts = _own_counts(frequent), frozenset(sentences[:, 0].tolist())
    scored = [_candidate(text, key, places, own_counts[key], sentence_starts) for key, places in frequent.items()]
    return sorted(scored, key=lambda candidate: (-candidate.weight, *candidate.places[0]))[:MAX_CANDIDATES]


def rank_phrases(
    candidates: Sequence[Candidate],
    vectors: NDArray[np.float32],
    text_vector: NDArray[np.float32],
    *,
    top: int,
) -> list[KeyPhrase]:
    """The best ``top`` candidates by similarity to the text and by weight, each unlike those before it; best first.

    Shapes: vectors (candidates, width), text_vector (width), of any length; a candidate without a vector has zeros.

    A phrase that shares most of its words with one ranked before is left out. Source: EmbedRank++ (Bennani-Smires et
    al. 2018), maximal marginal relevance (Carbonell and Goldstein 1998) over phrase vectors.
    """
    if not candidates or top < 1:
        return []
    normalized = unit_vectors(vectors)
    weights = np.log1p(np.array([candidate.weight for candidate in candidates]))
    similarity = min_max_scaled(normalized @ unit_vectors(text_vector[None])[0])
    relevance = (1 - _WEIGHT_SHARE) * similarity + _WEIGHT_SHARE * min_max_scaled(weights)
    keys = [frozenset(candidate.words) for candidate in candidates]
    best = select_diverse(
        normalized,
        relevance,
        top,
        redundant_with=lambda index: np.array([_is_redundant(key, keys[index]) for key in keys]),
    )
    return [KeyPhrase(candidates[index].text, float(relevance[index]), candidates[index].places) for index in best]


def _runs(text: str, words: Offsets, sentences: Offsets, language: str | None) -> Iterator[list[_Word]]:
    """Sequences of content words and joiners with nothing else between them."""
    no_noun = _NO_NOUN.get(language or "en", _NOTHING)
    grammar = _Grammar(function_words(language) | COMMON_VERBS, connectors(language), no_noun)
    run: list[_Word] = []
    previous = (0, 0)  # sentence and end of the previous word
    for start, stop, sentence in _placed(words, sentences):
        gap = text[previous[1] : start]
        word = _phrase_word(text, start, stop, grammar)
        if run and (word is None or sentence != previous[0] or "\t" in gap or len(gap) > 2):
            yield run
            run = []
        previous = (sentence, stop)
        if word is not None:
            run.append(word)
    if run:
        yield run


def _placed(words: Offsets, sentences: Offsets) -> Iterator[list[int]]:
    """Start, end and sentence of each word; some thousand at once, as all of a megabyte would hold the interpreter."""
    numbers = np.searchsorted(sentences[:, 0], words[:, 0], side="right")
    for first in range(0, len(words), _WORDS_AT_ONCE):
        require_wanted()
        part = slice(first, first + _WORDS_AT_ONCE)
        yield from np.column_stack((words[part], numbers[part])).tolist()


def _phrase_word(text: str, start: int, stop: int, grammar: _Grammar) -> _Word | None:
    """A word as part of a phrase, without "l'" and "'s"; None when it ends the phrase."""
    if stop - start > _LONGEST_WORD:
        return None
    while start < stop and text[start] in _INVISIBLE:
        start += 1
    if possessive := _POSSESSIVE.search(text[start:stop]):
        stop = start + possessive.start()
    if elision := _ELISION.match(text[start:stop]):
        start += elision.end()
    word = text[start:stop]
    lowered = word.lower()
    if kind := grammar.joiners.get(lowered):
        return _Word(start, stop, "", kind)
    if _is_no_content(word) or lowered in grammar.excluded or (word == lowered and grammar.no_noun.fullmatch(word)):
        return None
    vague = lowered in VAGUE_WORDS or (len(word) < 3 and word == lowered)
    return _Word(start, stop, _folded(lowered), "v" if vague else "w")


def _is_no_content(word: str) -> bool:
    """Whether a word is a number (also in words), a date, a single letter, an address or a code."""
    letters, digits = sum(map(str.isalpha, word)), sum(map(str.isdigit, word))
    return letters < 2 or digits >= letters or "@" in word or word.lower() in NUMBER_WORDS


def _folded(lowered: str) -> str:
    """A word without accents and plural endings."""
    marks = normalized("NFD", lowered).replace("-", "")
    plain = (
        marks if marks.isascii() else "".join(mark for mark in marks if unicodedata.category(mark) != "Mn") or lowered
    )
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
        joined = ""  # the kinds of the joiners since the last content word
        for last in run[first + 1 :] if key else ():
            if last.folded:
                key, joined, vague = (*key, last.folded), "", vague and last.kind != "w"
                if not vague:
                    yield key, word.start, last.stop
            else:
                joined += last.kind
            if len(key) == MAX_WORDS or joined not in ("", "p", "pa"):
                break


def _most_frequent(spans: Mapping[Key, list[tuple[int, int]]]) -> dict[Key, list[tuple[int, int]]]:
    """The most frequent phrases, longer ones preferred; bounds the cost for a book."""
    keys = heapq.nlargest(
        _MAX_WEIGHTED, spans, key=lambda key: (len(spans[key]) * math.log2(1 + len(key)), -spans[key][0][0])
    )
    return {key: spans[key] for key in keys}


def _own_counts(spans: Mapping[Key, list[tuple[int, int]]]) -> dict[Key, float]:
    """Occurrences of each phrase less a share of those inside its most frequent longer phrase (C-value)."""
    within: Counter[Key] = Counter()
    for key, places in spans.items():
        for length in range(1, len(key)):
            for first in range(len(key) - length + 1):
                part = key[first : first + length]
                within[part] = max(within[part], len(places))
    return {key: len(places) - _NESTED * within[key] for key, places in spans.items()}


def _candidate(
    text: str, key: Key, places: list[tuple[int, int]], own_count: float, sentence_starts: frozenset[int]
) -> Candidate:
    spellings = Counter(" ".join(text[start:stop].split()) for start, stop in places)
    is_name = any(text[start].isupper() for start, _ in places if start not in sentence_starts)
    length = math.log2(1 + len(key)) if len(key) > 1 else 1.0 if is_name else _COMMON_WORD_FACTOR
    early = 1.5 - places[0][0] / len(text)
    weight = max(0.0, own_count) * length * early * (_NAME_FACTOR if is_name else 1.0)
    return Candidate(spellings.most_common(1)[0][0], key, np.array(places, np.int64), weight)


def _is_redundant(key: frozenset[str], selected: frozenset[str]) -> bool:
    """Whether a phrase is part of a selected one, or shares most of its words with it."""
    return key <= selected or len(key & selected) > 0.5 * len(key | selected)
