"""Token ids to pooled vectors: the embedding task as the lanes see it, and what makes a vector final."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from backend.models.encoder import Encoder, Ids, TokenBatch, Vectors
from backend.models.fidelity import normalized
from backend.models.spec import Pooling


@dataclass(frozen=True, slots=True)
class EmbeddingEngine:
    """One encoder and how its token vectors become one.

    Payload: token ids (tokens) int64. Result: vector (width) float32, neither cut nor normalised.
    """

    encoder: Encoder
    pooling: Pooling
    budget: int  # padded tokens of a batch; measured
    name: str = "embeddings"

    @property
    def padding_cost(self) -> float:
        """The encoder's."""
        return self.encoder.padding_cost

    def prepare(self, payloads: Sequence[Ids]) -> TokenBatch:
        """Pack the ids."""
        return self.encoder.prepare(payloads)

    def forward(self, prepared: TokenBatch) -> tuple[TokenBatch, Any]:
        """Run the encoder."""
        return prepared, self.encoder.forward(prepared)

    def finish(self, output: tuple[TokenBatch, Any]) -> Sequence[Vectors]:
        """One row a text: (width) each, of one (batch, width) array."""
        batch, hidden = output
        return list(self.encoder.pooled(hidden, batch, self.pooling))


def finished(pooled: Sequence[Vectors], *, dimensions: int | None, normalize: bool) -> Vectors:
    """Cut to the first ``dimensions`` (Matryoshka order), then normalise: (batch, dimensions or width) float32."""
    vectors = np.array(pooled)
    if dimensions is not None and dimensions < vectors.shape[1]:
        vectors = np.ascontiguousarray(vectors[:, :dimensions])
    return normalized(vectors) if normalize else vectors
