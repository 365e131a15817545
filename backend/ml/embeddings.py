"""Token ids to pooled vectors: the embedding task as the lanes see it, and what makes a vector final."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from backend.errors import FinanciaError
from backend.ml.encoding import Rows
from backend.ml.rescue import NoRescue, Rescue
from backend.models.encoder import Encoder, Ids, TokenBatch, Vectors
from backend.models.fidelity import normalized
from backend.models.spec import Pooling

TASK = "embeddings"  # the engine's name, and a label of its metrics


@dataclass(frozen=True, slots=True)
class Pooled:
    """Token vectors to one vector a text: (width) float32, finite, neither cut nor normalised."""

    pooling: Pooling
    rescue: Rescue = field(default_factory=NoRescue)

    def read(self, encoder: Encoder, batch: TokenBatch, output: Any) -> Rows:
        """One row a text, of one (batch, width) array; those that are not finite computed anew."""
        vectors = encoder.pooled(output, batch, self.pooling)
        rows: list[Vectors | FinanciaError] = list(vectors)
        if not np.isfinite(vectors).all():
            for row in np.flatnonzero(~np.isfinite(vectors).all(axis=1)):
                rows[row] = self.rescue.vector(_ids(batch, int(row)), self.pooling)
        return rows


def finished(pooled: Sequence[Vectors], *, dimensions: int | None, normalize: bool) -> Vectors:
    """Cut to the first ``dimensions`` (Matryoshka order), then normalise: (batch, dimensions or width) float32."""
    vectors = np.array(pooled)
    if dimensions is not None and dimensions < vectors.shape[1]:
        vectors = np.ascontiguousarray(vectors[:, :dimensions])
    return normalized(vectors) if normalize else vectors


def _ids(batch: TokenBatch, row: int) -> Ids:
    start = batch.starts[row]
    return batch.ids[start : start + batch.lengths[row]]
