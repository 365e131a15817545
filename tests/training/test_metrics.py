"""The field's measures: equal to the field's own tools, undefined cases named, never a NaN."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import pearsonr, spearmanr
from sklearn import metrics as sklearn
from sklearn.exceptions import UndefinedMetricWarning

from backend.errors import BadData
from backend.models.calibration import softmax
from backend.training.metrics import (
    classification_scores,
    correlation_scores,
    entity_scores,
    expected_calibration_error,
    multi_label_scores,
    rank,
    retrieval_scores,
)

LABELS = ("invoice", "letter", "form", "contract")


def drawn(items: int, labels: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Logits and targets that agree more often than not."""
    random = np.random.default_rng(seed)
    targets = random.integers(labels, size=items)
    return random.normal(size=(items, labels)) + 1.5 * np.eye(labels)[targets], targets


def test_classes_as_scikit_learn_measures_them():
    """Accuracy, macro F1, log loss, every class and the confusion equal scikit-learn's."""
    logits, targets = drawn(200)

    report = classification_scores(logits, targets, LABELS)

    predicted = logits.argmax(axis=1)
    precision, recall, f1, support = sklearn.precision_recall_fscore_support(targets, predicted)
    assert sklearn.accuracy_score(targets, predicted) == report.scores["accuracy"]
    assert sklearn.f1_score(targets, predicted, average="macro") == pytest.approx(report.scores["macro_f1"])
    assert sklearn.log_loss(targets, softmax(logits)) == pytest.approx(report.scores["log_loss"])
    assert sklearn.confusion_matrix(targets, predicted).tolist() == [list(row) for row in report.confusion]
    assert list(precision) == pytest.approx([score.precision for score in report.per_class])
    assert list(recall) == pytest.approx([score.recall for score in report.per_class])
    assert list(f1) == pytest.approx([score.f1 for score in report.per_class])
    assert support.tolist() == [score.support for score in report.per_class]
    assert {} == report.undefined


def test_a_class_without_examples_is_named_and_not_averaged():
    """Nobody can say how well a class is found that the evaluation data lacks: the macro mean is over the others."""
    logits, targets = np.eye(3)[[0, 1, 2]], np.array([0, 1, 1])

    report = classification_scores(logits, targets, LABELS[:3])

    assert {"f1[form]": "no evaluation example of it"} == report.undefined
    assert pytest.approx((1.0 + 2 / 3) / 2) == report.scores["macro_f1"]
    assert (None, 0) == (report.per_class[2].f1, report.per_class[2].support)


def test_a_class_never_predicted_scores_zero_without_a_precision():
    """0 of 0 predictions being right is no precision; not one example found is an F1 of 0."""
    report = classification_scores(np.eye(2)[[0, 0]], np.array([0, 1]), LABELS[:2])

    letter = report.per_class[1]
    assert (None, 0.0, 0.0) == (letter.precision, letter.recall, letter.f1)


def test_nothing_to_measure_is_said():
    """Without evaluation examples there are no scores, and each says why."""
    report = classification_scores(np.zeros((0, 4)), np.zeros(0, dtype=int), LABELS)

    assert {} == report.scores
    assert {"accuracy", "macro_f1", "log_loss", "ece"} == report.undefined.keys()


@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
def test_predictions_that_are_not_finite_are_wrong_and_named(broken):
    """A model whose numbers broke does not score by the class that argmax happens to give for NaN."""
    logits = np.array([[broken, 0.0], [2.0, 0.0], [0.0, 2.0]])

    report = classification_scores(logits, np.array([0, 0, 1]), LABELS[:2])

    assert pytest.approx(2 / 3) == report.scores["accuracy"]
    assert "1 of 3 predictions are not finite" == report.undefined["ece"]
    assert "log_loss" not in report.scores


@given(
    st.lists(
        st.tuples(st.lists(st.floats(width=32), min_size=3, max_size=3), st.integers(0, 2)), min_size=1, max_size=8
    )
)
def test_no_score_is_ever_nan(rows):
    """Whatever a model answers, early stopping gets numbers or nothing."""
    logits, targets = np.array([row for row, _ in rows]), np.array([target for _, target in rows])

    report = classification_scores(logits, targets, LABELS[:3])

    assert all(math.isfinite(value) for value in report.scores.values())
    assert not report.scores.keys() & report.undefined.keys()


