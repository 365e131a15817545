"""Metrics of classification, entities, similarity, retrieval and calibration; undefined ones are named, never 0.

A measure that is not defined (a class without examples, a constant score) is left out of ``Report.scores`` and named
in ``Report.undefined`` with the reason, so that no NaN reaches early stopping and no invented 0 reaches a model card.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from seqeval.metrics import classification_report

from backend.errors import BadData
from backend.models.calibration import log_loss, softmax

Array = NDArray[Any]
ECE_BINS = 15  # as in Guo et al. 2017, "On Calibration of Modern Neural Networks"
CUTOFFS = (1, 5, 10)
_NO_EXAMPLES = "no evaluation examples"


@dataclass(frozen=True, slots=True)
class ClassScore:
    """One class or entity type. None where 0 would be divided by 0."""

    label: str
    precision: float | None
    recall: float | None
    f1: float | None
    support: int  # examples or entities in the evaluation data


@dataclass(frozen=True, slots=True)
class Report:
    """The metrics of an evaluation."""

    scores: Mapping[str, float] = field(default_factory=dict)  # finite only; what Task.evaluate returns
    undefined: Mapping[str, str] = field(default_factory=dict)  # metric -> why it is undefined here
    per_class: tuple[ClassScore, ...] = ()
    labels: tuple[str, ...] = ()  # of the confusion's rows and columns
    confusion: tuple[tuple[int, ...], ...] = ()  # [true][predicted], examples


def classification_scores(logits: Array, targets: Array, labels: Sequence[str]) -> Report:
    """Accuracy, macro F1, log loss and calibration error of one class per example.

    Shapes: logits (items, labels) float, targets (items,) int. The macro mean is over classes that have examples.
    A row that is not finite has no prediction: it counts as wrong, and log loss and calibration are undefined.

    Scores: accuracy, macro_f1, log_loss, ece. Goal: "macro_f1" or "accuracy".
    """
    rows, truth = np.asarray(logits, dtype=np.float64), np.asarray(targets, dtype=np.int64)
    if not len(truth):
        return Report(undefined=dict.fromkeys(("accuracy", "macro_f1", "log_loss", "ece"), _NO_EXAMPLES))
    finite = np.isfinite(rows).all(axis=1)
    predicted = np.where(finite, np.argmax(np.where(np.isfinite(rows), rows, -np.inf), axis=1), -1)
    confusion = np.zeros((len(labels), len(labels)), dtype=np.int64)
    np.add.at(confusion, (truth[finite], predicted[finite]), 1)
    support = np.bincount(truth, minlength=len(labels))
    per_class = _per_class(labels, np.diag(confusion), confusion.sum(axis=0), support)
    scores = {"accuracy": float((predicted == truth).mean()), "macro_f1": _macro(per_class)}
    undefined = _absent(per_class)
    if finite.all():
        probabilities = softmax(rows)
        scores |= {"log_loss": log_loss(rows, truth), "ece": expected_calibration_error(probabilities, truth)}
    else:
        broken = f"{int((~finite).sum())} of {len(truth)} predictions are not finite"
        undefined |= {"log_loss": broken, "ece": broken}
    table = tuple(tuple(int(count) for count in row) for row in confusion)
    return Report(scores, undefined, per_class, tuple(labels), table)


def multi_label_scores(probabilities: Array, targets: Array, labels: Sequence[str]) -> Report:
    """Micro and macro F1 and exact match ratio of multi-label predictions.

    Shapes: both (items, labels); targets 0 or 1. A probability that is not finite counts as below one half.
    Scores: micro_f1, macro_f1, exact_match. Goal: "micro_f1".
    """
    truth = np.asarray(targets).astype(bool)
    if not len(truth):
        return Report(undefined=dict.fromkeys(("micro_f1", "macro_f1", "exact_match"), _NO_EXAMPLES))
    chosen = np.nan_to_num(np.asarray(probabilities, dtype=np.float64), nan=-1.0) >= 0.5
    correct, predicted, support = (chosen & truth).sum(axis=0), chosen.sum(axis=0), truth.sum(axis=0)
    per_class = _per_class(labels, correct, predicted, support)
    scores, undefined = {"exact_match": float((chosen == truth).all(axis=1).mean())}, _absent(per_class)
    if support.any():
        micro = 2 * correct.sum() / (predicted.sum() + support.sum())
        scores |= {"micro_f1": float(micro), "macro_f1": _macro(per_class)}
    else:
        undefined |= dict.fromkeys(("micro_f1", "macro_f1"), "no evaluation example has a label")
    return Report(scores, undefined, per_class, tuple(labels))


def entity_scores(expected: Sequence[Sequence[str]], actual: Sequence[Sequence[str]]) -> Report:
    """Precision, recall and F1 of whole entities, exact in type and boundaries, by seqeval: an I- may begin one.

    Args:
        expected, actual: BIO tags of each sentence's tokens, equally long.

    Scores: f1, precision, recall (micro) and macro_f1. Goal: "f1". Raises: BadData when the lengths differ.
    """
    for number, (expected_tags, actual_tags) in enumerate(zip(expected, actual, strict=True)):
        if len(expected_tags) != len(actual_tags):
            raise BadData(f"sentence {number}: {len(expected_tags)} expected tags, {len(actual_tags)} predicted ones")
    names = ("f1", "precision", "recall", "macro_f1")
    tags = [tag for sentence in expected for tag in sentence]
    if all(tag == "O" for tag in tags):
        return Report(undefined=dict.fromkeys(names, "no entity in the evaluation data" if tags else _NO_EXAMPLES))
    sentences = [list(sentence) for sentence in expected], [list(sentence) for sentence in actual]
    table = dict(classification_report(*sentences, output_dict=True, zero_division=0))
    per_class = tuple(_entity_score(name, row) for name, row in table.items() if not name.endswith(" avg"))
    micro = table["micro avg"]
    scores = {"f1": float(micro["f1-score"]), "recall": float(micro["recall"]), "macro_f1": _macro(per_class)}
    undefined = _absent(per_class)
    if any(tag != "O" for sentence in actual for tag in sentence):
        scores["precision"] = float(micro["precision"])
    else:
        undefined["precision"] = "no entity was predicted"
    return Report(scores, undefined, per_class)


def correlation_scores(expected: Array, actual: Array) -> Report:
    """Spearman's and Pearson's correlation of predicted with expected scores, each (items,). Goal: "spearman"."""
    truth, predicted = np.asarray(expected, dtype=np.float64), np.asarray(actual, dtype=np.float64)
    names = ("spearman", "pearson")
    for name, values in (("expected", truth), ("predicted", predicted)):
        if len(values) < 2:
            return Report(undefined=dict.fromkeys(names, f"{len(values)} evaluation examples; at least 2 are needed"))
        if not np.isfinite(values).all():
            return Report(undefined=dict.fromkeys(names, f"{name} scores are not finite"))
        if np.ptp(values) == 0:
            return Report(undefined=dict.fromkeys(names, f"all {name} scores are equal"))
    pairs = {"spearman": (_ranks(truth), _ranks(predicted)), "pearson": (truth, predicted)}
    return Report({name: float(np.corrcoef(*pair)[0, 1]) for name, pair in pairs.items()})


def rank(queries: Array, documents: Array, k: int = max(CUTOFFS), *, block: int = 1024) -> list[list[int]]:
    """Indices of the ``k`` documents nearest to each query, best first, by dot product; ties by index.

    Shapes: (queries, width), (documents, width) -> lists of min(k, documents). Scores ``block`` queries at once.
    """
    rankings: list[list[int]] = []
    for first in range(0, len(queries), block):
        similarity = np.asarray(queries[first : first + block]) @ np.asarray(documents).T
        rankings += np.argsort(-similarity, axis=1, kind="stable")[:, :k].tolist()
    return rankings


def retrieval_scores(
    ranked: Sequence[Sequence[int]], relevant: Sequence[Collection[int]], *, cutoffs: Sequence[int] = CUTOFFS
) -> Report:
    """Recall at each cutoff, and MRR and nDCG at the largest, of documents ranked best first. Goal: "mrr@10".

    Queries without a relevant document are left out; ``undefined`` names how many.
    """
    pairs = [(list(ranking), set(wanted)) for ranking, wanted in zip(ranked, relevant, strict=True) if wanted]
    k = max(cutoffs)
    names = [f"mrr@{k}", f"ndcg@{k}", *(f"recall@{cut}" for cut in cutoffs)]
    if not pairs:
        return Report(undefined=dict.fromkeys(names, "no query has a relevant document"))
    scores = {
        f"mrr@{k}": float(np.mean([_reciprocal_rank(ranking[:k], wanted) for ranking, wanted in pairs])),
        f"ndcg@{k}": float(np.mean([_ndcg(ranking[:k], wanted, k) for ranking, wanted in pairs])),
    }
    for cut in cutoffs:
        shares = [len(wanted.intersection(ranking[:cut])) / len(wanted) for ranking, wanted in pairs]
        scores[f"recall@{cut}"] = float(np.mean(shares))
    left_out = len(relevant) - len(pairs)
    undefined = {"queries": f"{left_out} without a relevant document were left out"} if left_out else {}
    return Report(scores, undefined)


def expected_calibration_error(probabilities: Array, targets: Array) -> float:
    """Mean gap between confidence and accuracy over bins of equal width, weighted by their examples; 0 is best.

    Shapes: (items, labels), (items,); at least one item.
    """
    confidence, is_correct = probabilities.max(axis=1), probabilities.argmax(axis=1) == targets
    bin_index = np.clip(np.ceil(confidence * ECE_BINS).astype(int) - 1, 0, ECE_BINS - 1)
    gaps = np.bincount(bin_index, weights=confidence - is_correct, minlength=ECE_BINS)
    return float(np.abs(gaps).sum() / len(targets))


def _per_class(labels: Sequence[str], correct: Array, predicted: Array, support: Array) -> tuple[ClassScore, ...]:
    return tuple(
        ClassScore(
            label,
            _ratio(correct[index], predicted[index]),
            _ratio(correct[index], support[index]),
            _ratio(2 * correct[index], predicted[index] + support[index]) if support[index] else None,
            int(support[index]),
        )
        for index, label in enumerate(labels)
    )


def _ratio(numerator: Any, denominator: Any) -> float | None:
    return float(numerator / denominator) if denominator else None


def _macro(per_class: Sequence[ClassScore]) -> float:
    return float(np.mean([score.f1 for score in per_class if score.f1 is not None]))


def _absent(per_class: Sequence[ClassScore]) -> dict[str, str]:
    return {f"f1[{score.label}]": "no evaluation example of it" for score in per_class if score.f1 is None}


def _entity_score(name: str, row: Mapping[str, Any]) -> ClassScore:
    support = int(row["support"])
    recall, f1 = (float(row["recall"]), float(row["f1-score"])) if support else (None, None)
    return ClassScore(name, float(row["precision"]), recall, f1, support)


def _ranks(values: Array) -> Array:
    """Ranks in ascending order; equal values share their mean rank."""
    _, index, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray(np.cumsum(counts) - (counts - 1) / 2)[index]


def _reciprocal_rank(ranking: Sequence[int], relevant: Collection[int]) -> float:
    return next((1 / (position + 1) for position, document in enumerate(ranking) if document in relevant), 0.0)


def _ndcg(ranking: Sequence[int], relevant: Collection[int], k: int) -> float:
    gains = [1 / math.log2(position + 2) for position, document in enumerate(ranking) if document in relevant]
    return sum(gains) / sum(1 / math.log2(position + 2) for position in range(min(len(relevant), k)))
