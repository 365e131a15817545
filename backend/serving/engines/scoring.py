"""Logits on the lane: of texts by a classifier, of pairs of texts by a cross-encoder or an NLI model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from backend.models.encoder import Encoder, TokenBatch, Vectors
from backend.models.readout import SequenceLogits
from backend.models.sequence_head import SequenceHead

CLASSIFIER = "classifier"  # the engines' names, and labels of their metrics
RERANKER = "reranker"


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
