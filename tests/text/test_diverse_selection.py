"""Maximal marginal relevance; test_key_phrases.py and test_key_sentences.py ask what is redundant."""

import numpy as np

from backend.text.diverse_selection import select_diverse, unit_vectors


def none_redundant(_: int) -> np.ndarray:
    return np.zeros(3, np.bool_)


def test_relevance_less_similarity_decides():
    """The second best is similar to the best; with diversity, the third goes before it."""
    vectors = unit_vectors(np.array([[1, 0], [0.9, 0.1], [0, 1]], np.float32))
    relevance = np.array([1.0, 0.9, 0.6])

    assert [0, 1, 2] == select_diverse(vectors, relevance, 9, diversity=0.0, redundant_with=none_redundant)
    assert [0, 2, 1] == select_diverse(vectors, relevance, 9, diversity=0.5, redundant_with=none_redundant)
    assert [0] == select_diverse(vectors, relevance, 1, diversity=0.5, redundant_with=none_redundant)
    assert [] == select_diverse(vectors[:0], relevance[:0], 1, diversity=0.5, redundant_with=none_redundant)