def test_several_labels_as_scikit_learn_measures_them():
    """Micro and macro F1 and exact matches equal scikit-learn's."""
    random = np.random.default_rng(1)
    truth = random.integers(2, size=(50, 4))
    probabilities = np.clip(truth + random.normal(scale=0.6, size=truth.shape), 0, 1)

    scores = multi_label_scores(probabilities, truth, LABELS).scores

    chosen = probabilities >= 0.5
    assert sklearn.f1_score(truth, chosen, average="micro") == pytest.approx(scores["micro_f1"])
    assert sklearn.f1_score(truth, chosen, average="macro") == pytest.approx(scores["macro_f1"])
    assert sklearn.accuracy_score(truth, chosen) == pytest.approx(scores["exact_match"])


def test_several_labels_where_nobody_has_one():
    """With no label in the data exact matches can be counted; F1 cannot."""
    report = multi_label_scores(np.full((3, 2), np.nan), np.zeros((3, 2)), LABELS[:2])

    assert {"exact_match": 1.0} == report.scores
    assert {"micro_f1", "macro_f1", "f1[invoice]", "f1[letter]"} == report.undefined.keys()


def test_entities_count_whole():
    """One of two entities right in type and both ends, one with a wrong end: half of both sides."""
    truth = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "B-PER"]]
    predicted = [["B-PER", "O", "O", "B-LOC"], ["O", "B-PER"]]

    report = entity_scores(truth, predicted)

    assert pytest.approx(2 / 3) == report.scores["f1"]
    assert pytest.approx(2 / 3) == report.scores["precision"]
    assert pytest.approx((1.0 + 0.5) / 2) == report.scores["macro_f1"]
    assert [("LOC", 1), ("PER", 2)] == [(score.label, score.support) for score in report.per_class]


def test_an_inside_tag_may_begin_an_entity():
    """As conlleval reads it."""
    assert 1.0 == entity_scores([["B-PER", "I-PER"]], [["I-PER", "I-PER"]]).scores["f1"]


def test_a_type_only_predicted_is_named():
    """An invented type has no recall; it costs precision and is not averaged."""
    report = entity_scores([["B-PER", "O"]], [["B-PER", "B-ORG"]])

    assert {"f1[ORG]": "no evaluation example of it"} == report.undefined
    assert (0.5, 1.0, 1.0) == (report.scores["precision"], report.scores["recall"], report.scores["macro_f1"])


@pytest.mark.parametrize(
    ("truth", "predicted", "undefined"),
    [
        pytest.param([["O", "O"]], [["O", "B-PER"]], "no entity in the evaluation data", id="no-entity"),
        pytest.param([], [], "no evaluation examples", id="no-sentence"),
        pytest.param([[]], [[]], "no evaluation examples", id="no-token"),
    ],
)
def test_entities_where_there_are_none(truth, predicted, undefined):
    """F1 over no entities is not 0 and not 1."""
    report = entity_scores(truth, predicted)

    assert {} == report.scores
    assert undefined == report.undefined["f1"]


def test_no_entity_predicted():
    """A model that says O everywhere has an F1 of 0 and no precision; seqeval's warning does not get through."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UndefinedMetricWarning)
        report = entity_scores([["B-PER", "O"]], [["O", "O"]])

    assert {"f1": 0.0, "recall": 0.0, "macro_f1": 0.0} == report.scores
    assert "no entity was predicted" == report.undefined["precision"]


def test_sentences_of_other_lengths_are_refused():
    """Tags that do not belong to the same tokens cannot be compared; the sentence is named."""
    with pytest.raises(BadData, match="sentence 1: 2 expected tags, 1 predicted"):
        entity_scores([["O"], ["O", "B-PER"]], [["O"], ["O"]])


def test_correlations_as_scipy_measures_them():
    """Spearman's and Pearson's equal scipy's, ties shared."""
    random = np.random.default_rng(2)
    truth, predicted = random.integers(6, size=60), random.normal(size=60).round(1)

    scores = correlation_scores(truth, predicted).scores

    assert spearmanr(truth, predicted).statistic == pytest.approx(scores["spearman"])
    assert pearsonr(truth, predicted)[0] == pytest.approx(scores["pearson"])


