"""Token ids to logits, as the lanes see them: of texts by a classifier, of pairs by a cross-encoder or an NLI model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from backend.models.encoder import Encoder, TokenBatch, Vectors
from backend.models.sequence_head import SequenceHead

CLASSIFIER = "classifier"  # the engines' names, and labels of their metrics
RERANKER = "reranker"


@dataclass(frozen=True, slots=True)
class Scored:
    """Token vectors to one row of logits a text: (labels) float32. What makes scores of them is the caller's choice."""

    head: SequenceHead

    def read(self, encoder: Encoder, batch: TokenBatch, output: Any) -> list[Vectors]:
        """One row a text, of one (batch, labels) array."""
        return list(self.head.logits(encoder.pooled(output, batch, self.head.pooling)))
