"""What engines compute from an encoder's output on the lane: vectors, logits, labels of tokens, sums over spans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.models.encoder import Encoder, Ids, TokenBatch, Vectors, normalized, pooled_and_sums
from backend.models.readout import PooledVectors, SequenceLogits, SummedSpans, TokenProbabilities
from backend.models.sequence_head import SequenceHead
from backend.models.spec import ModelSpec, Pooling
from backend.models.token_head import Tag, TagPrefix, TokenHead
from backend.models.tokenizer import Window
from backend.models.words import Offsets

EMBEDDINGS = "embeddings"  # the engines' names, and labels of their metrics
CLASSIFIER = "classifier"
RERANKER = "reranker"
NER = "ner"
ANALYSIS = "analysis"


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


@dataclass(frozen=True, slots=True)
class SpanSumsHead:
    """A text's pooled vector and the sums over its spans: (1 + spans, width) float32 a text. Payload: SpannedText."""

    pooling: Pooling

    @property
    def readout(self) -> SummedSpans:
        return SummedSpans(self.pooling)

    def compute(self, encoder: Encoder, batch: TokenBatch, output: Any) -> Sequence[Vectors]:
        return pooled_and_sums(encoder.hidden(output, batch), batch, self.pooling)


@dataclass(frozen=True, slots=True, eq=False)
class SpannedWindow:
    """A window of a text, and those of the text's spans in which tokens begin that it owns."""

    window: Window
    numbers: NDArray[np.int64]  # (spans): which of the text's
    spans: Ids  # (spans, 2): first and past-last token of the window


def spanned(window: Window, spans: Offsets) -> SpannedWindow:
    """The window with its part of a text's spans. Each token counts in the one window that owns it."""
    starts = window.offsets[window.own_start : window.own_stop, 0]
    within = np.searchsorted(starts, spans)
    numbers = np.flatnonzero(within[:, 1] > within[:, 0])
    return SpannedWindow(window, numbers, within[numbers] + window.own_start)


class SpanSums:
    """Sums of token vectors over spans of a text and over the whole text, window by window; no token vector is kept."""

    def __init__(self, spans: int, spec: ModelSpec) -> None:
        """``spans``: their number."""
        self._spec = spec
        self._sums = np.zeros((spans, spec.width))
        self._text = np.zeros(spec.width)
        self._weight = 0

    def add(self, part: SpannedWindow, rows: Vectors) -> None:
        """Add what the engine computed of a window: (1 + its spans, width)."""
        owned = part.window.own_stop - part.window.own_start
        self._sums[part.numbers] += rows[1:]
        self._text += owned * rows[0]
        self._weight += owned

    def text_vector(self) -> Vectors:
        """(width): the text's vector, equal to EmbeddingService.embed_untruncated's."""
        vector = (self._text / max(1, self._weight)).astype(np.float32)
        return normalized(vector[None])[0] if self._spec.normalize else vector

    def span_vectors(self) -> Vectors:
        """(spans, width), each of length one; zeros for a span without a token."""
        return normalized(self._sums.astype(np.float32))
