"""What counts as faithful: numbers in, a verdict out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from backend.models.fidelity import AUTO, FAST, Fidelity, compare, fault, normalized, spearman

PERFECT = Fidelity(batch_single=1.0, spearman=1.0, neighbours=1.0, cosine=1.0)
NAN = float("nan")


def cloud(texts: int = 24, width: int = 16, seed: int = 7) -> np.ndarray:
    """Vectors in no particular order."""
    return np.random.default_rng(seed).standard_normal((texts, width)).astype(np.float32)


def test_an_encoder_agrees_with_itself():
    """The same vectors again are perfect in every number."""
    vectors = cloud()
    places = [0, 5, 23]

    found = compare(vectors, places, vectors[places], vectors)

    assert found.spearman == pytest.approx(1.0)
    assert found.neighbours == 1.0
    assert found.cosine == pytest.approx(1.0, abs=1e-6)
    assert found.batch_single == pytest.approx(1.0, abs=1e-6)
    assert fault(found, AUTO) == ""


def test_length_of_a_vector_does_not_count():
    """Only directions are compared: a scaled encoder is as faithful."""
    vectors = cloud()

    found = compare(vectors * 7.5, [1, 2], vectors[[1, 2]] * 0.1, vectors)

    assert fault(found, AUTO) == ""


def test_one_vector_changed_by_its_neighbours_is_found():
    """The least agreement counts, not the mean: one text among many is enough to fail."""
    vectors = cloud()
    places = list(range(len(vectors)))
    alone = vectors.copy()
    alone[11] = -alone[11]

    found = compare(vectors, places, alone, vectors)

    assert found.batch_single == pytest.approx(-1.0, abs=1e-5)
    assert fault(found, AUTO).startswith("neighbours change a vector")


def test_foreign_vectors_are_unfaithful():
    """Vectors of another model order the pairs otherwise and have other neighbours."""
    vectors = cloud()

    found = compare(vectors, [0], vectors[:1], cloud(seed=8))

    assert abs(found.spearman) < 0.3
    assert found.neighbours < 0.5
    assert "Spearman" in fault(found, FAST)


def test_a_single_nan_fails():
    """A vector that is not finite makes the candidate fail, however good the others are."""
    vectors = cloud()
    broken = vectors.copy()
    broken[3, 2] = NAN

    with np.errstate(invalid="ignore"):
        found = compare(broken, [0, 1], broken[[0, 1]], vectors)

    assert fault(found, FAST) != ""


@pytest.mark.parametrize(
    ("fidelity", "bar", "expected"),
    [
        pytest.param(PERFECT, AUTO, "", id="perfect"),
        pytest.param(Fidelity(0.9999, 0.995, 0.9, 0.5), AUTO, "", id="exactly-at-the-bar"),
        pytest.param(Fidelity(0.9998, 1.0, 1.0, 1.0), AUTO, "neighbours change", id="batch-differs-from-single"),
        pytest.param(Fidelity(0.9998, 1.0, 1.0, 1.0), FAST, "neighbours change", id="not-even-fast-allows-that"),
        pytest.param(Fidelity(1.0, 0.994, 1.0, 1.0), AUTO, "Spearman 0.9940 < 0.995", id="other-order"),
        pytest.param(Fidelity(1.0, 0.981, 0.85, 1.0), FAST, "", id="fast-lowers-the-bar"),
        pytest.param(Fidelity(1.0, 0.979, 1.0, 1.0), FAST, "Spearman", id="but-not-to-the-ground"),
        pytest.param(Fidelity(1.0, 1.0, 0.89, 1.0), AUTO, "nearest neighbours", id="other-neighbours"),
        pytest.param(Fidelity(NAN, 1.0, 1.0, 1.0), AUTO, "neighbours change", id="nan-in-a-batch"),
        pytest.param(Fidelity(1.0, NAN, 1.0, 1.0), AUTO, "Spearman", id="nan-in-similarities"),
        pytest.param(Fidelity(1.0, 1.0, NAN, 1.0), AUTO, "nearest neighbours", id="nan-in-neighbours"),
    ],
)
def test_fault(fidelity, bar, expected):
    """The first bar that is missed gives the reason; none missed gives no words."""
    found = fault(fidelity, bar)

    assert expected in found
    assert bool(expected) == bool(found)


@given(st.lists(st.integers(-1000, 1000), min_size=3, max_size=50, unique=True), st.randoms(use_true_random=False))
def test_spearman_is_scipys(values, random):
    """Without ties it is the textbook's rank correlation."""
    first = np.array(values, np.float32)
    others = values.copy()
    random.shuffle(others)
    second = np.array(others, np.float32)

    assert spearman(first, second) == pytest.approx(spearmanr(first, second).statistic, abs=1e-6)


@given(st.integers(0, 2**32 - 1))
def test_spearman_sees_order_only(seed):
    """Any rising function of the similarities gives the same number."""
    first, second = np.random.default_rng(seed).standard_normal((2, 30)).astype(np.float32)

    assert spearman(first, second) == pytest.approx(spearman(np.exp(first), second * 3 + 1), abs=1e-6)


def test_rows_become_length_one_and_zero_stays_zero():
    """No row divides by zero, and a short row is as good as a long one."""
    found = normalized(np.array([[3, 4], [0, 0], [1e-15, 0]], np.float32))

    np.testing.assert_allclose(found, [[0.6, 0.8], [0, 0], [1, 0]], rtol=1e-6)
    assert [np.float32, np.float64] == [found.dtype, normalized(found.astype(np.float64)).dtype]
