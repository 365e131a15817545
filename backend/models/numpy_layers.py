"""Linear layers and activation functions in numpy, for classification heads and scores. NaN and infinity pass through.

Everything runs on the calling lane's thread and starts no other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from backend.models.encoder import Vectors
from backend.models.weights import Linear

# erf(x) = 1 - t (a1 + t (a2 + …)) exp(-x²) with t = 1 / (1 + p x), for x >= 0; wrong by 1.5e-7 at most.
# Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26.
_ERF_P = 0.3275911
_ERF_A = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)
_ONE_THREAD = 1 << 18  # multiplications; OpenBLAS, interface/gemm.c: SMP_THRESHOLD_MIN * GEMM_MULTITHREAD_THRESHOLD
_ROWS = 16  # of a block of a square layer; 8 and 32 took the same time


class Activation(StrEnum):
    """The function that turns logits into scores."""

    SOFTMAX = "softmax"  # exactly one label is right
    SIGMOID = "sigmoid"  # each label is right or wrong by itself
    IDENTITY = "identity"


def activate(logits: Vectors, activation: Activation) -> Vectors:
    """Scores of logits: (…, labels) -> (…, labels) float32."""
    if activation is Activation.SOFTMAX:
        return softmax(logits)
    return sigmoid(logits) if activation is Activation.SIGMOID else logits


def linear(rows: Vectors, layer: Linear) -> Vectors:
    """A linear layer, multiplied in blocks of rows and outputs. Shapes: (rows, in) -> (rows, out) float32.

    OpenBLAS starts threads for larger products, and they spin on the other lanes' cores. Processor time on two cores,
    undivided and in blocks: 512 rows of width 384 to 7 labels 5.7 and 1.1 ms; 16 rows of width 768 to as many 17.8 and
    0.5 ms, one row 10.0 and 0.16 ms.
    """
    outputs, width = layer.weight.shape
    product = np.empty((len(rows), outputs), np.float32)
    area = max(1, _ONE_THREAD // width)  # rows times outputs of a block
    columns = min(outputs, max(1, area // max(1, min(len(rows), _ROWS))))
    height = max(1, area // columns)
    for top in range(0, len(rows), height):
        for left in range(0, outputs, columns):
            block = (slice(top, top + height), slice(left, left + columns))
            np.matmul(rows[block[0]], layer.weight[block[1]].T, out=product[block])
    product += layer.bias
    return product


def softmax(logits: NDArray[Any]) -> NDArray[Any]:
    """Over the last axis, in the logits' precision; the largest logit is subtracted first, against overflow."""
    with np.errstate(invalid="ignore", over="ignore"):
        scores: NDArray[Any] = np.exp(logits - logits.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
    return scores


def sigmoid(logits: NDArray[Any]) -> NDArray[Any]:
    """Elementwise; small scores keep all their digits, so that low logits stay in order."""
    with np.errstate(invalid="ignore"):
        small = np.exp(-np.abs(logits))
        scores: NDArray[Any] = np.where(logits >= 0, np.float32(1), small) / (1 + small)
    return scores


def gelu(values: Vectors) -> Vectors:
    """GELU by the error function, to float32 precision."""
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        result: Vectors = values * (1 + _erf(values * np.float32(math.sqrt(0.5)))) * np.float32(0.5)
    return result


def gelu_tanh(values: Vectors) -> Vectors:
    """GELU approximated by a hyperbolic tangent."""
    with np.errstate(invalid="ignore", over="ignore"):
        inner = np.float32(math.sqrt(2 / math.pi)) * (values + np.float32(0.044715) * values**3)
        result: Vectors = values * (1 + np.tanh(inner)) * np.float32(0.5)
    return result


def relu(values: Vectors) -> Vectors:
    result: Vectors = np.maximum(values, np.float32(0))
    return result


def silu(values: Vectors) -> Vectors:
    with np.errstate(invalid="ignore"):
        result: Vectors = values * sigmoid(values)
    return result


def tanh(values: Vectors) -> Vectors:
    result: Vectors = np.tanh(values)
    return result


# By transformers' names (activations.py, ACT2CLS).
FUNCTIONS: Final[Mapping[str, Callable[[Vectors], Vectors]]] = {
    "gelu": gelu, "gelu_python": gelu, "gelu_new": gelu_tanh, "gelu_pytorch_tanh": gelu_tanh, "relu": relu,
    "sigmoid": sigmoid, "silu": silu, "swish": silu, "tanh": tanh,
}  # fmt: skip


def _erf(values: Vectors) -> Vectors:
    size = np.abs(values)
    t = 1 / (1 + np.float32(_ERF_P) * size)
    series = np.zeros_like(t)
    for coefficient in reversed(_ERF_A):
        series = t * (series + np.float32(coefficient))
    result: Vectors = np.copysign(1 - series * np.exp(-size * size), values)
    return result
