"""The analysis task: token vectors on the lane, summed over spans of a text and over the text in the same pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from backend.models.encoder import Encoder, TokenBatch, Vectors
from backend.models.spec import ModelSpec, Pooling
from backend.models.vectors import normalized
from backend.models.windows import Window
from backend.models.words import Offsets

TASK = "analysis"  # the engine's name, and a label of its metrics


class TokenVectorsHead:
    """The encoder's token vectors: (tokens, width) float32 a text."""

    def compute(self, encoder: Encoder, batch: TokenBatch, output: Any) -> Sequence[Vectors]:
        return np.split(encoder.hidden(output, batch), batch.starts[1:])


class SpanSums:
    """Sums of token vectors over spans of a text and over the whole text, window by window; no token vector is kept."""

    def __init__(self, spans: Offsets, spec: ModelSpec) -> None:
        """Shapes: spans (spans, 2), first and past-last code point; in any order; they may overlap."""
        self._spans, self._spec = spans, spec
        self._sums = np.zeros((len(spans), spec.width))
        self._text = np.zeros(spec.width)
        self._weight = 0

    def add(self, window: Window, vectors: Vectors) -> None:
        """Add a window's token vectors (tokens, width). Each token counts in the one window that owns it."""
        owned = slice(window.own_start, window.own_stop)
        starts = window.places[owned, 0]
        first, last = (np.searchsorted(starts, self._spans[:, side]) for side in (0, 1))
        inside = np.flatnonzero(last > first)
        running = np.concatenate([np.zeros((1, self._spec.width)), np.cumsum(vectors[owned], axis=0, dtype=np.float64)])
        self._sums[inside] += running[last[inside]] - running[first[inside]]
        self._text += (window.own_stop - window.own_start) * _pooled(vectors, self._spec.pooling)
        self._weight += window.own_stop - window.own_start

    def text_vector(self) -> Vectors:
        """(width): the text's vector, equal to EmbeddingService.embed_untruncated's."""
        vector = (self._text / max(1, self._weight)).astype(np.float32)
        return normalized(vector[None])[0] if self._spec.normalize else vector

    def span_vectors(self) -> Vectors:
        """(spans, width), each of length one; zeros for a span without a token."""
        return normalized(self._sums.astype(np.float32))


def _pooled(vectors: Vectors, pooling: Pooling) -> Vectors:
    """Pool one text's token vectors: (tokens, width) -> (width)."""
    if pooling is Pooling.MEAN:
        mean: Vectors = vectors.mean(axis=0)
        return mean
    if pooling is Pooling.MAX:
        largest: Vectors = vectors.max(axis=0)
        return largest
    vector: Vectors = vectors[0 if pooling is Pooling.CLS else -1]
    return vector
