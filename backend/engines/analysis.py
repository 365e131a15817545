"""Token ids to token vectors: what a text is analysed with, in the one pass that its vector takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from backend.models.encoder import Encoder, TokenBatch, Vectors
from backend.models.fidelity import normalized
from backend.models.spec import ModelSpec, Pooling
from backend.models.windows import Window
from backend.models.words import Places

TASK = "analysis"  # the engine's name, and a label of its metrics


class TokenVectors:
    """The encoder's own vectors: (tokens, width) float32 a text."""

    def read(self, encoder: Encoder, batch: TokenBatch, output: Any) -> Sequence[Vectors]:
        """One array a text."""
        return np.split(encoder.hidden(output, batch), batch.starts[1:])


class SpanSums:
    """Token vectors added up over stretches of a text and over all of it, window by window; none of them is kept."""

    def __init__(self, spans: Places, spec: ModelSpec) -> None:
        """Shapes: spans (spans, 2), first and past-last code point; in any order, one within another too."""
        self._spans, self._spec = spans, spec
        self._sums = np.zeros((len(spans), spec.width))
        self._whole = np.zeros(spec.width)
        self._weight = 0

    def add(self, window: Window, vectors: Vectors) -> None:
        """Add a window's (tokens, width). Each token counts in the one window that answers for it."""
        own = slice(window.own_start, window.own_stop)
        starts = window.places[own, 0]
        first, last = (np.searchsorted(starts, self._spans[:, side]) for side in (0, 1))
        inside = np.flatnonzero(last > first)
        running = np.concatenate([np.zeros((1, self._spec.width)), np.cumsum(vectors[own], axis=0, dtype=np.float64)])
        self._sums[inside] += running[last[inside]] - running[first[inside]]
        self._whole += (window.own_stop - window.own_start) * _pooled(vectors, self._spec.pooling)
        self._weight += window.own_stop - window.own_start

    def whole(self) -> Vectors:
        """(width): the text's vector as EmbeddingService.embed_whole gives it."""
        vector = (self._whole / max(1, self._weight)).astype(np.float32)
        return normalized(vector[None])[0] if self._spec.normalize else vector

    def of_spans(self) -> Vectors:
        """(spans, width), each of length one; zeros for a span without a token."""
        return normalized(self._sums.astype(np.float32))


def _pooled(vectors: Vectors, pooling: Pooling) -> Vectors:
    """One text's vector of its token vectors: (tokens, width) -> (width)."""
    if pooling is Pooling.MEAN:
        mean: Vectors = vectors.mean(axis=0)
        return mean
    if pooling is Pooling.MAX:
        largest: Vectors = vectors.max(axis=0)
        return largest
    one: Vectors = vectors[0 if pooling is Pooling.CLS else -1]
    return one
