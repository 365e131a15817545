"""Windows, padding, and batches within a token budget."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from backend.training.data.batches import Window, batches_within_budget, model_inputs, pad, windows


@given(tokens=st.integers(1, 400), size=st.integers(1, 60))
def test_own_ranges_partition_the_text(tokens, size):
    """Own ranges are contiguous and within their windows, which are never longer than the model's maximum."""
    cover = windows(tokens, size)

    owned = [token for window in cover for token in range(window.own_start, window.own_stop)]
    assert list(range(tokens)) == owned
    assert all(window.start <= window.own_start <= window.own_stop <= window.stop for window in cover)
    assert all(window.stop - window.start <= size for window in cover)


def test_windows_share_a_quarter():
    """Each side of an inner edge has context."""
    expected = [Window(0, 8, 0, 7), Window(6, 14, 7, 13), Window(12, 20, 13, 20)]
    assert expected == windows(20, 8)


def test_padding():
    """Ids and mask, with the model's padding id."""
    inputs = model_inputs([[5, 6, 7], [8]], pad_id=1)

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
    assert expected == list(batches_within_budget(lengths, 10))
