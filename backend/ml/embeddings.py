"""Token ids to pooled vectors: the embedding task as the lanes see it, and what makes a vector final."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from backend.errors import FinanciaError
from backend.ml.engine import Room, Unlimited
from backend.ml.rescue import NoRescue, Rescue
from backend.models.encoder import Encoder, Ids, TokenBatch, Vectors
from backend.models.fidelity import normalized
from backend.models.residence import EncoderSource
from backend.models.spec import Pooling

TASK = "embeddings"  # the engine's name, and a label of its metrics
Prepared = tuple[Encoder, TokenBatch]


@dataclass(frozen=True, slots=True)
class EmbeddingEngine:
    """One encoder and how its token vectors become one.

    Payload: token ids (tokens) int64. Result: vector (width) float32, finite, neither cut nor normalised.
    """

    source: EncoderSource
    pooling: Pooling
    budget: int  # padded tokens of a batch; measured
    room: Room = field(default_factory=Unlimited)
    rescue: Rescue = field(default_factory=NoRescue)
    name: str = TASK

    @property
    def padding_cost(self) -> float:
        """The encoder's."""
        return self.source.padding_cost

    def on(self, device_index: int) -> EmbeddingEngine:  # noqa: ARG002 - it stands on one device only
        """Itself."""
        return self

    def prepare(self, payloads: Sequence[Ids]) -> Prepared:
        """Pack the ids for the encoder of this batch; the model is loaded here if it was idle."""
        encoder = self.source.get()
        return encoder, encoder.prepare(payloads)

    def forward(self, prepared: Prepared) -> tuple[Encoder, TokenBatch, Any]:
        """Run the encoder."""
        encoder, batch = prepared
        return encoder, batch, encoder.forward(batch)

    def finish(self, output: tuple[Encoder, TokenBatch, Any]) -> Sequence[Vectors | FinanciaError]:
        """One row a text: (width) each, of one (batch, width) array; those that are not finite computed anew."""
        encoder, batch, hidden = output
        vectors = encoder.pooled(hidden, batch, self.pooling)
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
