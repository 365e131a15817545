"""The layers of a BERT-like encoder in torch over packed rows: texts end to end, nothing computed on padding.

On an H100 what follows attention in a layer takes 123 us for 16,384 rows of width 384 where torch's own kernels take
207 (benchmarks/results/gpu). Only where Triton can build its launchers, and what keeps to torch's results.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from numpy.typing import NDArray
from torch import Tensor

from backend.device.facts.host import compiler_fault
from backend.errors import ModelUnavailable
from backend.models.spec import EncoderShape, Pooling
from backend.models.torch_attention import Attend
from backend.models.weights import EncoderWeights, Layer, Linear, Norm
from backend.telemetry import log_event

_GELU_TANH = partial(F.gelu, approximate="tanh")
# The functions of numpy_layers.FUNCTIONS, by transformers' names.
FUNCTIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu, "gelu_python": F.gelu, "gelu_new": _GELU_TANH, "gelu_pytorch_tanh": _GELU_TANH, "relu": F.relu,
    "sigmoid": torch.sigmoid, "silu": F.silu, "swish": F.silu, "tanh": torch.tanh,
}  # fmt: skip
Pair = tuple[Tensor, Tensor]  # weight and bias, or gain and bias
_log = logging.getLogger(__name__)
_PROBE_WIDTH, _PROBE_BOUNDS = 96, (0, 1, 1, 40, 70)  # no power of two; an empty text, and one longer than a tile
_TOLERANCE = {torch.bfloat16: 0.1, torch.float16: 0.02, torch.float32: 0.01}  # of normed rows; tanh's form of GELU


@dataclass(frozen=True, slots=True)
class TorchLayer:
    """One layer's weights; ``weights.Layer`` in torch."""

    qkv: Pair
    attended: Pair
    attended_norm: Pair
    up: Pair
    down: Pair
    down_norm: Pair


Activation = Callable[[Tensor], Tensor]
RestOfLayer = Callable[[Tensor, Tensor, TorchLayer, Activation, float], Tensor]


class PackedLayers:
    """The weights on a device and what they compute.

    Args:
        rest: ``rest_of_layer``, or its compiled form.
    """

    def __init__(
        self,
        shape: EncoderShape,
        weights: EncoderWeights,
        *,
        device: torch.device,
        dtype: torch.dtype,
        rest: RestOfLayer,
    ) -> None:
        """Send the weights. Raises: ModelUnavailable for an activation without a function here."""
        activation = FUNCTIONS.get(shape.activation)
        if activation is None:
            raise ModelUnavailable(
                f"no packed layers with the activation {shape.activation!r} (there are {', '.join(FUNCTIONS)}); "
                "RUNTIME=torch serves this model"
            )

        def send(array: NDArray[Any]) -> Tensor:
            return torch.from_numpy(np.array(array, np.float32)).to(device, dtype)

        def pair(part: Linear | Norm) -> Pair:
            return send(part.weight if isinstance(part, Linear) else part.gain), send(part.bias)

        def layer(layer: Layer) -> TorchLayer:
            parts = (layer.qkv, layer.attended, layer.attended_norm, layer.up, layer.down, layer.down_norm)
            return TorchLayer(*(pair(part) for part in parts))

        self._heads, self._epsilon, self._activation = shape.heads, shape.epsilon, activation
        self._rest = rest
        self._words, self._positions = send(weights.words), send(weights.positions)
        self._types = None if weights.types is None else send(weights.types)
        self._norm = pair(weights.norm)
        self._layers = tuple(layer(each) for each in weights.layers)

    @property
    def is_typed(self) -> bool:
        """Whether token types are read."""
        return self._types is not None

    def __call__(self, ids: Tensor, positions: Tensor, types: Tensor | None, attend: Attend) -> Tensor:
        """Shapes: ids, positions, types (rows) int32 -> (rows, width)."""
        hidden = F.embedding(ids, self._words) + F.embedding(positions, self._positions)
        if self._types is not None and types is not None:
            hidden = hidden + F.embedding(types, self._types)
        hidden = _normed(hidden, self._norm, self._epsilon)
        for layer in self._layers:
            hidden = self._run(layer, hidden, attend)
        return hidden

    def _run(self, layer: TorchLayer, hidden: Tensor, attend: Attend) -> Tensor:
        rows, width = hidden.shape
        queries, keys, values = F.linear(hidden, *layer.qkv).view(rows, 3, self._heads, width // self._heads).unbind(1)
        attended = attend(queries, keys, values).reshape(rows, width)
        return self._rest(attended, hidden, layer, self._activation, self._epsilon)


def rest_of_layer(
    attended: Tensor, hidden: Tensor, layer: TorchLayer, activation: Activation, epsilon: float
) -> Tensor:
    """What follows attention in a layer. Shapes: attended, hidden (rows, width) -> (rows, width)."""
    hidden = _normed(F.linear(attended, *layer.attended) + hidden, layer.attended_norm, epsilon)
    raised = activation(F.linear(hidden, *layer.up))
    return _normed(F.linear(raised, *layer.down) + hidden, layer.down_norm, epsilon)


def _normed(hidden: Tensor, norm: Pair, epsilon: float) -> Tensor:
    return F.layer_norm(hidden, hidden.shape[-1:], *norm, eps=epsilon)


def pool_rows(hidden: Tensor, bounds: Tensor, pooling: Pooling) -> Tensor:
    """One float32 vector a text; an empty text gets any number.

    Shapes: hidden (rows, width), bounds (texts + 1) int32, first row of each text and one past the last.
    """
    if pooling in (Pooling.CLS, Pooling.LAST):
        rows = bounds[:-1] if pooling is Pooling.CLS else bounds[1:] - 1
        return hidden.index_select(0, rows.clamp(0, len(hidden) - 1)).float()
    reduction = "mean" if pooling is Pooling.MEAN else "max"
    reduced: Tensor = torch.segment_reduce(hidden.float(), reduction, offsets=bounds, axis=0, unsafe=True)
    return reduced


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
