"""Windows cover a text once, padding is padding, and groups stay within their budget."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from backend.training.data.text_batches import Window, model_inputs, pad, windows, within_budget


@given(tokens=st.integers(1, 400), size=st.integers(1, 60))
def test_every_token_is_answered_for_once(tokens, size):
    """Own ranges lie end to end, within their windows, which are never longer than the model reads."""
    found = windows(tokens, size)

    owned = [token for one in found for token in range(one.own_start, one.own_stop)]
    assert list(range(tokens)) == owned
    assert all(one.start <= one.own_start <= one.own_stop <= one.stop for one in found)
    assert all(one.stop - one.start <= size for one in found)


def test_windows_share_a_quarter():
    """Each side of an inner edge has context."""
    expected = [Window(0, 8, 0, 7), Window(6, 14, 7, 13), Window(12, 20, 13, 20)]
    assert expected == windows(20, 8)


def test_padding():
    """Ids and mask; the filling is the model's own."""
    inputs = model_inputs([[5, 6, 7], [8]], filling=1)

    assert [[5, 6, 7], [8, 1, 1]] == inputs["input_ids"].tolist()
    assert [[1, 1, 1], [1, 0, 0]] == inputs["attention_mask"].tolist()
    assert torch.int64 == pad([[1]], -100).dtype


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        pytest.param([], [], id="none"),
        pytest.param([3, 9, 3, 3], [[1], [0, 2, 3]], id="longest-first"),
        pytest.param([50], [[0]], id="over-the-budget-alone"),
        pytest.param([0, 0], [[0, 1]], id="empty-texts"),
    ],
)
def test_groups_within_a_budget(lengths, expected):
    """Longest times count stays within it."""
    assert expected == list(within_budget(lengths, 10))
