"""Attention over texts laid end to end: by a kernel for texts of any length, text by text, or padded for itself alone.

Queries are already divided by the square root of the head width, as ``weights.Layer.qkv`` has them.
Shapes of queries, keys, values and results: (rows, heads, head width). Rows of no text get any number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from numpy.typing import NDArray
from torch import Tensor

from backend.errors import ModelUnavailable
from backend.models.encoder import Ids, TokenBatch, pack, pack_rows, relative_buckets

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
Kernel = Callable[[Tensor, Tensor, Tensor, Tensor, int], Tensor]  # queries, keys, values, bounds, longest
_LENGTH_MULTIPLE = 8  # of padded attention: CUDA's kernels take a mask whose rows are aligned
_PROBE_LENGTHS = (1, 7, 130, 64)  # below, between and above the tiles of the kernels (64 and 128 rows)
_PROBE_FILLER = 54  # rows of no text behind them
# Largest difference of a weighted mean of normal numbers: half precision keeps 8 or 11 bits of it.
_TOLERANCE = {torch.bfloat16: 0.03, torch.float16: 0.01, torch.float32: 0.001}


class Attention(Protocol):
    """One way to attend."""

    name: str
    padding_cost: float  # as Encoder.padding_cost
    has_fixed_shapes: (
        bool  # whether equal numbers of rows and texts are equal work to queue, so that a graph may hold it
    )

    def pack(self, ids: Sequence[Ids], rows: Callable[[int], int]) -> TokenBatch:
        """The batch with what this attention needs of it; ``rows``: of so many tokens."""

    def inputs(self, batch: TokenBatch) -> list[NDArray[np.int64]]:
        """Index arrays that it wants on the device."""

    def over(self, bounds: Tensor, longest: int, inputs: Sequence[Tensor]) -> Attend:
        """The attention of one batch, for all its layers.

        Args:
            bounds: first row of each text and one past the last: (texts + 1) int32; texts may be empty.
            longest: at least the longest text's tokens.
            inputs: what ``inputs`` gave, flat, on the device.
        """


class VarlenAttention:
    """A kernel that takes the bounds of the texts: nothing is computed on padding."""

    padding_cost = 0.0
    has_fixed_shapes = True

    def __init__(self, name: str, kernel: Kernel) -> None:
        self.name, self._kernel = name, kernel

    def pack(self, ids: Sequence[Ids], rows: Callable[[int], int]) -> TokenBatch:
        return pack_rows(ids, rows)

    def inputs(self, batch: TokenBatch) -> list[NDArray[np.int64]]:  # noqa: ARG002 - the protocol's argument
        return []

    def over(self, bounds: Tensor, longest: int, inputs: Sequence[Tensor]) -> Attend:  # noqa: ARG002 - the same
        return lambda queries, keys, values: self._kernel(queries, keys, values, bounds, longest)


def text_by_text(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    bounds: Tensor,
    longest: int,  # noqa: ARG001 - the other kernels'
    *,
    bias: Tensor | None = None,
) -> Tensor:
    """A Kernel: torch's scaled-dot-product attention, text by text, on a CPU, where a call costs little.

    ``bias``: added to the scores, from ``relative_bias``.
    """
    attended = torch.zeros(queries.shape, dtype=queries.dtype, device=queries.device)
    for start, stop in pairwise(bounds.tolist()):
        if stop > start:
            query, key, value = (part[start:stop].transpose(0, 1)[None] for part in (queries, keys, values))
            own_bias = None if bias is None else bias[:, :, : stop - start, : stop - start]
            mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=own_bias, scale=1.0)
            attended[start:stop] = mixed[0].transpose(0, 1)
    return attended


class PaddedAttention:
    """torch's scaled-dot-product attention over padded texts; for a bias on the scores, which no other kernel takes."""

    name = "padded"
    padding_cost = 0.1  # padding exists in attention only
    has_fixed_shapes = False

    def __init__(self, bias: Tensor | None = None) -> None:
        """``bias``: added to the scores, from ``relative_bias``."""
        self._bias = bias

    def pack(self, ids: Sequence[Ids], rows: Callable[[int], int]) -> TokenBatch:
        tokens = sum(text.shape[-1] for text in ids)
        return pack(ids, rows_at_least=rows(tokens), length_multiple=_LENGTH_MULTIPLE)

    def inputs(self, batch: TokenBatch) -> list[NDArray[np.int64]]:
        return [batch.scatter, batch.gather]

    def over(self, bounds: Tensor, longest: int, inputs: Sequence[Tensor]) -> Attend:
        scatter, gather = inputs
        texts = len(bounds) - 1
        padding = torch.arange(longest, device=bounds.device) >= bounds.diff()[:, None]
        masks: dict[torch.dtype, Tensor] = {}

        def attend(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            if queries.dtype not in masks:  # once a batch
                masks[queries.dtype] = self._mask(padding, longest, queries.dtype)
            query, key, value = (
                part.index_select(0, scatter).view(texts, longest, *part.shape[1:]).transpose(1, 2)
                for part in (queries, keys, values)
            )
            mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=masks[queries.dtype], scale=1.0)
            return mixed.transpose(1, 2).reshape(texts * longest, *queries.shape[1:]).index_select(0, gather)

        return attend

    def _mask(self, padding: Tensor, longest: int, dtype: torch.dtype) -> Tensor:
        """(texts, heads or 1, longest or 1, longest)."""
        mask = torch.zeros(padding.shape, dtype=dtype, device=padding.device)
        mask = mask.masked_fill_(padding, torch.finfo(dtype).min)[:, None, None, :]
        return mask if self._bias is None else self._bias[:, :, :longest, :longest].to(dtype) + mask


