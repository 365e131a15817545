"""The embedding task: pooling on the lane, then cutting and normalising the vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from backend.models.encoder import Encoder, TokenBatch, Vectors
from backend.models.readout import PooledVectors
from backend.models.spec import Pooling
from backend.models.vectors import normalized

TASK = "embeddings"  # the engine's name, and a label of its metrics


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
