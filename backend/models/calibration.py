"""Calibrated scores: from logits (softmax, temperature scaling, abstention threshold) and from cosines."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.models import numpy_layers

Array = NDArray[Any]
_TEMPERATURES = (0.05, 20.0)  # outside this range a softmax is one-hot or uniform
_MIN_RANGE = 1e-6  # between unrelated and equal texts, of a model for which all texts are alike
# Fitted to STS-B's training pairs, Spanish and English. Root mean square error on the other pairs (scores 0 to 1, en;
# es): multilingual-e5-small 0.153; 0.160, all-MiniLM-L6-v2 0.154; 0.224. The cosines themselves: 0.486; 0.505 and
# 0.178; 0.300.
_LIKENESS_ODDS = 1.5
# Fitted to half the questions of XQuAD and TAT-QA. On the other half 0.5 is reached with multilingual-e5-small by 0.99
# of the right paragraphs in English, 1.00 in Spanish, 0.77 of English ones for Spanish questions, 0.91 in TAT-QA's
# reports; and by 0.02, 0.06, 0.01 and 0.27 of the other paragraphs. With all-MiniLM-L6-v2 in English 0.95 and 0.02.
_RELEVANCE_MIDDLE, _RELEVANCE_SLOPE = 0.2, 12.0
# The same for cosines of tokens: 0.5 is reached by 0.99 of the right paragraphs in English and Spanish, by 0.88 in
# TAT-QA's reports; and by 0.00, 0.03 and 0.08 of the others. Calibration error 0.03, 0.04 and 0.05.
_TOKEN_RELEVANCE_MIDDLE, _TOKEN_RELEVANCE_SLOPE = 0.31, 16.6
# The same where the bundled encoder's query is turned, fitted to documents that neither taught nor are measured here:
# 0.5 is reached by 0.99, 0.99 and 0.86 of the right ones, by 0.01, 0.01 and 0.08 of the others. Calibration error
# 0.02, 0.03 and 0.05 (0.04, 0.06 and 0.08 with the constants above).
_TURNED_RELEVANCE_MIDDLE, _TURNED_RELEVANCE_SLOPE = 0.253, 20.2


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


def relative_cosines(cosines: Array, unrelated: float) -> Array:
    """Cosines on the scale from unrelated texts (0) to equal ones (1); below 0 for texts even less alike.

    The scale of one encoder then suits another: unrelated texts have 0.79 with multilingual-e5-small, 0.15 with
    all-MiniLM-L6-v2.

    Args:
        unrelated: the mean cosine of unrelated texts with this encoder.
    """
    relative: Array = (np.asarray(cosines, dtype=np.float64) - unrelated) / max(1 - unrelated, _MIN_RANGE)
    return relative


def likeness(cosines: Array, unrelated: float) -> Array:
    """How alike people would find two texts: 0 nothing in common, 1 the same meaning. Increases with the cosine.

    The estimate of STS-B's human score, divided by 5. ``unrelated``: as for ``relative_cosines``.
    """
    relative = np.clip(relative_cosines(cosines, unrelated), 0.0, 1.0)
    scores: Array = relative / (_LIKENESS_ODDS - (_LIKENESS_ODDS - 1) * relative)
    return scores


def relevance(cosines: Array, unrelated: float) -> Array:
    """How likely a document answers a query, if as many documents do as do not. Increases with the cosine.

    ``unrelated``: as for ``relative_cosines``, with the prompts of query and document.
    """
    return sigmoid(_RELEVANCE_SLOPE * (relative_cosines(cosines, unrelated) - _RELEVANCE_MIDDLE))


def relevance_by_tokens(cosines: Array, unrelated: float) -> Array:
    """The same by cosines of tokens (`text.late_interaction`); ``unrelated``: the mean of theirs."""
    return sigmoid(_TOKEN_RELEVANCE_SLOPE * (relative_cosines(cosines, unrelated) - _TOKEN_RELEVANCE_MIDDLE))


def relevance_by_turned_tokens(scores: Array, unrelated: float) -> Array:
    """The same where the query's tokens were turned by the layer of `text.late_interaction`."""
    return sigmoid(_TURNED_RELEVANCE_SLOPE * (relative_cosines(scores, unrelated) - _TURNED_RELEVANCE_MIDDLE))


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
