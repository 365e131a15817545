"""The engine of every task that runs an encoder; the tasks differ in the head that computes results from its output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from backend.engines.engine import BatchLimits, UnlimitedBatches
from backend.engines.float32_fallback import Fallback, NoFallback
from backend.errors import FinanciaError
from backend.models.encoder import Encoder, Ids, TokenBatch, Vectors, text_of
from backend.models.encoder_source import EncoderSource

Prepared = tuple[Encoder, TokenBatch]


class TaskHead(Protocol):
    """A task's last step, on the lane's thread."""

    def compute(self, encoder: Encoder, batch: TokenBatch, output: Any) -> Sequence[Vectors]:
        """Wait for the device and compute one array a text from the encoder's output; their shapes are the task's."""


@dataclass(frozen=True, slots=True)
class EncoderEngine:
    """One encoder and one task head. Payload: token ids (tokens) int64, or ids over token types (2, tokens).

    A text whose result is not finite is computed again by ``fallback``, so NaN never leaves, whatever the task.
    """

    name: str  # the task's, also in metrics
    source: EncoderSource
    head: TaskHead
    budget: int  # padded tokens of a batch; measured
    batch_limits: BatchLimits = field(default_factory=UnlimitedBatches)
    fallback: Fallback = field(default_factory=NoFallback)

    @property
    def padding_cost(self) -> float:
        return self.source.padding_cost

    def on(self, device_index: int) -> EncoderEngine:  # noqa: ARG002 - this engine has one device only
        return self

    def prepare(self, payloads: Sequence[Ids]) -> Prepared:
        """Pack the ids for the encoder; the model is loaded here if it was unloaded."""
        encoder = self.source.get()
        return encoder, encoder.prepare(payloads)

    def forward(self, prepared: Prepared) -> tuple[Encoder, TokenBatch, Any]:
        encoder, batch = prepared
        return encoder, batch, encoder.forward(batch)

    def finish(self, output: tuple[Encoder, TokenBatch, Any]) -> Sequence[Vectors | FinanciaError]:
        """Run the head: one result a text."""
        batch = output[1]
        return [
            result if np.isfinite(result).all() else self.fallback.recompute(text_of(batch, row), self._compute_one)
            for row, result in enumerate(self.head.compute(*output))
        ]

    def _compute_one(self, encoder: Encoder, text: Ids) -> Vectors:
        batch = encoder.prepare([text])
        return self.head.compute(encoder, batch, encoder.forward(batch))[0]
