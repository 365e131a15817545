"""Key sentences of a text: an extractive summary, selected by the sentences' vectors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backend.documents.diverse_selection import min_max_scaled, select_diverse, unit_vectors
from backend.documents.sentences import CLOSERS, FOREIGN_STOPS, STOPS

# Length of a sentence that can stand alone: shorter ones are headings and fields, longer ones lists.
_MIN_CHARACTERS = 30
_MAX_CHARACTERS = 600
_LEAST_WORDS = 5  # distinct ones, in a sentence that ends with a full stop
_LEAST_WORDS_OF_A_LINE = 8  # in one without; most of those are headings, addresses and rows
_ENDS = tuple(STOPS + FOREIGN_STOPS)
_LEAST_LETTERS = 0.6  # of the non-blank characters; rows of figures have fewer
_WORD = re.compile(r"[^\W\d_]{2,}")
_WORD_OR_NUMBER = re.compile(r"\w+")
# Share of common words and numbers of two sentences that say the same. Not the cosine of their vectors: with
# multilingual-e5-small different sentences of one text have 0.99, as much as a repeated one.
_DUPLICATE_OVERLAP = 0.9
_POSITION_SHARE = 0.25  # advantage of the first sentence over the last; the second has 0.7 of it, the tenth 0.3
_CENTRALITY_SHARE = 0.35  # of similarity to the other sentences, against similarity to the text


@dataclass(frozen=True, slots=True)
class KeySentence:
    index: int  # in the input sentences
    score: float  # 0 to 1; comparable within one text only


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
    words = [frozenset(_WORD_OR_NUMBER.findall(texts[index].lower())) for index in eligible]
    centrality = normalized @ normalized.mean(axis=0)
    position = 1 / np.sqrt(1 + np.arange(len(eligible)))
    to_text = min_max_scaled(normalized @ unit_vectors(text_vector[None])[0])
    similarity = (1 - _CENTRALITY_SHARE) * to_text + _CENTRALITY_SHARE * min_max_scaled(centrality)
    relevance = (1 - _POSITION_SHARE) * similarity + _POSITION_SHARE * position
    selected = select_diverse(
        normalized,
        relevance,
        count,
        diversity=diversity,
        redundant_with=lambda index: _repeats(words, words[index]),
    )
    return [KeySentence(eligible[index], float(relevance[index])) for index in sorted(selected)]


def _repeats(sentences: Sequence[frozenset[str]], other: frozenset[str]) -> NDArray[np.bool_]:
    """Which sentences have the words of another, as those that are repeated on each page."""
    return np.array([len(words & other) > _DUPLICATE_OVERLAP * len(words | other) for words in sentences], np.bool_)


def _stands_alone(text: str) -> bool:
    """Whether a sentence makes sense by itself: it is no heading, no row of figures, and not half a page long."""
    if not _MIN_CHARACTERS <= len(text) <= _MAX_CHARACTERS:
        return False
    words = {word.lower() for word in _WORD.findall(text)}
    if len(words) < (_LEAST_WORDS if text.rstrip(CLOSERS).endswith(_ENDS) else _LEAST_WORDS_OF_A_LINE):
        return False
    letters, blanks = sum(map(str.isalpha, text)), sum(map(str.isspace, text))
    return letters >= _LEAST_LETTERS * (len(text) - blanks) and not text.endswith(":")
