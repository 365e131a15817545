"""The field's measures of classes, entities, similarity, retrieval and confidence; what has no value is named, never 0.

A measure that is not defined (a class without examples, a constant score) is left out of ``Report.scores`` and named
in ``Report.undefined`` with the reason, so that no NaN reaches early stopping and no invented 0 reaches a model card.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from seqeval.metrics import classification_report as lenient_report
from seqeval.metrics.v1 import classification_report as strict_report
from seqeval.scheme import IOB2

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
    """What an evaluation found."""

    scores: Mapping[str, float] = field(default_factory=dict)  # finite ones only; what Task.evaluate returns
    undefined: Mapping[str, str] = field(default_factory=dict)  # measure -> why it has no value here
    per_class: tuple[ClassScore, ...] = ()
    labels: tuple[str, ...] = ()  # of the confusion's rows and columns
    confusion: tuple[tuple[int, ...], ...] = ()  # [true][predicted], examples


def classification_scores(logits: Array, targets: Array, labels: Sequence[str]) -> Report:
    """Accuracy, macro F1, log loss and calibration error of one class per example.

    Shapes: logits (items, labels) float, targets (items,) int. The macro mean is over classes that have examples.
    A row that is not finite predicts nothing: it counts as wrong, and log loss and calibration are undefined.

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


def multi_label_scores(
    probabilities: Array, targets: Array, labels: Sequence[str], *, threshold: float = 0.5
) -> Report:
    """Micro and macro F1 and exact matches where an example has any number of classes.

    Shapes: both (items, labels); targets 0 or 1. A probability that is not finite predicts nothing.
    Scores: micro_f1, macro_f1, exact_match. Goal: "micro_f1".
    """
    truth = np.asarray(targets).astype(bool)
    if not len(truth):
        return Report(undefined=dict.fromkeys(("micro_f1", "macro_f1", "exact_match"), _NO_EXAMPLES))
    chosen = np.nan_to_num(np.asarray(probabilities, dtype=np.float64), nan=-1.0) >= threshold
    right, said, support = (chosen & truth).sum(axis=0), chosen.sum(axis=0), truth.sum(axis=0)
    per_class = _per_class(labels, right, said, support)
    scores, undefined = {"exact_match": float((chosen == truth).all(axis=1).mean())}, _absent(per_class)
    if support.any():
        micro = 2 * right.sum() / (said.sum() + support.sum())
        scores |= {"micro_f1": float(micro), "macro_f1": _macro(per_class)}
    else:
        undefined |= dict.fromkeys(("micro_f1", "macro_f1"), "no evaluation example has a label")
    return Report(scores, undefined, per_class, tuple(labels))


def entity_scores(
    expected: Sequence[Sequence[str]],
    actual: Sequence[Sequence[str]],
    *,
    scheme: Literal["conll", "IOB2"] = "conll",
) -> Report:
    """Precision, recall and F1 of whole entities, type and both ends right, by seqeval.

    Args:
        expected, actual: BIO tags of each sentence's tokens, equally long.
        scheme: "conll" reads tags as conlleval does (an I- may open an entity); "IOB2" takes B- alone as an opening.

    Scores: f1, precision, recall (micro) and macro_f1. Goal: "f1". Raises: BadData when the lengths differ.
    """
    for number, (one, other) in enumerate(zip(expected, actual, strict=True)):
        if len(one) != len(other):
            raise BadData(f"sentence {number}: {len(one)} expected tags, {len(other)} predicted ones")
    names = ("f1", "precision", "recall", "macro_f1")
    tags = [tag for sentence in expected for tag in sentence]
    if all(tag == "O" for tag in tags):
        return Report(undefined=dict.fromkeys(names, "no entity in the evaluation data" if tags else _NO_EXAMPLES))
    table = _seqeval(expected, actual, scheme)
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
    """Spearman's and Pearson's correlation of scores with judgements, each (items,). Goal: "spearman"."""
    truth, said = np.asarray(expected, dtype=np.float64), np.asarray(actual, dtype=np.float64)
    names = ("spearman", "pearson")
    for name, values in (("expected", truth), ("predicted", said)):
        if len(values) < 2:
            return Report(undefined=dict.fromkeys(names, f"{len(values)} evaluation examples; at least 2 are needed"))
        if not np.isfinite(values).all():
            return Report(undefined=dict.fromkeys(names, f"{name} scores are not finite"))
        if np.ptp(values) == 0:
            return Report(undefined=dict.fromkeys(names, f"all {name} scores are equal"))
    pairs = {"spearman": (_ranks(truth), _ranks(said)), "pearson": (truth, said)}
    return Report({name: float(np.corrcoef(*pair)[0, 1]) for name, pair in pairs.items()})


