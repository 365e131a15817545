"""Sums of token vectors over spans of texts: how payloads and batches carry the spans, and the sums in numpy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from backend.models.encoder import Ids, TokenBatch, Vectors, pool, text_of
from backend.models.spec import Pooling


@dataclass(frozen=True, slots=True, eq=False)
class SpannedText:
    """An engine's payload of which the sums of token vectors over spans are wanted."""

    ids: Ids  # (tokens), or (2, tokens) with the token types under the ids
    spans: Ids  # (spans, 2): first and past-last token; none empty; in any order; they may overlap


Payload: TypeAlias = Ids | SpannedText


def ids_of(payload: Payload) -> Ids:
    """The ids as ``pack`` takes them."""
    return payload.ids if isinstance(payload, SpannedText) else payload


def with_spans(batch: TokenBatch, payloads: Sequence[Payload]) -> TokenBatch:
    """The batch with the spans of the payloads it was packed from."""
    spans = [
        np.column_stack([np.full(len(payload.spans), text), payload.spans + start])
        for text, (payload, start) in enumerate(zip(payloads, batch.starts.tolist(), strict=True))
        if isinstance(payload, SpannedText)
    ]
    return replace(batch, spans=np.concatenate(spans)) if spans else batch


def payload_at(batch: TokenBatch, text: int) -> Payload:
    """One text of a batch with its token types and its spans, to be packed again."""
    ids, own = text_of(batch, text), batch.spans[batch.spans[:, 0] == text, 1:]
    return SpannedText(ids, own - batch.starts[text]) if len(own) else ids


def span_rows(spans: Ids) -> tuple[Ids, Ids]:
    """The rows of each span, one span after the other, and where each begins; one past the last at the end.

    Shapes: spans (spans, 3) as in ``TokenBatch`` -> (rows of all spans), (spans + 1).
    """
    lengths = spans[:, 2] - spans[:, 1]
    begins = np.append(0, np.cumsum(lengths))
    return np.arange(begins[-1]) + np.repeat(spans[:, 1] - begins[:-1], lengths), begins


def result_order(batch: TokenBatch) -> tuple[Ids, Ids]:
    """The order that puts each text's spans behind it, for rows of all texts and then of all spans.

    Returns: the order (batch + spans), and the place of each text's first row in it (batch).
    """
    texts = np.arange(len(batch.lengths))
    owners = np.concatenate([texts, batch.spans[:, 0]])
    order = np.argsort(owners, kind="stable")
    return order, np.searchsorted(owners[order], texts)


def pooled_and_sums(hidden: Vectors, batch: TokenBatch, pooling: Pooling) -> list[Vectors]:
    """A text's pooled vector and the sums over its spans: (1 + spans, width) a text. Shapes: hidden (tokens, width)."""
    rows, begins = span_rows(batch.spans)
    sums = np.add.reduceat(hidden[rows], begins[:-1], axis=0, dtype=np.float64).astype(np.float32)
    order, starts = result_order(batch)
    return np.split(np.concatenate([pool(hidden, batch, pooling), sums])[order], starts[1:])
