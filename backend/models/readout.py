"""What a task reads from an encoder's output, described for runtimes that compute it on a device. Loads no torch.

A runtime whose output lives on a device computes the task's head there, so that only results come home: of a batch of
16,384 tokens of width 768 the token vectors are 50 MB in float32, their probabilities of nine labels 0.6 MB.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray

from backend.models.encoder import Encoder, TokenBatch, Vectors
from backend.models.sequence_head import SequenceHead
from backend.models.spec import Pooling
from backend.models.token_head import TokenHead


@dataclass(frozen=True, slots=True)
class PooledVectors:
    """One vector a text: (width), not normalised."""

    pooling: Pooling


@dataclass(frozen=True, slots=True)
class TokenVectors:
    """The vectors of a text's tokens: (tokens, width)."""


@dataclass(frozen=True, slots=True)
class SummedSpans:
    """A text's vector, not normalised, and the sums of its token vectors over the batch's spans: (1 + spans, width)."""

    pooling: Pooling


@dataclass(frozen=True, slots=True, eq=False)
class SequenceLogits:
    """One row of logits a text: (labels). Equal to itself only, so that it can name what a device keeps of its head."""

    head: SequenceHead


@dataclass(frozen=True, slots=True, eq=False)
class TokenProbabilities:
    """Label probabilities of a text's tokens: (tokens, labels). Equal to itself only."""

    head: TokenHead


Readout: TypeAlias = PooledVectors | TokenVectors | SummedSpans | SequenceLogits | TokenProbabilities


class QueuedResults(Protocol):
    """Results of a batch that a device may still be computing."""

    def wait(self) -> tuple[Sequence[Vectors], NDArray[np.bool_]]:
        """One array a text, and whether all its numbers are finite. Waits for this batch alone."""


class DeviceEncoder(Encoder, Protocol):
    """An encoder that also computes readouts where its output lives."""

    def queue(self, batch: TokenBatch, readout: Readout) -> QueuedResults:
        """Queue the layers, the readout, the check for numbers that are not finite, and the copy home. Never waits."""


def reads_on_device(encoder: Encoder) -> TypeGuard[DeviceEncoder]:
    """Whether the encoder computes readouts itself."""
    return hasattr(encoder, "queue")