def rank(queries: Array, documents: Array, k: int = max(CUTOFFS), *, block: int = 1024) -> list[list[int]]:
    """Positions of the ``k`` documents nearest to each query, best first, by dot product; ties by position.

    Shapes: (queries, width), (documents, width) -> lists of min(k, documents). ``block`` queries are scored at once.
    """
    found: list[list[int]] = []
    for first in range(0, len(queries), block):
        similarity = np.asarray(queries[first : first + block]) @ np.asarray(documents).T
        found += np.argsort(-similarity, axis=1, kind="stable")[:, :k].tolist()
    return found


def retrieval_scores(
    ranked: Sequence[Sequence[int]], relevant: Sequence[Collection[int]], *, cutoffs: Sequence[int] = CUTOFFS
) -> Report:
    """Recall at each cutoff, and MRR and nDCG at the largest, of documents ranked best first.

    Queries that nothing is relevant to say nothing and are left out; how many is named. Goal: "mrr@10".
    """
    pairs = [(list(found), set(wanted)) for found, wanted in zip(ranked, relevant, strict=True) if wanted]
    k = max(cutoffs)
    names = [f"mrr@{k}", f"ndcg@{k}", *(f"recall@{cut}" for cut in cutoffs)]
    if not pairs:
        return Report(undefined=dict.fromkeys(names, "no query has a relevant document"))
    scores = {
        f"mrr@{k}": float(np.mean([_reciprocal_rank(found[:k], wanted) for found, wanted in pairs])),
        f"ndcg@{k}": float(np.mean([_ndcg(found[:k], wanted, k) for found, wanted in pairs])),
    }
    for cut in cutoffs:
        shares = [len(wanted.intersection(found[:cut])) / len(wanted) for found, wanted in pairs]
        scores[f"recall@{cut}"] = float(np.mean(shares))
    left_out = len(relevant) - len(pairs)
    undefined = {"queries": f"{left_out} without a relevant document were left out"} if left_out else {}
    return Report(scores, undefined)


def expected_calibration_error(probabilities: Array, targets: Array, *, bins: int = ECE_BINS) -> float:
    """How far confidence is from accuracy: mean over equally wide bins, weighted by their examples; 0 is best.

    Shapes: (items, labels), (items,); at least one item.
    """
    confidence, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == targets
    place = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
    gaps = np.bincount(place, weights=confidence - right, minlength=bins)
    return float(np.abs(gaps).sum() / len(targets))


def _per_class(labels: Sequence[str], right: Array, said: Array, support: Array) -> tuple[ClassScore, ...]:
    return tuple(
        ClassScore(
            label,
            _ratio(right[index], said[index]),
            _ratio(right[index], support[index]),
            _ratio(2 * right[index], said[index] + support[index]) if support[index] else None,
            int(support[index]),
        )
        for index, label in enumerate(labels)
    )


def _ratio(part: Any, whole: Any) -> float | None:
    return float(part / whole) if whole else None


def _macro(per_class: Sequence[ClassScore]) -> float:
    return float(np.mean([one.f1 for one in per_class if one.f1 is not None]))


def _absent(per_class: Sequence[ClassScore]) -> dict[str, str]:
    return {f"f1[{one.label}]": "no evaluation example of it" for one in per_class if one.f1 is None}


def _seqeval(expected: Any, actual: Any, scheme: str) -> dict[str, Any]:
    tags = [list(one) for one in expected], [list(one) for one in actual]
    if scheme == "IOB2":
        return dict(strict_report(*tags, scheme=IOB2, output_dict=True, zero_division=0))
    return dict(lenient_report(*tags, output_dict=True, zero_division=0))


def _entity_score(name: str, row: Mapping[str, Any]) -> ClassScore:
    support = int(row["support"])
    recall, f1 = (float(row["recall"]), float(row["f1-score"])) if support else (None, None)
    return ClassScore(name, float(row["precision"]), recall, f1, support)


def _ranks(values: Array) -> Array:
    """Places in ascending order; equal values share the mean of theirs."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray(np.cumsum(counts) - (counts - 1) / 2)[place]


def _reciprocal_rank(found: Sequence[int], wanted: Collection[int]) -> float:
    return next((1 / (place + 1) for place, document in enumerate(found) if document in wanted), 0.0)


def _ndcg(found: Sequence[int], wanted: Collection[int], k: int) -> float:
    gains = [1 / math.log2(place + 2) for place, document in enumerate(found) if document in wanted]
    return sum(gains) / sum(1 / math.log2(place + 2) for place in range(min(len(wanted), k)))
