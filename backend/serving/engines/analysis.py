"""The analysis task: token vectors summed over spans of a text and over the text on the lane, then window by window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.models.encoder import Encoder, Ids, TokenBatch, Vectors, normalized, pooled_and_sums
from backend.models.readout import SummedSpans
from backend.models.spec import ModelSpec, Pooling
from backend.models.tokenizer import Window
from backend.models.words import Offsets

TASK = "analysis"  # the engine's name, and a label of its metrics


@dataclass(frozen=True, slots=True)
class SpanSumsHead:
    """A text's pooled vector and the sums over its spans: (1 + spans, width) float32 a text. Payload: SpannedText."""

    pooling: Pooling

    @property
    def readout(self) -> SummedSpans:
        return SummedSpans(self.pooling)

    def compute(self, encoder: Encoder, batch: TokenBatch, output: Any) -> Sequence[Vectors]:
        return pooled_and_sums(encoder.hidden(output, batch), batch, self.pooling)


@dataclass(frozen=True, slots=True, eq=False)
class SpannedWindow:
    """A window of a text, and those of the text's spans in which tokens begin that it owns."""

    window: Window
    numbers: NDArray[np.int64]  # (spans): which of the text's
    spans: Ids  # (spans, 2): first and past-last token of the window


def spanned(window: Window, spans: Offsets) -> SpannedWindow:
    """The window with its part of a text's spans. Each token counts in the one window that owns it."""
    starts = window.offsets[window.own_start : window.own_stop, 0]
    within = np.searchsorted(starts, spans)
    numbers = np.flatnonzero(within[:, 1] > within[:, 0])
    return SpannedWindow(window, numbers, within[numbers] + window.own_start)


class SpanSums:
    """Sums of token vectors over spans of a text and over the whole text, window by window; no token vector is kept."""

    def __init__(self, spans: int, spec: ModelSpec) -> None:
        """``spans``: their number."""
        self._spec = spec
        self._sums = np.zeros((spans, spec.width))
        self._text = np.zeros(spec.width)
        self._weight = 0

    def add(self, part: SpannedWindow, rows: Vectors) -> None:
        """Add what the engine computed of a window: (1 + its spans, width)."""
        owned = part.window.own_stop - part.window.own_start
        self._sums[part.numbers] += rows[1:]
        self._text += owned * rows[0]
        self._weight += owned

    def text_vector(self) -> Vectors:
        """(width): the text's vector, equal to EmbeddingService.embed_untruncated's."""
        vector = (self._text / max(1, self._weight)).astype(np.float32)
        return normalized(vector[None])[0] if self._spec.normalize else vector

    def span_vectors(self) -> Vectors:
        """(spans, width), each of length one; zeros for a span without a token."""
        return normalized(self._sums.astype(np.float32))
