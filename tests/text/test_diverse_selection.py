"""Maximal marginal relevance."""

from __future__ import annotations

import numpy as np
import pytest

from backend.text.diverse_selection import min_max_scaled, select_diverse, unit_vectors


def none_redundant(_: int) -> np.ndarray:
    return np.zeros(3, np.bool_)


def test_unit_vectors_have_length_one_and_zeros_stay():
    """An item without a vector is similar to none."""
    assert [[0.6, 0.8], [0.0, 0.0]] == unit_vectors(np.array([[3, 4], [0, 0]], np.float32)).tolist()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param([2, 4, 3], [0, 1, 0.5], id="stretched"),
        pytest.param([5, 5], [1, 1], id="all-equal"),
        pytest.param([], [], id="none"),
    ],
)
def test_min_max_scaled(values, expected):
    """The minimum becomes 0, the maximum 1."""
    assert expected == min_max_scaled(np.array(values, float)).tolist()


def test_relevance_less_similarity_decides():
    """The second best is similar to the best; with diversity, the third goes before it."""
    vectors = unit_vectors(np.array([[1, 0], [0.9, 0.1], [0, 1]], np.float32))
    relevance = np.array([1.0, 0.9, 0.6])

    assert [0, 1, 2] == select_diverse(vectors, relevance, 9, diversity=0.0, redundant_with=none_redundant)
    assert [0, 2, 1] == select_diverse(vectors, relevance, 9, diversity=0.5, redundant_with=none_redundant)
    assert [0] == select_diverse(vectors, relevance, 1, diversity=0.5, redundant_with=none_redundant)
    assert [] == select_diverse(vectors[:0], relevance[:0], 1, diversity=0.5, redundant_with=none_redundant)


def test_redundant_items_are_not_selected():
    """The caller defines redundancy; no item is selected twice in any case."""
    vectors = np.eye(3)

    def redundant_with(index: int) -> np.ndarray:
        return np.array([index == 2, False, False])

    relevance = np.array([0.5, 0.6, 1.0])
    assert [2, 1] == select_diverse(vectors, relevance, 3, diversity=0.0, redundant_with=redundant_with)