def relative_bias(table: NDArray[np.float32], positions: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """MPNet's bias of each pair of places. Shapes: table (buckets, heads) -> (1, heads, positions, positions)."""
    longest = -(-positions // _LENGTH_MULTIPLE) * _LENGTH_MULTIPLE  # lengths are rounded up
    by_pair = torch.from_numpy(np.ascontiguousarray(table[relative_buckets(longest)]))
    return by_pair.permute(2, 0, 1)[None].contiguous().to(device, dtype)


def choose_varlen(
    device: torch.device,
    dtype: torch.dtype,
    *,
    heads: int,
    head_width: int,
    kernels: Mapping[str, Kernel] | None = None,
) -> VarlenAttention:
    """The first kernel that runs on the device and computes what it should, tried on texts of several lengths.

    Args:
        kernels: by name, best first; only tests give others than ``KERNELS``.

    Raises: ModelUnavailable with each kernel's fault where none does.
    """
    faults = []
    for name, kernel in (KERNELS if kernels is None else kernels).items():
        fault = _fault_of(kernel, device, dtype, (heads, head_width))
        if not fault:
            return VarlenAttention(name, kernel)
        faults.append(f"{name}: {fault}")
    raise ModelUnavailable(f"no attention over texts of different lengths runs on {device}: {'; '.join(faults)}")


@torch.inference_mode()
def _fault_of(kernel: Kernel, device: torch.device, dtype: torch.dtype, shape: tuple[int, int]) -> str:
    generator = torch.Generator().manual_seed(1)
    tokens = sum(_PROBE_LENGTHS)
    # Views of one tensor, as the layers' products are; an empty text at the end, as in a captured graph.
    qkv = torch.randn(tokens + _PROBE_FILLER, 3, *shape, generator=generator)
    qkv[:, 0] *= shape[1] ** -0.5
    qkv[tokens:] = torch.nan  # rows of no text: a kernel that reads them, or spreads what they hold, is found out
    bounds = torch.tensor([0, *np.cumsum(_PROBE_LENGTHS), tokens], dtype=torch.int32)
    longest = max(_PROBE_LENGTHS)
    given = qkv.to(device, dtype)
    try:
        queries, keys, values = given.unbind(1)
        found = kernel(queries, keys, values, bounds.to(device), longest)[:tokens].float().cpu()
    except Exception as error:  # noqa: BLE001 - a foreign kernel may refuse a card in any way
        return f"{type(error).__name__}: {error}".splitlines()[0]
    queries, keys, values = given.float().cpu().unbind(1)
    expected = text_by_text(queries, keys, values, bounds, longest)[:tokens]
    difference = float((found - expected).abs().max())
    return "" if difference <= _TOLERANCE[dtype] else f"differs from the reference by {difference:.3g}"


def _flash(queries: Tensor, keys: Tensor, values: Tensor, bounds: Tensor, longest: int, **splits: int) -> Tensor:
    flash: Any = torch.ops.aten._flash_attention_forward  # noqa: SLF001 - varlen_attn calls it
    places = (bounds, bounds, longest, longest)
    attended: Tensor = flash(queries, keys, values, *places, 0.0, False, False, scale=1.0, **splits)[0]
    return attended


def _public(queries: Tensor, keys: Tensor, values: Tensor, bounds: Tensor, longest: int) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn  # registers operators when imported; only CUDA needs them

    attended: Any = varlen_attn(queries, keys, values, bounds, bounds, longest, longest, scale=1.0)
    result: Tensor = attended
    return result


def _efficient(queries: Tensor, keys: Tensor, values: Tensor, bounds: Tensor, longest: int) -> Tensor:
    efficient: Any = torch.ops.aten._efficient_attention_forward  # noqa: SLF001 - SDPA calls it
    one_row = (part[None] for part in (queries, keys, values))
    attended: Tensor = efficient(*one_row, None, bounds, bounds, longest, longest, 0.0, 0, scale=1.0)[0]
    return attended[0]


# One split keeps the order of a text's sums, whatever its neighbours' lengths. The operator behind torch's varlen_attn
# comes before it: without a rule for gradients it is queued sooner. The memory-efficient kernel takes float32, and
# cards before Ampere.
KERNELS: Mapping[str, Kernel] = {
    "flash, one split": partial(_flash, num_splits=1),
    "flash": _flash,
    "varlen_attn": _public,
    "memory-efficient": _efficient,
}