@pytest.mark.parametrize(
    ("truth", "predicted", "why"),
    [
        pytest.param([1.0], [1.0], "1 evaluation examples; at least 2 are needed", id="alone"),
        pytest.param([1.0, 1.0], [1.0, 2.0], "all expected scores are equal", id="constant-truth"),
        pytest.param([1.0, 2.0], [3.0, 3.0], "all predicted scores are equal", id="collapsed-model"),
        pytest.param([1.0, 2.0], [3.0, np.nan], "predicted scores are not finite", id="broken-model"),
    ],
)
def test_correlations_that_do_not_exist(truth, predicted, why):
    """A collapsed model has no correlation; it is named, not NaN."""
    report = correlation_scores(np.array(truth), np.array(predicted))

    assert {} == report.scores
    assert why == report.undefined["spearman"]


def test_retrieval_by_hand():
    """MRR, recall and nDCG of three queries worked out on paper."""
    ranked = [[4, 7, 1], [2, 3, 5], [9, 8, 6]]
    relevant = [{7}, {2, 5}, {0}]

    report = retrieval_scores(ranked, relevant, cutoffs=(1, 3))

    second = (1 + 1 / math.log2(4)) / (1 + 1 / math.log2(3))
    assert pytest.approx((1 / 2 + 1 + 0) / 3) == report.scores["mrr@3"]
    assert pytest.approx((0 + 1 / 2 + 0) / 3) == report.scores["recall@1"]
    assert pytest.approx((1 + 1 + 0) / 3) == report.scores["recall@3"]
    assert pytest.approx((1 / math.log2(3) + second + 0) / 3) == report.scores["ndcg@3"]


def test_more_relevant_than_the_list_is_long():
    """Ten of twenty relevant documents in the first ten places is the best there is; half of them are found."""
    report = retrieval_scores([list(range(10))], [set(range(20))])

    assert pytest.approx(1.0) == report.scores["ndcg@10"]
    assert pytest.approx(0.5) == report.scores["recall@10"]


def test_queries_without_answer_are_left_out_and_counted():
    """They lower no score, and the report says how many there were."""
    report = retrieval_scores([[0], [1]], [{0}, set()], cutoffs=(1,))

    assert 1.0 == report.scores["mrr@1"]
    assert {"queries": "1 without a relevant document were left out"} == report.undefined
    assert "no query has a relevant document" == retrieval_scores([[0]], [[]]).undefined["mrr@10"]


def test_ranking_in_blocks():
    """Blocks change nothing; the nearest come first and equal ones in the documents' order."""
    random = np.random.default_rng(3)
    queries, documents = random.normal(size=(7, 4)), random.normal(size=(20, 4))
    documents[5] = documents[3]

    rankings = rank(queries, documents, 20, block=2)

    assert rank(queries, documents, 20) == rankings
    assert [np.argsort(-(query @ documents.T), kind="stable").tolist() for query in queries] == rankings
    assert [ranking[:3] for ranking in rankings] == rank(queries, documents, 3)


def test_calibration_error_as_defined():
    """The weighted mean over fifteen bins, each without its lower edge and with its upper one."""
    logits, targets = drawn(500, seed=6)
    probabilities = softmax(2 * logits)
    confidence, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == targets

    expected = 0.0
    for number in range(15):
        inside = (confidence > number / 15) & (confidence <= (number + 1) / 15)
        if inside.any():
            expected += abs(right[inside].mean() - confidence[inside].mean()) * inside.mean()

    assert pytest.approx(expected) == expected_calibration_error(probabilities, targets)


def test_a_certain_and_right_model_is_calibrated():
    """Confidence 1 belongs to the last bin."""
    assert 0.0 == expected_calibration_error(np.eye(3), np.arange(3))
