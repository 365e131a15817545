"""Texts cut into chunks at the ends of sentences."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.documents.chunks import chunk_places

SENTENCES = np.array([[0, 10], [11, 20], [21, 60], [61, 70]])


@pytest.mark.parametrize(
    ("tokens", "most", "expected"),
    [
        pytest.param([0, 5, 11, 15, 21, 61], 10, [(0, 70)], id="all-fit"),
        pytest.param([0, 5, 11, 15, 21, 61], 4, [(0, 20), (21, 70)], id="whole-sentences"),
        pytest.param([0, 5, 11, 15, 21, 61], 3, [(0, 10), (11, 60), (61, 70)], id="as-many-as-fit"),
        pytest.param([0, 21, 30, 40, 50, 61], 2, [(0, 20), (21, 40), (40, 60), (61, 70)], id="a-long-one-is-cut"),
        pytest.param([], 4, [], id="no-tokens"),
    ],
)
def test_chunk_places(tokens: list[int], most: int, expected: list[tuple[int, int]]) -> None:
    """Sentences are joined while they fit, and cut only where one alone does not."""
    assert expected == chunk_places(np.array(tokens, np.int64), SENTENCES, most)


@given(st.lists(st.integers(0, 69), unique=True, max_size=60), st.integers(1, 20))
def test_every_token_of_a_sentence_is_in_one_chunk(tokens: list[int], most: int) -> None:
    """Nothing is lost, nothing is twice, and no chunk is over its size."""
    starts = np.array(sorted(tokens), np.int64)
    inside = [token for token in sorted(tokens) if any(first <= token < last for first, last in SENTENCES.tolist())]

    chunks = chunk_places(starts, SENTENCES, most)

    held = [[token for token in inside if first <= token < last] for first, last in chunks]
    assert inside == [token for chunk in held for token in chunk]
    assert all(0 < len(chunk) <= most for chunk in held)
