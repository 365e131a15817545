"""Key sentences of a text: an extractive summary, selected by the sentences' vectors."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backend.text.dangling_references import opens_with_reference
from backend.text.diverse_selection import min_max_scaled, select_diverse, unit_vectors
from backend.text.repeated_sentences import repeated_sentences
from backend.text.sentences import CLOSERS, FOREIGN_STOPS, STOPS

# Length of a sentence that can stand alone: shorter ones are headings and fields, longer ones lists.
_MIN_CHARACTERS = 30
_MAX_CHARACTERS = 600
_LEAST_WORDS = 5  # distinct ones, numbers counted as one, in a sentence that ends with a full stop
_LEAST_WORDS_OF_A_LINE = 8  # in one without; most of those are headings, addresses and rows
_ENDS = tuple(STOPS + FOREIGN_STOPS)
_LEAST_LETTERS = 0.6  # of the non-blank characters; rows of figures have fewer
_WORD = re.compile(r"[^\W\d_]{2,}")
_FIGURE = re.compile(r"\d")
_WORD_OR_NUMBER = re.compile(r"\w+")
# Share of common words and numbers of two sentences that say the same. Not the cosine of their vectors: with
# multilingual-e5-small different sentences of one text have 0.99, as much as a repeated one.
_DUPLICATE_OVERLAP = 0.9
_MOST_CAPITALS = 0.7  # of the letters; headings have more
_MOST_CANDIDATES = 8192  # a book's; bounds the memory: 384 numbers each, 25 MB in float64
_POSITION_SHARE = 0.25  # advantage of the first sentence over the last; the second has 0.7 of it, the tenth 0.3
_CENTRALITY_SHARE = 0.35  # of similarity to the other sentences, against similarity to the text


@dataclass(frozen=True, slots=True)
class KeySentence:
    index: int  # in the input sentences
    score: float  # 0 to 1; comparable within one text only


@dataclass(frozen=True, slots=True)
class SummaryLength:
    """How long a summary may be; both limits hold, None is no limit."""

    sentences: int | None = None
    tokens: int | None = None  # of the embedding model


@dataclass(frozen=True, slots=True)
class SummaryCandidates:
    """The sentences of a text that may be in its summary. Shapes: (candidates) each."""

    indexes: NDArray[np.int64]  # in the sentences, ascending
    before: NDArray[np.int64]  # how many candidates right before it must be in a summary that has it


def select_key_sentences(
    texts: Sequence[str],
    vectors: NDArray[np.float32],
    text_vector: NDArray[np.float32],
    *,
    count: int,
    diversity: float = 0.3,
) -> list[KeySentence]:
    """The ``count`` sentences that best represent the text and differ from each other, in the text's order.

    Shapes: vectors (sentences, width), text_vector (width), of any length; a sentence without a vector has zeros.

    Args:
        texts: the sentences, in order; too short, too long and letterless ones are skipped. If that leaves none,
            the limits of length are dropped, so that a text of form fields has a summary too.
        diversity: 0 selects by relevance alone, 1 by difference alone.

    Source: similarity to the centroid and position from MEAD (Radev et al. 2004), similarity to the other sentences
    from LexRank's degree centrality (Erkan and Radev 2004), maximal marginal relevance (Carbonell and Goldstein 1998).
    """
    eligible = [index for index, text in enumerate(texts) if _stands_alone(text)]
    eligible = eligible or [index for index, text in enumerate(texts) if len(_WORD.findall(text)) > 1]
    if not eligible or count < 1:
        return []
    normalized = unit_vectors(vectors[eligible])
    relevance = _relevance(normalized, text_vector)
    repeats = _repeats_of([texts[index] for index in eligible])
    selected = select_diverse(normalized, relevance, count, diversity=diversity, redundant_with=repeats)
    return [KeySentence(eligible[index], float(relevance[index])) for index in sorted(selected)]


def summary_candidates(texts: Sequence[str], language: str | None, *, pages: Sequence[int] = ()) -> SummaryCandidates:
    """The sentences that may be in a summary: whole ones that stand alone, or that follow one that does.

    A sentence that opens with a reference to what was said ("Además", "This") needs the one before it. The first
    sentence of a text refers to nothing that the reader of the summary lacks. What pages repeat is left out.

    Args:
        texts: the sentences of a text, in order.
        language: ISO 639-1; None where it is not known. Only for "es" and "en" there is a list of references.
        pages: of each sentence; unset: all on one.
    """
    eligible = [index for index, text in enumerate(texts) if _stands_alone(text)]
    eligible = [index for index in eligible if _is_whole(texts[index])] or eligible
    eligible = _without_repeated(eligible, texts, pages)
    before: dict[int, int] = {}
    for index in eligible:
        if index == 0 or not opens_with_reference(texts[index], language):
            before[index] = 0
        elif index - 1 in before:
            before[index] = before[index - 1] + 1
    if len(before) > _MOST_CANDIDATES:
        first = [index for index, count in before.items() if count == 0]
        before = dict.fromkeys(first[:: 1 + (len(first) - 1) // _MOST_CANDIDATES], 0)
    return SummaryCandidates(np.array(list(before), np.int64), np.array(list(before.values()), np.int64))


def select_summary(
    texts: Sequence[str],
    before: NDArray[np.int64],
    vectors: NDArray[np.float32],
    text_vector: NDArray[np.float32],
    *,
    length: SummaryLength,
    tokens: NDArray[np.int64],
    diversity: float = 0.3,
) -> list[KeySentence]:
    """The candidates that best represent the text within a length, in the text's order; selected as key sentences are.

    None, where none fits: a sentence is never cut.

    Shapes: vectors (candidates, width), text_vector (width), tokens (candidates).

    Args:
        texts, before: of `SummaryCandidates`.
        tokens: of each candidate.
    """
    if not texts:
        return []
    normalized = unit_vectors(vectors)
    relevance = _relevance(normalized, text_vector)
    runs = [relevance[index - count : index + 1].mean() for index, count in enumerate(before.tolist())]
    selected = select_diverse(
        normalized,
        np.array(runs),
        len(texts) if length.sentences is None else length.sentences,
        diversity=diversity,
        redundant_with=_repeats_of(texts),
        before=before,
        costs=tokens.astype(np.float64),
        budget=math.inf if length.tokens is None else length.tokens,
    )
    return [KeySentence(index, float(relevance[index])) for index in sorted(selected)]


def _relevance(normalized: NDArray[np.float64], text_vector: NDArray[np.float32]) -> NDArray[np.float64]:
    """How well each sentence represents the text, 0 to 1. Shapes: (sentences, width) of length 1, (width)."""
    centrality = normalized @ normalized.mean(axis=0)
    position = 1 / np.sqrt(1 + np.arange(len(normalized)))
    to_text = min_max_scaled(normalized @ unit_vectors(text_vector[None])[0])
    similarity = (1 - _CENTRALITY_SHARE) * to_text + _CENTRALITY_SHARE * min_max_scaled(centrality)
    relevance: NDArray[np.float64] = (1 - _POSITION_SHARE) * similarity + _POSITION_SHARE * position
    return relevance


def _repeats_of(texts: Sequence[str]) -> Callable[[int], NDArray[np.bool_]]:
    """Tells which sentences say the same as the one at an index."""
    words = [frozenset(_WORD_OR_NUMBER.findall(text.lower())) for text in texts]
    return lambda index: _repeats(words, words[index])


def _repeats(sentences: Sequence[frozenset[str]], other: frozenset[str]) -> NDArray[np.bool_]:
    """Which sentences have the words of another, as those that are repeated on each page."""
    return np.array([len(words & other) > _DUPLICATE_OVERLAP * len(words | other) for words in sentences], np.bool_)


def _without_repeated(eligible: list[int], texts: Sequence[str], pages: Sequence[int]) -> list[int]:
    """Those that pages do not repeat; all, where there are no others."""
    repeated = repeated_sentences(texts, pages)
    return [index for index in eligible if index not in repeated] or eligible


def _is_whole(text: str) -> bool:
    """Whether a sentence has its beginning and its end, and is no heading in capitals."""
    letters = [letter for letter in text if letter.isalpha()]
    capitals = sum(map(str.isupper, letters))
    return (
        not letters[0].islower() and capitals <= _MOST_CAPITALS * len(letters) and text.rstrip(CLOSERS).endswith(_ENDS)
    )


def _stands_alone(text: str) -> bool:
    """Whether a sentence makes sense by itself: it is no heading, no row of figures, and not half a page long."""
    if not _MIN_CHARACTERS <= len(text) <= _MAX_CHARACTERS:
        return False
    words = {word.lower() for word in _WORD.findall(text)}
    if text.rstrip(CLOSERS).endswith(_ENDS):
        if len(words) + (_FIGURE.search(text) is not None) < _LEAST_WORDS:
            return False
    elif len(words) < _LEAST_WORDS_OF_A_LINE:
        return False
    letters, blanks = sum(map(str.isalpha, text)), sum(map(str.isspace, text))
    return letters >= _LEAST_LETTERS * (len(text) - blanks) and not text.endswith(":")
