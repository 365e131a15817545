"""The texts that encoders are measured with."""

from __future__ import annotations

import numpy as np

from backend.models.probe_texts import probe_texts
from tests.tiny_models import tokenizer_of


def test_texts_are_many_different_and_of_mixed_lengths():
    """Real traffic of this kind: mean near 40 tokens, from a sentence to a page, nothing cut."""
    texts = probe_texts()
    tokens = tokenizer_of("bundled").encode(texts)
    lengths = np.array([len(one.ids) for one in tokens])

    assert len(set(texts)) == len(texts) == 64
    assert 30 <= lengths.mean() <= 55
    assert lengths.min() <= 16
    assert lengths.max() >= 150
    assert sum(one.truncated for one in tokens) <= 4


def test_texts_are_the_same_at_every_start():
    """A kept measurement stays comparable."""
    assert probe_texts() == probe_texts()
