"""The engine of every task that reads what an encoder says of its texts; the tasks differ in how they read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from backend.engines.engine import Room, Unlimited
from backend.engines.float32_fallback import NoRescue, Rescue
from backend.errors import FinanciaError
from backend.models.encoder import Encoder, Ids, TokenBatch, Vectors, text_of
from backend.models.residency import EncoderSource

Prepared = tuple[Encoder, TokenBatch]


class Reader(Protocol):
    """A task's last step, on the lane."""

    def read(self, encoder: Encoder, batch: TokenBatch, output: Any) -> Sequence[Vectors]:
        """Wait for the device and make one array a text of what the encoder gave; their shapes are the task's."""


@dataclass(frozen=True, slots=True)
class EncoderEngine:
    """One encoder and one reader. Payload: token ids (tokens) int64, or ids over token types (2, tokens).

    A text whose result is not finite is computed anew by ``rescue``; NaN never leaves, whatever the reader.
    """

    name: str  # the task's, also in metrics
    source: EncoderSource
    reader: Reader
    budget: int  # padded tokens of a batch; measured
    room: Room = field(default_factory=Unlimited)
    rescue: Rescue = field(default_factory=NoRescue)

    @property
    def padding_cost(self) -> float:
        """The encoder's."""
        return self.source.padding_cost

    def on(self, device_index: int) -> EncoderEngine:  # noqa: ARG002 - it stands on one device only
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
        """What the reader makes of it: one result a text."""
        batch = output[1]
        return [
            row if np.isfinite(row).all() else self.rescue.again(text_of(batch, place), self._read_one)
            for place, row in enumerate(self.reader.read(*output))
        ]

    def _read_one(self, encoder: Encoder, text: Ids) -> Vectors:
        batch = encoder.prepare([text])
        return self.reader.read(encoder, batch, encoder.forward(batch))[0]
