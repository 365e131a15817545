"""The functions of last layers in numpy: inside a head, and from logits to scores. What is not finite stays so."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from backend.models.encoder import Vectors

# erf(x) = 1 - t (a1 + t (a2 + …)) exp(-x²) with t = 1 / (1 + p x), for x >= 0; wrong by 1.5e-7 at most.
# Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26.
_ERF_P = 0.3275911
_ERF_A = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)


class Activation(StrEnum):
    """What makes scores of logits."""

    SOFTMAX = "softmax"  # one of the labels is right
    SIGMOID = "sigmoid"  # each may be, whatever the others
    IDENTITY = "identity"


def activate(logits: Vectors, activation: Activation) -> Vectors:
    """Scores of logits: (…, labels) -> (…, labels) float32."""
    if activation is Activation.SOFTMAX:
        return softmax(logits)
    return sigmoid(logits) if activation is Activation.SIGMOID else logits


def softmax(logits: NDArray[Any]) -> NDArray[Any]:
    """Over the last axis, in the logits' own precision; the largest is taken off first, so that nothing overflows."""
    with np.errstate(invalid="ignore", over="ignore"):
        scores = np.exp(logits - logits.max(axis=-1, keepdims=True))
        found: NDArray[Any] = scores / scores.sum(axis=-1, keepdims=True)
    return found


def sigmoid(logits: NDArray[Any]) -> NDArray[Any]:
    """Of each; small scores keep all their digits, so that low logits stay in order."""
    with np.errstate(invalid="ignore"):
        small = np.exp(-np.abs(logits))
        found: NDArray[Any] = np.where(logits >= 0, np.float32(1), small) / (1 + small)
    return found


def gelu(values: Vectors) -> Vectors:
    """With the error function itself, to a float32's precision."""
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        found: Vectors = values * (1 + _erf(values * np.float32(math.sqrt(0.5)))) * np.float32(0.5)
    return found


def gelu_tanh(values: Vectors) -> Vectors:
    """Its approximation by a hyperbolic tangent."""
    with np.errstate(invalid="ignore", over="ignore"):
        inner = np.float32(math.sqrt(2 / math.pi)) * (values + np.float32(0.044715) * values**3)
        found: Vectors = values * (1 + np.tanh(inner)) * np.float32(0.5)
    return found


def relu(values: Vectors) -> Vectors:
    found: Vectors = np.maximum(values, np.float32(0))
    return found


def silu(values: Vectors) -> Vectors:
    with np.errstate(invalid="ignore"):
        found: Vectors = values * sigmoid(values)
    return found


def tanh(values: Vectors) -> Vectors:
    found: Vectors = np.tanh(values)
    return found


# By transformers' names (activations.py, ACT2CLS).
FUNCTIONS: Final[Mapping[str, Callable[[Vectors], Vectors]]] = {
    "gelu": gelu,
    "gelu_python": gelu,
    "gelu_new": gelu_tanh,
    "gelu_pytorch_tanh": gelu_tanh,
    "relu": relu,
    "sigmoid": sigmoid,
    "silu": silu,
    "swish": silu,
    "tanh": tanh,
}


def _erf(values: Vectors) -> Vectors:
    size = np.abs(values)
    t = 1 / (1 + np.float32(_ERF_P) * size)
    series = np.zeros_like(t)
    for coefficient in reversed(_ERF_A):
        series = t * (series + np.float32(coefficient))
    found: Vectors = np.copysign(1 - series * np.exp(-size * size), values)
    return found
