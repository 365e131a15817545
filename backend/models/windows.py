"""Splits a text longer than its model into overlapping windows; each token is owned by one. Nothing is truncated."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from backend.models.encoder import payload_of
from backend.models.words import Offsets


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a text that fits the model.

    Shapes: ids (tokens) int64, special tokens included; offsets (tokens, 2) first and past-last code point in the text,
    (-1, -1) for special tokens; words (tokens) index of the word that the token belongs to, -1 for none.
    """

    ids: NDArray[np.int64]
    offsets: Offsets
    words: NDArray[np.int64]
    own_start: int  # the tokens this window owns: those furthest from a cut
    own_stop: int
    types: NDArray[np.int64] | None = None  # the token types (tokens), where the model has any

    @property
    def payload(self) -> NDArray[np.int64]:
        """An engine's payload: (tokens), or (2, tokens) with the types under the ids."""
        return payload_of(self.ids, self.types)


@dataclass(frozen=True, slots=True)
class Windows:
    """A whole text. The tokens owned by the windows, one after the other, are the text's, each once, in order."""

    windows: tuple[Window, ...]  # none for a text without tokens
    words: Offsets  # first and past-last code point of each word
    coverage: float  # share of its non-blank characters that the vocabulary has; 1 for a blank text

    @property
    def tokens(self) -> int:
        """Tokens the model reads, special tokens and overlaps included."""
        return sum(len(window.ids) for window in self.windows)


def cut(tokens: int, size: int, overlap: int) -> list[tuple[int, int, int, int]]:
    """Start, stop, own start and own stop of the fewest equal windows of at most ``size`` that share ``overlap``.

    They are spread evenly, so neighbours share as much as their number allows. The owned ranges lie end to end and meet
    in the middle of what two neighbours share.
    """
    if tokens <= size:
        return [(0, tokens, 0, tokens)] if tokens else []
    steps = -(-(tokens - size) // max(1, size - overlap))
    starts = [step * (tokens - size) // steps for step in range(steps + 1)]
    edges = [0, *((before + size + start) // 2 for before, start in pairwise(starts)), tokens]
    return [(start, start + size, *owned) for start, owned in zip(starts, pairwise(edges), strict=True)]


def coverage(pieces: Offsets, words: Offsets, characters: int) -> float:
    """Share of the words' characters that one of the tokens covers; 1 for a text without words."""
    if not len(words):
        return 1.0
    in_words, in_tokens = (_covered(offsets, characters) for offsets in (words, pieces))
    return float(in_tokens[in_words].mean())


def _covered(offsets: Offsets, characters: int) -> NDArray[np.bool_]:
    changes = np.zeros(characters + 1, np.int64)
    np.add.at(changes, offsets[:, 0], 1)
    np.add.at(changes, offsets[:, 1], -1)
    covered: NDArray[np.bool_] = np.cumsum(changes[:-1]) > 0
    return covered
