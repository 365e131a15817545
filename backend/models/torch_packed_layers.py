"""The layers of a BERT-like encoder in torch over packed rows: texts end to end, nothing computed on padding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from numpy.typing import NDArray
from torch import Tensor

from backend.errors import ModelUnavailable
from backend.models.spec import EncoderShape, Pooling
from backend.models.torch_attention import Attend
from backend.models.weights import EncoderWeights, Layer, Linear, Norm

_ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_new": partial(F.gelu, approximate="tanh"),
    "gelu_pytorch_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
}
Pair = tuple[Tensor, Tensor]  # weight and bias, or gain and bias


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
        activation = _ACTIVATIONS.get(shape.activation)
        if activation is None:
            raise ModelUnavailable(
                f"no packed layers with the activation {shape.activation!r} (there are {', '.join(_ACTIVATIONS)}); "
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
