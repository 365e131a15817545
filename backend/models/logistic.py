"""Fits logistic heads on frozen vectors: features, penalty, calibration and abstention by cross-validation.

Shared by training and by the classifiers trained at run time. Deterministic: equal examples in equal order, equal head.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.abandoned import require_wanted
from backend.models.calibration import Temperature, choose_threshold, fit_temperature, log_loss, sigmoid, softmax
from backend.models.features import Gate, WideFeatures, gram_scale, wide_features

Array = NDArray[Any]
PENALTIES = (1000.0, 300.0, 100.0, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1)  # strongest first: each starts from the one before
# Where examples are too few to choose by. With 1 to 8 texts of each of SIB-200's topics or Banking77's intents accuracy
# is the same within a point from 1 to 30, and log loss falls towards 1: 3 errs on the modest side.
DEFAULT_PENALTY = 3.0
MULTI_LABEL_THRESHOLD = 0.5  # with several labels a text, each label on its own
WIDE_TEXTS_MAX = 3000  # the rotation of more texts takes minutes, and they need n-grams less
WIDE_LABELS_MAX = 24  # each takes 32 KiB of table
_WORTH = 0.98  # of the folds' loss: a smaller gain is not worth a larger head
_FOLDS = 5
_CHOSEN_ON_MAX = 2000  # examples the penalty is chosen on; more change the choice rarely and cost minutes
_FEW = 5  # examples of the median label; below, folds say more about luck than about the penalty
_TOO_FEW = Temperature(1.0, "not fitted: too few examples")
_MULTI_LABEL = Temperature(1.0, "not fitted where a text may have several classes")
_ITERATIONS = 300
_TOLERANCE = 1e-5  # of the gradient of the mean loss


@dataclass(frozen=True, slots=True)
class FittedHead:
    """A fitted, calibrated head. float64."""

    weight: Array  # (labels, width)
    bias: Array  # (labels)
    penalty: float  # 1 / variance of the weights' prior, for vectors of mean square 1
    temperature: Temperature  # already divided into all weights and the bias
    threshold: float  # least score at which a label is given
    accuracy: float | None  # on the folds, of one label a text; None where there were no folds
    loss: float  # mean over the examples, penalty left out, before calibration
    iterations: int
    gate: Gate | None = None  # with it ``gated`` (labels, width) and ``table`` (labels, places of grams)
    gated: Array | None = None
    table: Array | None = None


def fit_head(
    vectors: Array,
    targets: Array,
    *,
    labels: int,
    texts: Sequence[str] = (),
    groups: Sequence[Hashable] = (),
    class_weights: Array | None = None,
    background: int | None = None,
) -> FittedHead:
    """The head of greatest posterior probability under a normal prior on the weights.

    The penalty is the one of ``PENALTIES`` with the least log loss on folds of the examples; the temperature and the
    threshold come from the same folds, never from examples that were fitted on. With fewer than five examples of the
    median label there are no folds: ``DEFAULT_PENALTY``, no temperature, and a threshold of 0. The threshold is 0 too
    without a background, whose texts show what a foreign text scores.

    Shapes: vectors (texts, width); targets (texts) int64, or (texts, labels) of 0 and 1 with several labels a text;
    class_weights (labels): of a text's class, or of the true side with several labels a text.

    Args:
        texts: where given, at most ``WIDE_TEXTS_MAX`` and of at most ``WIDE_LABELS_MAX`` labels, the gated copy of the
            vector and the texts' n-grams (``models/features``) are tried too, and kept where the folds' loss falls.
        groups: texts of equal group stay in one fold, such as translations of one text.
        background: the class of texts that belong to none of the others. It is fitted like any other, and the
            threshold then weighs right answers to texts of the others against answers to texts of the background.
    """
    truth, weights = _rows(targets, labels), _item_weights(targets, labels, class_weights)
    size, multi_label = _size(vectors), targets.ndim > 1
    scaled = np.asarray(vectors, dtype=np.float64) / size
    plain = _Problem(scaled, truth, weights, multi_label)
    folds = _folds(targets, groups) if _enough(targets) else []
    if not folds:
        solved = plain.solve(np.arange(len(vectors)), DEFAULT_PENALTY)
        threshold = MULTI_LABEL_THRESHOLD if multi_label else 0.0
        return _finished(solved, size, DEFAULT_PENALTY, _TOO_FEW, threshold=threshold)
    chosen, problem, wide = plain.choose_penalty(folds, targets), plain, None
    if 0 < len(texts) <= WIDE_TEXTS_MAX and labels <= WIDE_LABELS_MAX:
        features = wide_features(scaled, texts)
        wide_problem = replace(plain, rows=features.rows)
        candidate = wide_problem.choose_penalty(folds, targets)
        if candidate.loss < _WORTH * chosen.loss:
            chosen, problem, wide = candidate, wide_problem, features
    solved = problem.solve(np.arange(len(vectors)), chosen.penalty)
    if multi_label:
        return _finished(solved, size, chosen.penalty, _MULTI_LABEL, threshold=MULTI_LABEL_THRESHOLD, wide=wide)
    held_out = targets[np.concatenate(folds)]
    temperature = fit_temperature(chosen.logits, held_out)
    scores = softmax(chosen.logits, temperature.value)
    return _finished(
        solved,
        size,
        chosen.penalty,
        temperature,
        threshold=0.0 if background is None else choose_threshold(scores, held_out, background=background),
        accuracy=float((scores.argmax(axis=1) == held_out).mean()),
        wide=wide,
    )


@dataclass(frozen=True, slots=True)
class _Solved:
    weight: Array  # (labels, features)
    bias: Array  # (labels)
    loss: float
    iterations: int


@dataclass(frozen=True, slots=True)
class _Chosen:
    penalty: float
    loss: float  # mean, on the held-out folds
    logits: Array  # of those, fold after fold


@dataclass(frozen=True, slots=True)
class _Problem:
    """The features of the texts, the true side of every label, and their weights. All float64."""

    rows: Array  # (texts, features)
    truth: Array  # (texts, labels) of 0 and 1
    weights: Array  # (texts, 1) or, with several labels a text, (texts, labels)
    multi_label: bool

    def solve(self, items: Array, penalty: float, start: _Solved | None = None) -> _Solved:
        """The head of least summed loss plus ``penalty / 2`` times the squared weights; biases are not penalised."""
        from scipy.optimize import minimize  # slow to import, and serving does not need it

        rows, truth, weights = self.rows[items], self.truth[items], self.weights[items]
        labels, width, total = truth.shape[1], rows.shape[1], float(len(items))

        def loss(flat: Array) -> tuple[float, Array]:
            require_wanted()
            head = flat.reshape(labels, width + 1)
            value, slope = self._loss(rows @ head[:, :-1].T + head[:, -1], truth, weights)
            gradient = np.empty_like(head)
            gradient[:, :-1] = slope.T @ rows
            gradient[:, :-1] += penalty * head[:, :-1]
            gradient[:, -1] = slope.sum(axis=0)
            value += penalty / 2 * float(np.square(head[:, :-1]).sum())
            return value / total, gradient.ravel() / total

        first = np.zeros((labels, width + 1))
        if start is not None:
            first = np.hstack([start.weight, start.bias[:, None]])
        options = {"maxiter": _ITERATIONS, "gtol": _TOLERANCE, "ftol": 1e-10, "maxcor": 20}
        result = minimize(loss, first.ravel(), jac=True, method="L-BFGS-B", options=options)
        head = result.x.reshape(labels, width + 1)
        penalised = penalty / 2 * float(np.square(head[:, :-1]).sum()) / total
        return _Solved(head[:, :-1], head[:, -1], float(result.fun) - penalised, int(result.nit))

    def choose_penalty(self, folds: Sequence[Array], targets: Array) -> _Chosen:
        """The penalty of least loss on the held-out folds.

        Tries the strongest first and stops at the first that is worse than the one before: the loss has one minimum.
        """
        items = np.concatenate(folds)
        every = np.arange(len(self.truth)) if len(self.truth) <= _CHOSEN_ON_MAX else items
        others = [np.setdiff1d(every, fold) for fold in folds]
        best: _Chosen | None = None
        starts: list[_Solved | None] = [None] * len(folds)
        for penalty in PENALTIES:
            solved = [self.solve(training, penalty, start) for training, start in zip(others, starts, strict=True)]
            logits = np.concatenate(
                [self.rows[fold] @ head.weight.T + head.bias for fold, head in zip(folds, solved, strict=True)]
            )
            current = _Chosen(penalty, self._mean_loss(logits, targets[items]), logits)
            if best is not None and current.loss >= best.loss:
                break
            best, starts = current, list(solved)
        assert best is not None
        return best

    def _loss(self, logits: Array, truth: Array, weights: Array) -> tuple[float, Array]:
        """The summed loss and its gradient in the logits."""
        if self.multi_label:
            # -log sigmoid(z) where true, -log sigmoid(-z) where not, the true side weighted.
            value = float((np.logaddexp(0, np.where(truth > 0, -logits, logits)) * weights).sum())
            return value, (sigmoid(logits) - truth) * weights
        logits -= logits.max(axis=1, keepdims=True)
        powers = np.exp(logits)
        sums = powers.sum(axis=1, keepdims=True)
        value = float(((np.log(sums) - (logits * truth).sum(axis=1, keepdims=True)) * weights).sum())
        powers /= sums
        powers -= truth
        powers *= weights
        return value, powers

    def _mean_loss(self, logits: Array, targets: Array) -> float:
        if self.multi_label:
            return float(np.logaddexp(0, np.where(targets > 0, -logits, logits)).mean())
        return log_loss(logits, targets)


def _size(vectors: Array) -> float:
    """Divided by it the vectors have mean square 1, so that a penalty means the same for every encoder."""
    return float(np.sqrt(np.square(np.asarray(vectors, dtype=np.float64)).mean())) or 1.0


def _rows(targets: Array, labels: int) -> Array:
    if targets.ndim > 1:
        return targets.astype(np.float64)
    rows = np.zeros((len(targets), labels))
    rows[np.arange(len(targets)), targets] = 1
    return rows


def _item_weights(targets: Array, labels: int, class_weights: Array | None) -> Array:
    """The weight of each text, their mean 1; or of the true side of each label."""
    weights = np.ones(labels) if class_weights is None else np.asarray(class_weights, dtype=np.float64)
    if targets.ndim > 1:
        return np.where(targets > 0, weights, 1.0)
    of_items = weights[targets][:, None]
    return np.asarray(of_items / of_items.mean())


def _enough(targets: Array) -> bool:
    counts = targets.sum(axis=0) if targets.ndim > 1 else np.bincount(targets)
    present = counts[counts > 0]
    return len(present) > 0 and float(np.median(present)) >= _FEW


def _folds(targets: Array, groups: Sequence[Hashable]) -> list[Array]:
    """Indices of the texts in stratified folds: each has its share of each class, each group is in one fold.

    A class with one text is in no fold: a head fitted without it could not predict it.
    """
    order = np.random.default_rng(0).permutation(len(targets))
    known: dict[Hashable, int] = {}
    number = np.array([known.setdefault(groups[item], len(known)) if groups else item for item in range(len(targets))])
    if targets.ndim > 1:
        order = order[np.lexsort(targets[order].T)]
    else:
        order = order[np.bincount(targets)[targets[order]] > 1]
        order = order[np.argsort(targets[order], kind="stable")]
    first = np.unique(number[order], return_index=True)[1]
    leaders = order[np.sort(first)]  # one text a group, class after class
    step = max(1, -(-len(order) // _CHOSEN_ON_MAX))
    place = {number[item]: rank // step % _FOLDS for rank, item in enumerate(leaders) if rank % step == 0}
    fold_of = np.array([place.get(number[item], -1) for item in order])
    return [order[fold_of == fold] for fold in range(_FOLDS) if (fold_of == fold).any()]


def _finished(
    solved: _Solved,
    size: float,
    penalty: float,
    temperature: Temperature,
    *,
    threshold: float,
    accuracy: float | None = None,
    wide: WideFeatures | None = None,
) -> FittedHead:
    """Scale and temperature are divided into the weights, so that their products are calibrated logits."""
    dense, table = (solved.weight, None) if wide is None else wide.lift(solved.weight)
    width = dense.shape[1] // (1 if wide is None else 2)
    dense = dense / (size * temperature.value)
    return FittedHead(
        weight=dense[:, :width],
        bias=solved.bias / temperature.value,
        penalty=penalty,
        temperature=temperature,
        threshold=threshold,
        accuracy=accuracy,
        loss=solved.loss,
        iterations=solved.iterations,
        gate=None if wide is None else wide.gate.of_unit(size),
        gated=None if wide is None else dense[:, width:],
        table=None if table is None else table * (gram_scale(width) / temperature.value),
    )
