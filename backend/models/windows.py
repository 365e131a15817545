"""A text longer than its model as overlapping windows, each token answered for by one of them. Nothing is cut."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from backend.models.encoder import payload_of
from backend.models.words import Places


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of a text that fits the model.

    Shapes: ids (tokens) int64, special tokens included; places (tokens, 2) first and past-last code point in the text,
    (-1, -1) for special tokens; words (tokens) number of the text's word that the token is a piece of, -1 for none.
    """

    ids: NDArray[np.int64]
    places: Places
    words: NDArray[np.int64]
    own_start: int  # the tokens that this window answers for: here each stands furthest from a cut
    own_stop: int
    types: NDArray[np.int64] | None = None  # the token types (tokens), where the model has any

    @property
    def payload(self) -> NDArray[np.int64]:
        """What a lane takes: (tokens), or (2, tokens) with the types under the ids."""
        return payload_of(self.ids, self.types)


@dataclass(frozen=True, slots=True)
class Windows:
    """A whole text. The windows' own tokens, one window after the other, are its tokens, each once, in order."""

    windows: tuple[Window, ...]  # none for a text without tokens
    words: Places  # first and past-last code point of each word
    coverage: float  # share of its characters, blanks aside, that the vocabulary has; 1 for a blank text

    @property
    def tokens(self) -> int:
        """Tokens the model reads, special tokens and overlaps included."""
        return sum(len(window.ids) for window in self.windows)


def cut(tokens: int, size: int, overlap: int) -> list[tuple[int, int, int, int]]:
    """Start, stop, own start and own stop of the fewest equal windows of at most ``size`` that share ``overlap``.

    They are spread evenly, so neighbours share as much as their number allows. The own ranges lie end to end: in the
    middle of what two neighbours share one stops answering and the other begins.
    """
    if tokens <= size:
        return [(0, tokens, 0, tokens)] if tokens else []
    steps = -(-(tokens - size) // max(1, size - overlap))
    starts = [step * (tokens - size) // steps for step in range(steps + 1)]
    edges = [0, *((before + size + start) // 2 for before, start in pairwise(starts)), tokens]
    return [(start, start + size, *own) for start, own in zip(starts, pairwise(edges), strict=True)]


def coverage(pieces: Places, words: Places, characters: int) -> float:
    """Share of the words' characters that stand under one of the pieces; 1 for a text without words."""
    if not len(words):
        return 1.0
    in_words, under = (_covered(places, characters) for places in (words, pieces))
    return float(under[in_words].mean())


def _covered(places: Places, characters: int) -> NDArray[np.bool_]:
    changes = np.zeros(characters + 1, np.int64)
    np.add.at(changes, places[:, 0], 1)
    np.add.at(changes, places[:, 1], -1)
    covered: NDArray[np.bool_] = np.cumsum(changes[:-1]) > 0
    return covered
