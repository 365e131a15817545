"""The kernels of ``torch_packed_layers.FusedKernels``, in Triton; imported on a card alone."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_TILE, _COLUMNS = 32, 128  # rows and columns that one program sums at a time


@triton.jit
def _add_norm(rows, residual, bias, gain, shift, out, epsilon, width: tl.constexpr, padded: tl.constexpr):
    columns = tl.arange(0, padded)
    inside = columns < width
    place = tl.program_id(0).to(tl.int64) * width + columns
    total = tl.load(rows + place, inside, 0.0).to(tl.float32) + tl.load(bias + columns, inside, 0.0).to(tl.float32)
    total += tl.load(residual + place, inside, 0.0).to(tl.float32)
    centred = tl.where(inside, total - tl.sum(total, 0) / width, 0.0)
    normed = centred * tl.rsqrt(tl.sum(centred * centred, 0) / width + epsilon)
    normed = normed * tl.load(gain + columns, inside, 0.0).to(tl.float32)
    normed += tl.load(shift + columns, inside, 0.0).to(tl.float32)
    tl.store(out + place, normed.to(out.dtype.element_ty), inside)


@triton.jit
def _mean_rows(rows, bounds, out, width: tl.constexpr, tile: tl.constexpr, columns_a_program: tl.constexpr):
    text = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * columns_a_program + tl.arange(0, columns_a_program)
    inside = columns < width
    start, stop = tl.load(bounds + text), tl.load(bounds + text + 1)
    total = tl.zeros((columns_a_program,), tl.float32)
    for first in range(start, stop, tile):
        row = (first + tl.arange(0, tile)).to(tl.int64)
        among = (row < stop)[:, None] & inside[None, :]
        total += tl.sum(tl.load(rows + row[:, None] * width + columns[None, :], among, 0.0).to(tl.float32), 0)
    tl.store(out + text * width + columns, total / tl.maximum(stop - start, 1), inside)


def add_norm(rows: Tensor, residual: Tensor, bias: Tensor, norm: tuple[Tensor, Tensor], epsilon: float) -> Tensor:
    """The norm of ``rows + bias + residual``. Shapes: rows, residual (rows, width), contiguous -> (rows, width)."""
    count, width = rows.shape
    out = torch.empty_like(rows)
    _add_norm[(count,)](
        rows, residual, bias, *norm, out, epsilon, width=width, padded=triton.next_power_of_2(width), num_warps=2
    )
    return out


def mean_rows(hidden: Tensor, bounds: Tensor) -> Tensor:
    """Each text's mean, in float32. Shapes: hidden (rows, width), bounds (texts + 1) int32 -> (texts, width)."""
    texts, width = len(bounds) - 1, hidden.shape[1]
    out = torch.empty(texts, width, dtype=torch.float32, device=hidden.device)
    programs = (texts, triton.cdiv(width, _COLUMNS))
    _mean_rows[programs](hidden, bounds, out, width=width, tile=_TILE, columns_a_program=_COLUMNS, num_warps=4)
    return out
