"""Task heads in torch, computed on the encoder's device in float32; the numpy heads are their reference."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from numpy.typing import NDArray
from torch import Tensor

from backend.models.encoder import TokenBatch, result_order, span_rows
from backend.models.readout import (
    PooledVectors,
    QueuedResults,
    Readout,
    SequenceLogits,
    SummedSpans,
    TokenProbabilities,
    TokenVectors,
)
from backend.models.sequence_head import SequenceHead
from backend.models.spec import Pooling
from backend.models.token_head import TokenHead
from backend.models.torch_packed_layers import FUNCTIONS, pool_rows
from backend.models.torch_transfers import CopiedResults, Transfers, send

Head = Callable[[Tensor], Tensor]  # float32 rows of vectors -> rows of results


class DeviceHeads:
    """The heads of one encoder, each sent to the device when it is first asked for. Any thread."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._heads: dict[Readout, Head] = {}

    def compute(
        self, readout: Readout, rows: Callable[[], Tensor], pooled: Callable[[Pooling], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """The readout's values and the size of each of their rows, both float32; only queued when this returns.

        Of ``SummedSpans`` the token vectors: spans differ from batch to batch, so ``queued`` sums, outside any graph.

        Args:
            rows: the token vectors, texts end to end: (rows, width).
            pooled: one float32 vector a text: (batch, width).

        Shapes: (batch or rows, results), (batch or rows).
        """
        if isinstance(readout, PooledVectors):
            values = pooled(readout.pooling)
        elif isinstance(readout, TokenVectors | SummedSpans):
            values = rows().float()
        elif isinstance(readout, SequenceLogits):
            values = self._head(readout)(pooled(readout.head.pooling))
        else:
            values = self._head(readout)(rows().float())
        return values, _sizes(values)

    def _head(self, readout: SequenceLogits | TokenProbabilities) -> Head:
        head = self._heads.get(readout)
        if head is None:
            make = _sequence_head if isinstance(readout, SequenceLogits) else _token_head
            head = self._heads[readout] = make(readout.head, self._device)  # type: ignore[arg-type]
        return head


def queued(batch: TokenBatch, readout: Readout, values: Tensor, sizes: Tensor, transfers: Transfers) -> QueuedResults:
    """Start the way home of what ``compute`` returned."""
    starts, rows = None, len(batch.lengths)
    if isinstance(readout, TokenVectors | TokenProbabilities):
        starts, rows = batch.starts, batch.tokens
    elif isinstance(readout, SummedSpans):
        values, starts = _pooled_and_sums(values, batch, readout.pooling, transfers)
        sizes, rows = _sizes(values), len(values)
    return CopiedResults(starts, transfers.copy_out(values[:rows]), transfers.copy_out(sizes[:rows]))


def _pooled_and_sums(
    vectors: Tensor, batch: TokenBatch, pooling: Pooling, transfers: Transfers
) -> tuple[Tensor, NDArray[np.int64]]:
    """``encoder.pooled_and_sums`` where the token vectors are, and each text's first row in it.

    Each span is summed row after row by one thread a column, so that a sum does not depend on the rest of its batch.
    """
    if vectors.device.type == "mps":  # whose memory is the host's, and which lacks kernels for both
        vectors = vectors.cpu()
    order, starts = result_order(batch)
    bounds = np.append(batch.starts, batch.tokens)
    sent = send(transfers, vectors.device, [bounds, *span_rows(batch.spans), order])
    sums = F.embedding_bag(sent[1], vectors, sent[2], mode="sum", include_last_offset=True)
    return torch.cat([pool_rows(vectors, sent[0], pooling), sums]).index_select(0, sent[3]), starts


def _sizes(values: Tensor) -> Tensor:
    """The largest magnitude in each row; NaN or infinite where one of its numbers is."""
    sizes: Tensor = torch.linalg.vector_norm(values, torch.inf, dim=1)
    return sizes


def _token_head(head: TokenHead, device: torch.device) -> Head:
    weight, bias = (_sent(array, device) for array in (head.layer.weight, head.layer.bias))

    def compute(rows: Tensor) -> Tensor:
        return F.linear(rows, weight, bias).softmax(-1)

    return compute


def _sequence_head(head: SequenceHead, device: torch.device) -> Head:
    inner, outer = (
        tuple(_sent(array, device) for array in (layer.weight, layer.bias)) for layer in (head.inner, head.outer)
    )
    norm = None if head.norm is None else tuple(_sent(array, device) for array in (head.norm.gain, head.norm.bias))
    function = FUNCTIONS[head.function]

    def compute(vectors: Tensor) -> Tensor:
        hidden = function(F.linear(vectors, *inner))
        if norm is not None:
            hidden = F.layer_norm(hidden, hidden.shape[-1:], norm[0], norm[1], head.epsilon)
        return F.linear(hidden, *outer)

    return compute


def _sent(array: NDArray[np.float32], device: torch.device) -> Tensor:
    return torch.from_numpy(np.array(array, np.float32)).to(device)
