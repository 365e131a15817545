"""The encoder interface of every runtime, the packed batch of texts that it takes, and sums over its spans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from backend.models.spec import Pooling

Ids = NDArray[np.int64]  # of a text: (tokens), or (2, tokens) with the token types under the ids
Vectors = NDArray[np.float32]
_Floats = TypeVar("_Floats", NDArray[np.float32], NDArray[np.float64])
_TINY = np.finfo(np.float32).tiny
_RELATIVE_BUCKETS, _FURTHEST_RELATIVE = 32, 128  # of all MPNet models
_MASKED = -1e9  # added to the attention scores of padding


GRAPH_PADDING_COST = 0.1  # of encoders on models/onnx_graph: padding exists in attention only


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """Texts laid end to end, and the two index maps between that and the padded form attention needs.

    Encoders whose attention needs no padding leave the maps and the mask empty (``pack_rows``).
    Rows past ``tokens`` fill up to a round number: they belong to no text and are never read.
    """

    ids: Ids  # (rows)
    types: Ids  # (rows): token types, 0 where a text came without
    positions: Ids  # (rows)
    scatter: Ids  # (batch, longest): the row of each slot
    gather: Ids  # (rows): the slot of each row
    mask: Vectors  # (batch, 1, 1, longest): 0 for a token, -1e9 for padding
    starts: Ids  # (batch): first row of each text
    lengths: Ids  # (batch)
    tokens: int  # real ones, all texts together
    spans: Ids = field(default_factory=lambda: np.empty((0, 3), np.int64))
    # (spans, 3): text, first and past-last row of each span that is to be summed, text after text; set by `with_spans`


class Encoder(Protocol):
    """One model on one runtime. Safe to call from several lanes at once; each call belongs to its caller."""

    @property
    def runtime(self) -> str:
        """What executes it: one of models/runtimes' names, such as "torch", "torch-packed", "onnx" or "openvino"."""

    @property
    def dtype(self) -> str:
        """The arithmetic of the linear layers: "fp32", "bf16", "fp16" or "int8"."""

    @property
    def padding_cost(self) -> float:
        """Time of a padded token as a share of a real one's: 1 where the whole model pads, 0 where nothing does."""

    def prepare(self, ids: Sequence[Ids]) -> TokenBatch:
        """Pack token ids, with or without their types, one array a text, none empty."""

    def forward(self, batch: TokenBatch) -> Any:
        """Run the layers; may return before the device has finished."""

    def hidden(self, output: Any, batch: TokenBatch) -> Vectors:
        """Wait for the device and return the token vectors: (tokens, width) float32, texts end to end."""

    def pooled(self, output: Any, batch: TokenBatch, pooling: Pooling) -> Vectors:
        """Wait for the device and return one vector a text: (batch, width) float32, not normalised."""


def payload_of(ids: Ids, types: Ids | None) -> Ids:
    """A text as ``pack`` and the engines take it: (tokens), or (2, tokens) with the token types under the ids."""
    return ids if types is None else np.stack([ids, types])


def pack(ids: Sequence[Ids], *, row_multiple: int = 1, rows_at_least: int = 1, length_multiple: int = 1) -> TokenBatch:
    """Lay texts end to end.

    Args:
        ids: one array a text, none empty: (tokens), or (2, tokens) with the types under the ids.
        row_multiple, length_multiple: round the two free sizes up, for runtimes that keep a compiled kernel a shape.
        rows_at_least: for runtimes that compute few rows in other kernels.
    """
    lengths = _lengths(ids)
    rows = _round_up(max(int(lengths.sum()), rows_at_least), row_multiple)
    slots = np.arange(_round_up(int(lengths.max()), length_multiple))
    real = slots < lengths[:, None]
    scatter = np.where(real, (np.cumsum(lengths) - lengths)[:, None] + slots, 0)
    mask = np.where(real, 0.0, _MASKED).astype(np.float32)[:, None, None, :]
    gather = _filled(np.flatnonzero(real), rows)
    return _batch(ids, lengths, rows, scatter=scatter, gather=gather, mask=mask)


