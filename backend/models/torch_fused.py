"""What surrounds the matrix products of a layer as one kernel each, in Triton: bias, residual and norm; mean pooling.

On an H100 what follows attention in a layer takes 123 us for 16,384 rows of width 384 where torch's own kernels take
207 (benchmarks/results/gpu). Only where Triton can build its launchers, and what keeps to torch's results.
"""

from __future__ import annotations

import logging
from importlib.util import find_spec
from typing import Protocol

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from torch import Tensor

from backend.device.facts.compiler import compiler_fault
from backend.models.spec import Pooling
from backend.models.torch_packed_layers import Activation, Pair, TorchLayer, pool_rows, rest_of_layer
from backend.telemetry import log_event

_log = logging.getLogger(__name__)
_PROBE_WIDTH, _PROBE_BOUNDS = 96, (0, 1, 1, 40, 70)  # no power of two; an empty text, and one longer than a tile
_TOLERANCE = {torch.bfloat16: 0.1, torch.float16: 0.02, torch.float32: 0.01}  # of normed rows; tanh's form of GELU


class Kernels(Protocol):
    """What a device has for the parts of an encoder that are no matrix products."""

    def rest(
        self, attended: Tensor, hidden: Tensor, layer: TorchLayer, activation: Activation, epsilon: float
    ) -> Tensor:
        """As ``rest_of_layer``."""

    def pool(self, hidden: Tensor, bounds: Tensor, pooling: Pooling) -> Tensor:
        """As ``pool_rows``."""


class TorchKernels:
    """torch's own, one for each operation: on every device."""

    rest = staticmethod(rest_of_layer)
    pool = staticmethod(pool_rows)


class FusedKernels:
    """Triton's. Raises: ImportError without it."""

    def __init__(self) -> None:
        from backend.models import triton_kernels  # compiles nothing yet

        self._kernels = triton_kernels

    def rest(
        self, attended: Tensor, hidden: Tensor, layer: TorchLayer, activation: Activation, epsilon: float
    ) -> Tensor:
        raised_from = self._add_norm(attended, hidden, layer.attended, layer.attended_norm, epsilon)
        raised = _raised(raised_from, layer.up, activation)
        return self._add_norm(raised, raised_from, layer.down, layer.down_norm, epsilon)

    def pool(self, hidden: Tensor, bounds: Tensor, pooling: Pooling) -> Tensor:
        if pooling is not Pooling.MEAN:
            return pool_rows(hidden, bounds, pooling)
        return self._kernels.mean_rows(hidden, bounds)

    def _add_norm(self, rows: Tensor, residual: Tensor, linear: Pair, norm: Pair, epsilon: float) -> Tensor:
        weight, bias = linear
        return self._kernels.add_norm(F.linear(rows, weight), residual, bias, norm, epsilon)


def _raised(rows: Tensor, up: Pair, activation: Activation) -> Tensor:
    if activation is not F.gelu:
        return activation(F.linear(rows, *up))
    # cuBLAS computes GELU's tanh form behind the product: cosine 0.999999 of the exact one's vectors.
    raised: Tensor = torch._addmm_activation(up[1], rows, up[0].t(), use_gelu=True)  # noqa: SLF001 - the only way to it
    return raised


def choose_kernels(device: torch.device, dtype: torch.dtype) -> Kernels:
    """The fused kernels where they run on the device and compute what they should, else torch's own."""
    if device.type != "cuda" or find_spec("triton") is None or compiler_fault():
        return TorchKernels()
    fused: Kernels | None = None
    try:
        fused = FusedKernels()
        fault = fault_of(fused, device, dtype)
    except Exception as error:  # noqa: BLE001 - a foreign compiler may refuse a card in any way
        fault = f"{type(error).__name__}: {error}".splitlines()[0]
    if fused is not None and not fault:
        return fused
    log_event(_log, logging.WARNING, "layers run without fused kernels", reason=fault, device=device)
    return TorchKernels()


@torch.inference_mode()
def fault_of(kernels: Kernels, device: torch.device, dtype: torch.dtype) -> str:
    """How far results are from torch's in float32, where that is too far; else ""."""
    generator = torch.Generator().manual_seed(1)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(device, dtype)

    def linear(width: int, outputs: int) -> Pair:
        return random(outputs, width) * width**-0.5, random(outputs)

    width, rows = _PROBE_WIDTH, _PROBE_BOUNDS[-1]
    norm = random(width), random(width)
    layer = TorchLayer(
        qkv=linear(width, 3 * width),
        attended=linear(width, width),
        attended_norm=norm,
        up=linear(width, 4 * width),
        down=linear(4 * width, width),
        down_norm=norm,
    )
    attended, hidden = random(rows, width), random(rows, width)
    exact = TorchLayer(
        *((weight.float(), bias.float()) for weight, bias in (getattr(layer, name) for name in TorchLayer.__slots__))
    )
    expected = rest_of_layer(attended.float(), hidden.float(), exact, F.gelu, 1e-12)
    found = kernels.rest(attended, hidden, layer, F.gelu, 1e-12).float()
    bounds = torch.tensor(_PROBE_BOUNDS, dtype=torch.int32, device=device)
    filled = torch.tensor([0, 2, 3], device=device)  # an empty text gets any number
    pooled = (kernels.pool(hidden, bounds, Pooling.MEAN) - pool_rows(hidden, bounds, Pooling.MEAN))[filled]
    difference = max(float((found - expected).abs().max()), float(pooled.abs().max()))
    return "" if difference <= _TOLERANCE[dtype] else f"differs from the reference by {difference:.3g}"
