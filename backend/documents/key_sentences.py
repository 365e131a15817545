"""The sentences that sum a text up, chosen by their vectors. Nothing is written anew."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backend.documents.diverse_selection import diverse, spread, units
from backend.documents.sentences import CLOSERS, FOREIGN_STOPS, STOPS

# Characters of a sentence that can stand alone: shorter ones are headings and fields, longer ones lists.
MIN_CHARACTERS = 30
MAX_CHARACTERS = 600
_LEAST_WORDS = 5  # different ones, in a sentence that ends with a stop
_LEAST_WORDS_OF_A_LINE = 8  # in one without: most are headings, addresses and rows
_ENDS = tuple(STOPS + FOREIGN_STOPS)
_LEAST_LETTERS = 0.6  # of the characters that are not blank: rows of figures have fewer
_WORD = re.compile(r"[^\W\d_]{2,}")
_SAME = 0.98  # cosine of two sentences that say the same
_OF_PLACE = 0.25  # what the first sentence gains on the last; the second has 0.7 of it, the tenth 0.3
_OF_COMPANY = 0.35  # likeness to the other sentences, against likeness to the whole


@dataclass(frozen=True, slots=True)
class KeySentence:
    index: int  # which of the sentences given
    score: float  # 0 to 1; comparable within one text only


def choose(
    texts: Sequence[str],
    vectors: NDArray[np.float32],
    whole: NDArray[np.float32],
    *,
    count: int,
    diversity: float = 0.3,
) -> list[KeySentence]:
    """The ``count`` sentences that say most of the whole, each unlike the others, in the text's order.

    Shapes: vectors (sentences, width), whole (width), of any length; a sentence without a vector has zeros.

    Args:
        texts: the sentences, in order; too short, too long and letterless ones are passed over. When all are, the
            limits of length are let go, so that a text of fields has a summary too.
        diversity: 0 chooses by worth alone, 1 by difference alone.

    Source: likeness to the centroid and place after MEAD (Radev et al. 2004), likeness to the other sentences after
    LexRank's degree (Erkan and Radev 2004), choice by maximal marginal relevance (Carbonell and Goldstein 1998).
    """
    eligible = [index for index, text in enumerate(texts) if _stands_alone(text)]
    eligible = eligible or [index for index, text in enumerate(texts) if len(_WORD.findall(text)) > 1]
    if not eligible or count < 1:
        return []
    parts = units(vectors[eligible])
    company = parts @ parts.mean(axis=0)
    places = 1 / np.sqrt(1 + np.arange(len(eligible)))
    nearness = (1 - _OF_COMPANY) * spread(parts @ units(whole[None])[0]) + _OF_COMPANY * spread(company)
    worth = (1 - _OF_PLACE) * nearness + _OF_PLACE * places
    chosen = diverse(
        parts,
        worth,
        count,
        diversity=diversity,
        same=lambda best: parts @ parts[best] > _SAME,  # repeated on each page
    )
    return [KeySentence(eligible[place], float(worth[place])) for place in sorted(chosen)]


def _stands_alone(text: str) -> bool:
    """Whether a sentence makes sense by itself: neither a heading or a row of figures, nor half a page."""
    if not MIN_CHARACTERS <= len(text) <= MAX_CHARACTERS:
        return False
    words = {word.lower() for word in _WORD.findall(text)}
    if len(words) < (_LEAST_WORDS if text.rstrip(CLOSERS).endswith(_ENDS) else _LEAST_WORDS_OF_A_LINE):
        return False
    letters, blanks = sum(map(str.isalpha, text)), sum(map(str.isspace, text))
    return letters >= _LEAST_LETTERS * (len(text) - blanks) and not text.endswith(":")