def pack_rows(ids: Sequence[Ids], rows: Callable[[int], int]) -> TokenBatch:
    """The same without the two index maps and the mask, for attention that needs none: they are empty.

    Args:
        rows: of so many tokens, at least as many.
    """
    lengths, texts = _lengths(ids), len(ids)
    scatter, mask = np.empty((texts, 0), np.int64), np.empty((texts, 1, 1, 0), np.float32)
    gather = np.empty(0, np.int64)
    return _batch(ids, lengths, rows(int(lengths.sum())), scatter=scatter, gather=gather, mask=mask)


def _lengths(ids: Sequence[Ids]) -> Ids:
    return np.fromiter((text.shape[-1] for text in ids), np.int64, len(ids))


def _batch(ids: Sequence[Ids], lengths: Ids, rows: int, *, scatter: Ids, gather: Ids, mask: Vectors) -> TokenBatch:
    tokens, starts = int(lengths.sum()), np.cumsum(lengths) - lengths
    return TokenBatch(
        ids=_filled(np.concatenate([text if text.ndim == 1 else text[0] for text in ids]), rows),
        types=_types(ids, lengths, rows),
        positions=_filled(np.arange(tokens) - np.repeat(starts, lengths), rows),
        scatter=scatter,
        gather=gather,
        mask=mask,
        starts=starts,
        lengths=lengths,
        tokens=tokens,
    )


def pool(hidden: Vectors, batch: TokenBatch, pooling: Pooling) -> Vectors:
    """One vector a text. Shapes: hidden (tokens, width) -> (batch, width) float32."""
    if pooling is Pooling.CLS:
        first: Vectors = hidden[batch.starts]
        return first
    if pooling is Pooling.LAST:
        last: Vectors = hidden[batch.starts + batch.lengths - 1]
        return last
    if pooling is Pooling.MAX:
        largest: Vectors = np.maximum.reduceat(hidden, batch.starts, axis=0)
        return largest
    sums: Vectors = np.add.reduceat(hidden, batch.starts, axis=0)
    np.divide(sums, batch.lengths[:, None], out=sums)
    return sums


def relative_buckets(longest: int) -> Ids:
    """MPNet's bucket of each pair of places: (longest, longest). Near distances have their own, far ones share.

    Source: transformers, models/mpnet/modeling_mpnet.py, relative_position_bucket.
    """
    places = np.arange(longest)
    back = places[:, None] - places[None, :]
    half = _RELATIVE_BUCKETS // 2
    distance = np.abs(back)
    exact = half // 2
    with np.errstate(divide="ignore"):
        logarithm = np.log(distance / exact) / np.log(_FURTHEST_RELATIVE / exact) * (half - exact)
    far = np.minimum(exact + np.maximum(logarithm, 0).astype(np.int64), half - 1)
    result: Ids = np.where(back < 0, half, 0) + np.where(distance < exact, distance, far)
    return result


def text_of(batch: TokenBatch, row: int) -> Ids:
    """One text of a batch as ``pack`` took it, its types included."""
    rows = slice(batch.starts[row], batch.starts[row] + batch.lengths[row])
    return np.stack([batch.ids[rows], batch.types[rows]])


def _types(ids: Sequence[Ids], lengths: Ids, rows: int) -> Ids:
    types = np.zeros(rows, np.int64)
    if all(text.ndim == 1 for text in ids):
        return types
    for text, stop, length in zip(ids, np.cumsum(lengths), lengths, strict=True):
        if text.ndim > 1:
            types[stop - length : stop] = text[1]
    return types


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def _filled(values: Ids, rows: int) -> Ids:
    if len(values) == rows:
        return values
    filled = np.zeros(rows, np.int64)
    filled[: len(values)] = values
    return filled


def normalized(vectors: _Floats) -> _Floats:
    """Rows of length one, of the same dtype; a row of zeros stays zero. Shapes: (batch, width) -> (batch, width)."""
    squares = np.einsum("ij,ij->i", vectors, vectors)  # half the overhead of np.linalg.norm on one short row
    scaled: _Floats = vectors / np.sqrt(np.maximum(squares, _TINY))[:, None]
    return scaled


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
