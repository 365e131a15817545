"""The mean cosine of unrelated texts."""

import numpy as np
import pytest

from backend.serving.engines.neutral_texts import ALL_NEUTRAL_TEXTS, SUBJECTS, unrelated_cosine


def test_texts_on_one_subject_do_not_count():
    """A subject's vector is the same in both languages and orthogonal to the others': unrelated texts have cosine 0."""
    vectors = np.tile(np.eye(SUBJECTS), (len(ALL_NEUTRAL_TEXTS) // SUBJECTS, 1))

    assert 0.0 == unrelated_cosine(vectors, vectors)


def test_two_sides_may_have_different_prompts():
    """The mean over all pairs of different subjects, each from its side."""
    random = np.random.default_rng(0)
    first, second = (row / np.linalg.norm(row, axis=1, keepdims=True) for row in random.normal(size=(2, 48, 8)))
    pairs = [first[i] @ second[j] for i in range(48) for j in range(48) if i % SUBJECTS != j % SUBJECTS]

    assert pytest.approx(np.mean(pairs)) == unrelated_cosine(first, second)
