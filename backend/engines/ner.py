"""Token ids to label probabilities: the entity task as the lanes see it, and how labels of words become entities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.models.encoder import Encoder, TokenBatch, Vectors
from backend.models.token_head import Mark, Tag, TokenHead

TASK = "ner"  # the engine's name, and a label of its metrics


@dataclass(frozen=True, slots=True)
class Labelled:
    """Token vectors to probabilities: (tokens, labels) float32 a text, each row's sum 1."""

    head: TokenHead

    def read(self, encoder: Encoder, batch: TokenBatch, output: Any) -> Sequence[Vectors]:
        """One array a text."""
        return np.split(self.head.probabilities(encoder.hidden(output, batch)), batch.starts[1:])


@dataclass(frozen=True, slots=True)
class Span:
    """An entity as a stretch of words."""

    type: str
    first: int  # numbers of its words, both included
    last: int
    score: float  # mean probability of its words' labels


def decode(probabilities: Vectors, tags: Sequence[Tag]) -> list[Span]:
    """The entities of a text, in order; they never overlap.

    A word takes its most probable label. An entity goes on over I- and E- of its own type and ends before anything
    else; an I- or E- that continues nothing begins an entity, as conlleval and seqeval read it.

    Args:
        probabilities: (words, labels), a row a word.
    """
    chosen: NDArray[np.int64] = probabilities.argmax(axis=1)
    named = np.array([tag.mark is not Mark.OUTSIDE for tag in tags])
    goes_on = np.array([tag.mark in (Mark.INSIDE, Mark.END) for tag in tags])
    is_last = np.array([tag.mark in (Mark.END, Mark.SINGLE) for tag in tags])
    kinds = np.unique([tag.type for tag in tags], return_inverse=True)[1]
    words = np.flatnonzero(named[chosen])
    if not len(words):
        return []
    label = chosen[words]
    same = (kinds[label][1:] == kinds[label][:-1]) & (np.diff(words) == 1)
    joined = same & goes_on[label][1:] & ~is_last[label][:-1]
    starts = np.flatnonzero(np.concatenate([[True], ~joined]))
    counts = np.diff(np.append(starts, len(words)))
    scores = np.add.reduceat(probabilities.max(axis=1)[words], starts, dtype=np.float64) / counts
    rows = zip(label[starts].tolist(), words[starts].tolist(), counts.tolist(), scores.tolist(), strict=True)
    return [Span(tags[first].type, word, word + count - 1, score) for first, word, count, score in rows]
