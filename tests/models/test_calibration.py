"""Confidence that can be believed: the temperature is the optimum, and is refused where there is none."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, log_softmax
from scipy.special import softmax as reference_softmax

from backend.models.calibration import choose_threshold, fit_temperature, likeness, relevance, sigmoid, softmax
from backend.training.metrics import classification_scores

LABELS = ("invoice", "letter", "form", "contract")


def drawn(items: int, labels: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Logits and targets that agree more often than not."""
    random = np.random.default_rng(seed)
    targets = random.integers(labels, size=items)
    return random.normal(size=(items, labels)) + 1.5 * np.eye(labels)[targets], targets


@given(st.lists(st.lists(st.floats(-800, 800), min_size=3, max_size=3), min_size=1, max_size=5))
def test_probabilities_are_scipys_at_any_size(rows):
    """Neither end overflows, and nothing warns."""
    logits = np.array(rows)

    np.testing.assert_allclose(softmax(logits), reference_softmax(logits, axis=1), atol=1e-12)
    np.testing.assert_allclose(sigmoid(logits), expit(logits), atol=1e-12)


def test_temperature_is_found_again():
    """Logits made four times too large are divided by about four; accuracy stays, log loss falls."""
    random = np.random.default_rng(4)
    true = random.normal(scale=1.5, size=(4000, 3))
    targets = np.array([random.choice(3, p=row) for row in softmax(true)])

    fitted = fit_temperature(4 * true, targets)

    assert pytest.approx(4.0, rel=0.06) == fitted.value
    before = classification_scores(4 * true, targets, LABELS[:3]).scores
    after = classification_scores(4 * true / fitted.value, targets, LABELS[:3]).scores
    assert before["accuracy"] == after["accuracy"]
    assert after["log_loss"] < before["log_loss"]
    assert after["ece"] < 0.05 < before["ece"]


def test_temperature_is_the_minimum():
    """No temperature nearby has a lower log loss."""
    logits, targets = drawn(300, seed=5)

    best = fit_temperature(logits, targets).value

    def loss(temperature: float) -> float:
        return float(-log_softmax(logits / temperature, axis=1)[np.arange(300), targets].mean())

    assert all(loss(best) <= loss(best * factor) for factor in (0.9, 0.99, 1.01, 1.1))


@pytest.mark.parametrize(
    ("logits", "targets", "why"),
    [
        pytest.param(np.zeros((0, 2)), [], "no evaluation examples", id="none"),
        pytest.param(np.eye(2), [0, 1], "all 2 evaluation examples are right", id="all-right"),
        pytest.param(np.array([[np.nan, 0.0]]), [0], "not finite", id="broken"),
    ],
)
def test_no_temperature_can_be_fitted(logits, targets, why):
    """Then it is 1, with the reason: an endless confidence would be invented."""
    fitted = fit_temperature(logits, np.array(targets, dtype=int))

    assert 1.0 == fitted.value
    assert why in fitted.why


def test_a_model_that_is_worse_than_chance_is_flattened_within_bounds():
    """Its best temperature is endless; 20 is where it stops."""
    assert pytest.approx(20.0) == fit_temperature(np.eye(2), np.array([1, 0])).value


def test_the_threshold_parts_own_from_foreign():
    """Between the two where they do not overlap; a text of the background never counts as right."""
    random = np.random.default_rng(5)
    own, foreign = random.uniform(0.7, 1.0, 200), random.uniform(0.0, 0.4, 300)
    score = np.concatenate([own, foreign])
    probabilities = np.column_stack([score, 1 - score])
    targets = np.repeat([0, 1], [200, 300])

    threshold = choose_threshold(probabilities, targets, background=1)

    assert foreign.max() < threshold <= own.min()


@pytest.mark.parametrize("unrelated", [0.15, 0.79])
def test_likeness_runs_from_unrelated_to_equal_texts(unrelated):
    """0 and 1 whatever the encoder; nothing is more alike than equal texts or less than unrelated ones."""
    cosines = np.array([-1.0, unrelated, (1 + unrelated) / 2, 1.0, 1.0000001])

    np.testing.assert_allclose(likeness(cosines, unrelated), [0, 0, 0.4, 1, 1], atol=1e-12)


@pytest.mark.parametrize("unrelated", [-0.1, 0.15, 0.79])
def test_relevance_is_even_a_fifth_of_the_way_to_equal(unrelated):
    """Cosines of two encoders that are as far between unrelated and equal have the same relevance."""
    cosines = unrelated + (1 - unrelated) * np.array([0.0, 0.2, 1.0])

    np.testing.assert_allclose(relevance(cosines, unrelated), [0.0832, 0.5, 0.9999], atol=1e-4)


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=8), st.floats(-1, 1))
def test_scores_keep_the_order_of_the_cosines(cosines, unrelated):
    """Also of a model for which all texts are alike; always 0 to 1."""
    ordered = np.sort(cosines)

    for score in (likeness, relevance):
        found = score(ordered, unrelated)
        assert (np.diff(found) >= 0).all()
        assert ((found >= 0) & (found <= 1)).all()
