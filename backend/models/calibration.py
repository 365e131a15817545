"""Calibrated probabilities from logits: softmax, log loss, temperature scaling, and the abstention threshold."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.models import numpy_layers

Array = NDArray[Any]
_TEMPERATURES = (0.05, 20.0)  # outside this range a softmax is one-hot or uniform


@dataclass(frozen=True, slots=True)
class Temperature:
    """What logits are divided by so that confidence matches accuracy."""

    value: float  # 1.0 where none can be fitted
    why: str  # one sentence


def softmax(logits: Array, temperature: float = 1.0) -> Array:
    """Probabilities along the last axis, float64."""
    probabilities: Array = numpy_layers.softmax(np.asarray(logits, dtype=np.float64) / temperature)
    return probabilities


def sigmoid(logits: Array) -> Array:
    """Probability of each label on its own, float64."""
    probabilities: Array = numpy_layers.sigmoid(np.asarray(logits, dtype=np.float64))
    return probabilities


def log_loss(logits: Array, targets: Array) -> float:
    """Mean negative log likelihood in nats. Shapes: (items, labels), (items,)."""
    top = logits.max(axis=1, keepdims=True)
    normaliser = np.log(np.exp(logits - top).sum(axis=1)) + top[:, 0]
    return float((normaliser - logits[np.arange(len(targets)), targets]).mean())


def fit_temperature(logits: Array, targets: Array) -> Temperature:
    """The temperature of least log loss on examples the model was not trained on; accuracy stays as it is.

    Shapes: (items, labels), (items,). The loss is convex in 1/temperature, so its slope has one root, found by
    bisection. Source: Guo et al. 2017, "On Calibration of Modern Neural Networks".
    """
    rows, truth = np.asarray(logits, dtype=np.float64), np.asarray(targets, dtype=np.int64)
    if not len(truth) or not np.isfinite(rows).all():
        reason = "the logits are not finite" if len(truth) else "no evaluation examples"
        return Temperature(1.0, f"not fitted: {reason}")
    if (rows.argmax(axis=1) == truth).all():
        return Temperature(
            1.0, f"not fitted: all {len(truth)} evaluation examples are right, any confidence suits them"
        )
    low, high = (1 / bound for bound in reversed(_TEMPERATURES))
    for _ in range(60):  # halves a range of 2^9 to below one unit in the last place
        middle = math.sqrt(low * high)
        low, high = (low, middle) if _slope(rows, truth, middle) > 0 else (middle, high)
    value = 1 / math.sqrt(low * high)
    return Temperature(value, f"least log loss on {len(truth)} evaluation examples")


def choose_threshold(probabilities: Array, targets: Array, *, background: int) -> float:
    """The least score at which a label should be given, from examples that were not trained on.

    It maximises the share of right answers that are given plus the share of background texts without an answer.

    Shapes: (texts, labels), (texts).

    Args:
        background: the class of texts that belong to none of the labels.
    """
    of_labels = np.delete(probabilities, background, axis=1)
    labels = np.delete(np.arange(probabilities.shape[1]), background)
    best, score = labels[of_labels.argmax(axis=1)], of_labels.max(axis=1)
    right, foreign = np.sort(score[best == targets]), np.sort(score[targets == background])
    if not (len(right) and len(foreign)):
        return 0.0
    candidates = np.unique(np.concatenate([right, foreign]))
    answered = 1 - np.searchsorted(right, candidates) / len(right)
    refused = np.searchsorted(foreign, candidates) / len(foreign)
    return float(candidates[np.argmax(answered + refused)])


def _slope(rows: Array, truth: Array, inverse: float) -> float:
    """Derivative of the log loss at 1/temperature ``inverse``: expected minus true logit."""
    expected = (softmax(rows * inverse) * rows).sum(axis=1)
    return float((expected - rows[np.arange(len(truth)), truth]).mean())
