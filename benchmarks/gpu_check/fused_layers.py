"""Ways to compute what follows attention in a layer: device time of each, and how far its rows are from float32's."""

import statistics
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from torch import Tensor

from backend.models.torch_packed_layers import TorchLayer, choose_kernels, rest_of_layer
from benchmarks.gpu_check.context import Context
from benchmarks.gpu_check.device_timing import random, timed
from benchmarks.gpu_check.made_models import BASE, E5_SMALL, Size

_ROWS, _FEW_ROWS = (16384, 2048), (64,)
_EPSILON = 1e-12
_SERVED = "GELU in the product, norms fused, as served"
Rest = Callable[[Tensor, Tensor, TorchLayer], Tensor]


def measure(context: Context) -> dict[str, Any]:
    """A row for each size, number of rows and way: microseconds a layer, and the least cosine."""
    result: dict[str, Any] = {"rows": []}
    for size in (E5_SMALL, BASE)[: 1 if context.is_small else 2]:
        for rows in _FEW_ROWS if context.is_small else _ROWS:
            for row in _measured(size, rows, context):
                result["rows"].append({"model": size.name, "layer_rows": rows, **row})
                context.keep(result)
    return result


def _measured(size: Size, rows: int, context: Context) -> Iterator[dict[str, Any]]:
    layer = _layer(size, context.device)
    attended, hidden = (random(rows, size.width, device=context.device, dtype=torch.bfloat16) for _ in range(2))
    exact = rest_of_layer(attended.float(), hidden.float(), _float32(layer), F.gelu, _EPSILON)
    for name, rest in _ways(context).items():
        try:
            found = rest(attended, hidden, layer).float()
            cosine = float(F.cosine_similarity(found, exact).min())
            runs = [timed(partial(rest, attended, hidden, layer), context.device, runs=50) for _ in range(3)]
            yield {"way": name, "us": 1e6 * statistics.median(run.device_s for run in runs), "cosine": cosine}
        except Exception as error:  # noqa: BLE001 - one may fail in any way; the others are measured
            yield {"way": name, "fault": f"{type(error).__name__}: {error}"[:300]}


def _layer(size: Size, device: str) -> TorchLayer:
    def linear(width: int, outputs: int) -> tuple[Tensor, Tensor]:
        weight = random(outputs, width, device=device, dtype=torch.float32) * width**-0.5
        return weight.bfloat16(), random(outputs, device=device, dtype=torch.bfloat16)

    norm = (torch.ones(size.width, device=device).bfloat16(), torch.zeros(size.width, device=device).bfloat16())
    wide = linear(size.width, size.hidden_width), linear(size.hidden_width, size.width)
    return TorchLayer(linear(size.width, 3 * size.width), linear(size.width, size.width), norm, *wide, norm)


def _float32(layer: TorchLayer) -> TorchLayer:
    pairs = (layer.qkv, layer.attended, layer.attended_norm, layer.up, layer.down, layer.down_norm)
    return TorchLayer(*((weight.float(), bias.float()) for weight, bias in pairs))


def _ways(context: Context) -> dict[str, Rest]:
    found: dict[str, Rest] = {"torch's kernels": _by_torch, "tanh GELU": _tanh, "GELU in the product": _in_product}
    if context.is_cuda:
        compiled = torch.compile(rest_of_layer, dynamic=False)
        found["compiled"] = lambda attended, hidden, layer: compiled(attended, hidden, layer, F.gelu, _EPSILON)
        fused = choose_kernels(torch.device(context.device), torch.bfloat16)
        found[_SERVED] = lambda attended, hidden, layer: fused.rest(attended, hidden, layer, F.gelu, _EPSILON)
    return found


def _by_torch(attended: Tensor, hidden: Tensor, layer: TorchLayer) -> Tensor:
    return rest_of_layer(attended, hidden, layer, F.gelu, _EPSILON)


def _tanh(attended: Tensor, hidden: Tensor, layer: TorchLayer) -> Tensor:
    return rest_of_layer(attended, hidden, layer, lambda rows: F.gelu(rows, approximate="tanh"), _EPSILON)


def _in_product(attended: Tensor, hidden: Tensor, layer: TorchLayer) -> Tensor:
    first = F.layer_norm(F.linear(attended, *layer.attended) + hidden, hidden.shape[-1:], *layer.attended_norm)
    raised = F.linear(_raised(first, layer), *layer.down)
    return F.layer_norm(raised + first, hidden.shape[-1:], *layer.down_norm)


def _raised(rows: Tensor, layer: TorchLayer) -> Tensor:
    weight, bias = layer.up
    raised: Tensor = torch._addmm_activation(bias, rows, weight.t(), use_gelu=True)  # noqa: SLF001 - the only way to it
    return raised
