"""The entity task: label probabilities of tokens on the lane, and decoding the labels of words into entities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.models.encoder import Encoder, TokenBatch, Vectors
from backend.models.readout import TokenProbabilities
from backend.models.token_head import Tag, TagPrefix, TokenHead

TASK = "ner"  # the engine's name, and a label of its metrics


@dataclass(frozen=True, slots=True)
class TokenLabelsHead:
    """Label probabilities of each token: (tokens, labels) float32 a text, the sum of each row is 1."""

    head: TokenHead
    readout: TokenProbabilities = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "readout", TokenProbabilities(self.head))

    def compute(self, encoder: Encoder, batch: TokenBatch, output: Any) -> Sequence[Vectors]:
        return np.split(self.head.probabilities(encoder.hidden(output, batch)), batch.starts[1:])


@dataclass(frozen=True, slots=True)
class Span:
    """An entity: a run of words."""

    type: str
    first: int  # numbers of its words, both included
    last: int
    score: float  # mean probability of its words' labels


def decode(probabilities: Vectors, tags: Sequence[Tag]) -> list[Span]:
    """The entities of a text, in order; they never overlap.

    A word takes its most probable label. An entity continues over I- and E- of its own type and ends before anything
    else; an I- or E- that continues no entity begins one, as in conlleval and seqeval.

    Args:
        probabilities: (words, labels), a row a word.
    """
    chosen: NDArray[np.int64] = probabilities.argmax(axis=1)
    is_entity = np.array([tag.prefix is not TagPrefix.OUTSIDE for tag in tags])
    continues = np.array([tag.prefix in (TagPrefix.INSIDE, TagPrefix.END) for tag in tags])
    is_last = np.array([tag.prefix in (TagPrefix.END, TagPrefix.SINGLE) for tag in tags])
    types = np.unique([tag.type for tag in tags], return_inverse=True)[1]
    words = np.flatnonzero(is_entity[chosen])
    if not len(words):
        return []
    label = chosen[words]
    adjacent = (types[label][1:] == types[label][:-1]) & (np.diff(words) == 1)
    joined = adjacent & continues[label][1:] & ~is_last[label][:-1]
    starts = np.flatnonzero(np.concatenate([[True], ~joined]))
    counts = np.diff(np.append(starts, len(words)))
    scores = np.add.reduceat(probabilities.max(axis=1)[words], starts, dtype=np.float64) / counts
    rows = zip(label[starts].tolist(), words[starts].tolist(), counts.tolist(), scores.tolist(), strict=True)
    return [Span(tags[first].type, word, word + count - 1, score) for first, word, count, score in rows]
