"""Choosing parts by worth and by unlikeness."""

from __future__ import annotations

import numpy as np
import pytest

from backend.documents.diverse_selection import diverse, spread, units


def none_same(_: int) -> np.ndarray:
    return np.zeros(3, np.bool_)


def test_units_have_length_one_and_zeros_stay():
    """A part without a vector is near nothing."""
    assert [[0.6, 0.8], [0.0, 0.0]] == units(np.array([[3, 4], [0, 0]], np.float32)).tolist()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param([2, 4, 3], [0, 1, 0.5], id="stretched"),
        pytest.param([5, 5], [1, 1], id="all-equal"),
        pytest.param([], [], id="none"),
    ],
)
def test_spread(values, expected):
    """The least is 0, the most is 1."""
    assert expected == spread(np.array(values, float)).tolist()


def test_worth_less_likeness_decides():
    """The second best looks like the best; the third does not, and goes before it when difference counts."""
    parts = units(np.array([[1, 0], [0.9, 0.1], [0, 1]], np.float32))
    worth = np.array([1.0, 0.9, 0.6])

    assert [0, 1, 2] == diverse(parts, worth, 9, diversity=0.0, same=none_same)
    assert [0, 2, 1] == diverse(parts, worth, 9, diversity=0.5, same=none_same)
    assert [0] == diverse(parts, worth, 1, diversity=0.5, same=none_same)
    assert [] == diverse(parts[:0], worth[:0], 1, diversity=0.5, same=none_same)


def test_what_one_makes_needless_is_not_chosen():
    """The caller says what is the same; a part is never chosen twice, said or not."""
    parts = np.eye(3)

    assert [2, 1] == diverse(
        parts, np.array([0.5, 0.6, 1.0]), 3, diversity=0.0, same=lambda best: np.array([best == 2, False, False])
    )
