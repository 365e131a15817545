"""What engines compute from an encoder's output on the lane: vectors of texts, their logits, labels of their tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.models.encoder import Encoder, TokenBatch, Vectors, normalized
from backend.models.readout import PooledVectors, SequenceLogits, TokenProbabilities
from backend.models.sequence_head import SequenceHead
from backend.models.spec import Pooling
from backend.models.token_head import Tag, TagPrefix, TokenHead

EMBEDDINGS = "embeddings"  # the engines' names, and labels of their metrics
CLASSIFIER = "classifier"
RERANKER = "reranker"
NER = "ner"


@dataclass(frozen=True, slots=True)
class PoolingHead:
    """One vector a text: (width) float32, neither cut nor normalised."""

    pooling: Pooling

    @property
    def readout(self) -> PooledVectors:
        return PooledVectors(self.pooling)

    def compute(self, encoder: Encoder, batch: TokenBatch, output: Any) -> Sequence[Vectors]:
        """One row a text, views of one (batch, width) array."""
        return list(encoder.pooled(output, batch, self.pooling))


def finished(pooled: Sequence[Vectors] | Vectors, *, dimensions: int | None, normalize: bool) -> Vectors:
    """Cut to the first ``dimensions`` (Matryoshka order), then normalise: (batch, dimensions or width) float32."""
    vectors = np.array(pooled)
    if dimensions is not None and dimensions < vectors.shape[1]:
        vectors = np.ascontiguousarray(vectors[:, :dimensions])
    return normalized(vectors) if normalize else vectors


@dataclass(frozen=True, slots=True)
class LogitsHead:
    """One row of logits a text: (labels) float32. The caller chooses the activation that makes scores of them."""

    head: SequenceHead
    readout: SequenceLogits = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "readout", SequenceLogits(self.head))

    def compute(self, encoder: Encoder, batch: TokenBatch, output: Any) -> list[Vectors]:
        """One row a text, views of one (batch, labels) array."""
        return list(self.head.logits(encoder.pooled(output, batch, self.head.pooling)))


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
