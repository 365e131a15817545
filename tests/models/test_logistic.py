"""Fitting heads: scikit-learn's optimum, deterministic, calibrated on held-out folds only."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from backend.models import logistic
from backend.models.calibration import softmax
from backend.models.features import gram_scale, gram_scores, wide_features
from backend.models.logistic import DEFAULT_PENALTY, fit_head


def blobs(count: int, *, labels: int = 3, noise: float = 1.0, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Vectors around one centre a class, the classes about equally often."""
    random = np.random.default_rng(seed)
    targets = random.permutation(np.arange(count) % labels)
    centres = np.random.default_rng(0).normal(size=(labels, 8))
    return centres[targets] + noise * random.normal(size=(count, 8)), targets


def together(count: int, *, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Vectors, and labels that may go together."""
    random = np.random.default_rng(seed)
    vectors = random.normal(size=(count, 8))
    return vectors, (vectors[:, :3] + 0.5 * random.normal(size=(count, 3)) > 0.4).astype(np.float64)


def problem(vectors, targets, labels, class_weights=None):
    weights = logistic._item_weights(targets, labels, class_weights)
    return logistic._Problem(vectors, logistic._rows(targets, labels), weights, targets.ndim > 1)


@pytest.mark.parametrize("penalty", [0.3, 30.0])
@pytest.mark.parametrize("balanced", [False, True], ids=["plain", "balanced"])
def test_the_head_is_scikit_learns_optimum(penalty, balanced):
    """Its solver, made for nothing else, finds the same probabilities for the same penalty and weights."""
    vectors, targets = blobs(150)
    targets = np.where(targets == 2, targets, 0) if balanced else targets
    labels = len(set(targets.tolist()))
    targets = np.unique(targets, return_inverse=True)[1]
    counts = np.bincount(targets)
    weights = len(targets) / (labels * counts) if balanced else np.ones(labels)

    solved = problem(vectors, targets, labels, weights).solve(np.arange(150), penalty)

    reference = LogisticRegression(
        C=1 / penalty, tol=1e-10, max_iter=10000, class_weight="balanced" if balanced else None
    ).fit(vectors, targets)
    found = softmax(vectors @ solved.weight.T + solved.bias)
    if labels == 2:  # scikit-learn has one row for two classes, which half the squared weight of two opposite rows is
        reference.set_params(C=2 / penalty).fit(vectors, targets)
    np.testing.assert_allclose(found, reference.predict_proba(vectors), atol=1e-3)


@pytest.mark.parametrize("weighted", [False, True])
def test_labels_on_their_own_are_scikit_learns_optima(weighted):
    """One binary problem a label."""
    vectors, targets = together(200)
    weights = np.array([1.0, 3.0, 0.5]) if weighted else None

    solved = problem(vectors, targets, 3, weights).solve(np.arange(200), 2.0)

    for label in range(3):
        sides = None if weights is None else {0: 1.0, 1: float(weights[label])}
        reference = LogisticRegression(C=0.5, tol=1e-10, max_iter=10000, class_weight=sides)
        reference.fit(vectors, targets[:, label])
        np.testing.assert_allclose(solved.weight[label], reference.coef_[0], atol=2e-3)


@pytest.mark.slow
@given(count=st.integers(2, 90), labels=st.integers(2, 6), scale=st.sampled_from([1e-3, 1.0, 50.0]))
@settings(max_examples=15, deadline=None)
def test_any_examples_give_a_head(count, labels, scale):
    """From one a label up, labels without any included: finite, and scores that sum to one."""
    vectors, targets = blobs(count, labels=min(labels, count))

    found = fit_head(scale * vectors, targets, labels=labels)

    scores = softmax(scale * vectors @ found.weight.T + found.bias)
    np.testing.assert_allclose(scores.sum(axis=1), 1.0)
    assert found.threshold == 0, "without a background nothing tells what a foreign text scores"


def test_the_unit_of_the_vectors_changes_nothing():
    vectors, targets = blobs(120)

    one, ten = (fit_head(factor * vectors, targets, labels=3) for factor in (1, 10))

    assert one.penalty == ten.penalty
    np.testing.assert_allclose(one.weight, 10 * ten.weight, rtol=1e-4, atol=1e-5)


def test_equal_examples_give_equal_heads():
    vectors, targets = blobs(200)

    one, other = (fit_head(vectors, targets, labels=3) for _ in range(2))

    assert one.weight.tobytes() == other.weight.tobytes()
    assert one.threshold == other.threshold


@pytest.mark.parametrize("each", [1, 2, 4])
def test_few_examples_need_no_folds(each):
    """One to four a label: the documented penalty, no threshold, and right where the classes lie apart."""
    vectors, targets = blobs(3 * each, noise=0.2)

    found = fit_head(vectors, targets, labels=3)

    assert (DEFAULT_PENALTY, 0.0, None) == (found.penalty, found.threshold, found.accuracy)
    fresh, truth = blobs(300, noise=0.2, seed=2)
    assert ((fresh @ found.weight.T + found.bias).argmax(axis=1) == truth).mean() > 0.95


def test_the_estimate_of_accuracy_is_that_of_unseen_examples():
    """Within four standard errors, where the examples themselves would promise more."""
    vectors, targets = blobs(400, noise=2.0)
    fresh, truth = blobs(4000, noise=2.0, seed=2)

    found = fit_head(vectors, targets, labels=3)

    accuracy = ((fresh @ found.weight.T + found.bias).argmax(axis=1) == truth).mean()
    assert pytest.approx(accuracy, abs=0.1) == found.accuracy


def test_confidence_fits_unseen_examples():
    """Mean confidence is close to accuracy on examples from elsewhere."""
    vectors, targets = blobs(600, noise=2.0)
    fresh, truth = blobs(4000, noise=2.0, seed=2)

    found = fit_head(vectors, targets, labels=3)

    scores = softmax(fresh @ found.weight.T + found.bias)
    assert pytest.approx((scores.argmax(axis=1) == truth).mean(), abs=0.05) == scores.max(axis=1).mean()


def test_a_class_of_one_text_breaks_nothing():
    """It is learnt from and never asked for."""
    vectors, targets = blobs(90, noise=0.3)
    vectors, targets = np.vstack([vectors, 9 * np.ones(8)]), np.append(targets, 3)

    found = fit_head(vectors, targets, labels=4)

    assert 3 == (vectors[-1] @ found.weight.T + found.bias).argmax()
    assert found.accuracy is not None


def test_the_background_is_solved_like_a_class():
    """Foreign texts seen in training stay without an answer when new ones come."""
    vectors, targets = blobs(240, labels=4, noise=0.5)

    found = fit_head(vectors, targets, labels=4, background=3)

    fresh, truth = blobs(400, labels=4, noise=0.5, seed=2)
    scores = softmax(fresh @ found.weight.T + found.bias)[:, :3]
    given_one = scores.max(axis=1) >= found.threshold
    assert given_one[truth != 3].mean() > 0.9
    assert given_one[truth == 3].mean() < 0.1


def test_wider_features_are_the_same_problem_turned():
    """What is lifted back multiplies the features themselves to the same logits."""
    random = np.random.default_rng(0)
    vectors = random.normal(size=(30, 8))
    texts = [f"factura {number} de {'luz' if number % 2 else 'agua'}" for number in range(30)]

    wide = wide_features(vectors, texts)
    weight = random.normal(size=(3, wide.rows.shape[1]))
    dense, table = wide.lift(weight)

    copies = np.hstack([vectors, vectors * wide.gate.open(vectors)])
    expected = copies @ dense.T + gram_scale(8) * gram_scores(texts, table.astype(np.float32))
    np.testing.assert_allclose(wide.rows @ weight.T, expected, atol=1e-4)


def test_grams_are_taken_where_they_help():
    """Vectors say nothing, words everything; and the other way round nothing is taken."""
    random = np.random.default_rng(0)
    targets = np.arange(120) % 2
    texts = [f"{('factura', 'contrato')[target]} {random.integers(1000)}" for target in targets]
    noise = random.normal(size=(120, 8))

    by_words = fit_head(noise, targets, labels=2, texts=texts)
    told, truth = blobs(120, labels=2)
    by_vectors = fit_head(told, truth, labels=2, texts=[f"{number}" for number in random.integers(9, size=120)])

    assert by_words.table is not None
    assert by_words.accuracy == 1.0
    assert by_vectors.table is None


def test_a_gate_gives_each_side_its_own_weights():
    """Two languages whose vectors lie apart, and in which the same direction means the opposite."""
    random = np.random.default_rng(0)
    side, meaning = np.arange(400) % 2 * 2 - 1, random.integers(2, size=400) * 2 - 1
    vectors = 0.3 * random.normal(size=(400, 6))
    vectors[:, 0] += 4 * side
    vectors[:, 1] += side * meaning
    targets = (meaning > 0).astype(int)

    found = fit_head(vectors, targets, labels=2, texts=["the same"] * 400)
    plain = fit_head(vectors, targets, labels=2)

    assert plain.accuracy < 0.65
    assert found.accuracy > 0.95


def test_a_group_is_in_one_fold():
    """Copies of a text do not judge one another: labels by chance stay chance."""
    random = np.random.default_rng(0)
    once, labels = random.normal(size=(60, 40)), random.integers(2, size=60)
    vectors, targets, groups = np.repeat(once, 4, axis=0), np.repeat(labels, 4), np.repeat(np.arange(60), 4)

    apart = fit_head(vectors, targets, labels=2)
    together_ = fit_head(vectors, targets, labels=2, groups=groups.tolist())

    assert apart.accuracy == 1.0
    assert together_.accuracy < 0.75
