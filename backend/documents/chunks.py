"""Cutting a text into stretches that fit a model, at the ends of its sentences. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from backend.models.words import Offsets


def chunk_places(token_starts: NDArray[np.int64], sentences: Offsets, most_tokens: int) -> list[tuple[int, int]]:
    """The first and past-last code point of each chunk, in order.

    Sentences that follow each other are joined while they fit; one that alone is too long is cut between tokens. No
    token is in two chunks, and none that is in a sentence is in no chunk.

    Args:
        token_starts: (tokens) where each token of the text begins, rising; special tokens are not counted.
        sentences: (sentences, 2) first and past-last code point, in order.
        most_tokens: of a chunk.
    """
    chunks: list[tuple[int, int]] = []
    open_start = open_end = open_tokens = 0
    for start, end in sentences.tolist():
        first, last = np.searchsorted(token_starts, [start, end])
        if open_tokens and open_tokens + last - first > most_tokens:
            chunks.append((open_start, open_end))
            open_tokens = 0
        if last - first > most_tokens:
            chunks += _cut(token_starts[first:last].tolist(), start, end, most_tokens)
            continue
        open_start, open_end = (open_start if open_tokens else start), end
        open_tokens += int(last - first)
    return [*chunks, (open_start, open_end)] if open_tokens else chunks


def _cut(token_starts: Sequence[int], start: int, end: int, most_tokens: int) -> list[tuple[int, int]]:
    edges = [start, *token_starts[most_tokens::most_tokens], end]
    return list(pairwise(edges))
