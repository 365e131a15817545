"""Packing, pooling and MPNet's buckets: algebra on numbers, no model; test_parity.py has them in every runtime."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

from backend.models.encoder import pack, pool, relative_buckets
from backend.models.spec import Pooling

LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=12)
MULTIPLES = st.sampled_from([1, 2, 8, 16])


def numbered(lengths: list[int]) -> list[np.ndarray]:
    """Texts whose ids are all different, so that none can stand in for another."""
    ends = np.cumsum([1, *lengths])
    return [np.arange(start, stop) for start, stop in pairwise(ends)]


@given(LENGTHS, MULTIPLES, MULTIPLES)
def test_every_text_lies_in_its_own_row_of_slots(lengths, row_multiple, length_multiple):
    """Behind the mask each row of slots holds exactly its text, in order, from the first slot on."""
    texts = numbered(lengths)
    batch = pack(texts, row_multiple=row_multiple, length_multiple=length_multiple)
    slots = batch.ids[batch.scatter]

    for index, text in enumerate(texts):
        real = batch.mask[index, 0, 0] == 0
        assert text.tolist() == slots[index][real].tolist()
        assert [True] * len(text) == real[: len(text)].tolist()
        assert not real[len(text) :].any()


@given(LENGTHS, MULTIPLES, MULTIPLES)
def test_sizes_are_the_least_multiples_that_hold_the_texts(lengths, row_multiple, length_multiple):
    """Rounding up wastes less than one multiple, and every index stays inside its table."""
    batch = pack(numbered(lengths), row_multiple=row_multiple, length_multiple=length_multiple)
    rows, longest = len(batch.ids), batch.scatter.shape[1]

    assert sum(lengths) == batch.tokens
    assert lengths == batch.lengths.tolist()
    assert rows % row_multiple == 0
    assert longest % length_multiple == 0
    assert 0 <= rows - sum(lengths) < row_multiple
    assert 0 <= longest - max(lengths) < length_multiple
    assert (len(lengths), 1, 1, longest) == batch.mask.shape
    assert batch.scatter.max() < rows
    assert batch.gather.max() < batch.scatter.size
    assert rows == len(batch.gather) == len(batch.positions)


@given(LENGTHS, st.sampled_from(list(Pooling)), st.data())
def test_pooling_a_batch_equals_pooling_each_text_alone(lengths, pooling, data):
    """No vector of a neighbour gets into a text's own, whatever the lengths and the order."""
    order = data.draw(st.permutations(range(len(lengths))))
    texts = [numbered(lengths)[index] for index in order]
    batch = pack(texts)
    hidden = np.random.default_rng(sum(lengths)).standard_normal((batch.tokens, 5)).astype(np.float32)

    together = pool(hidden, batch, pooling)
    ends = np.cumsum([0, *(len(text) for text in texts)])
    alone = [
        pool(hidden[start:stop], pack([text]), pooling)[0]
        for text, start, stop in zip(texts, ends[:-1], ends[1:], strict=True)
    ]

    np.testing.assert_array_equal(np.stack(alone), together)


def test_max_of_negative_numbers_is_negative():
    """Padding never counts as zero."""
    batch = pack([np.array([1]), np.array([2, 3, 4])], row_multiple=16, length_multiple=16)
    hidden = np.full((batch.tokens, 3), -2.0, np.float32)

    assert (pool(hidden, batch, Pooling.MAX) == -2.0).all()


def test_pooled_vectors_own_their_memory():
    """The runtime may overwrite its output at the next call; what was pooled from it stays."""
    batch = pack([np.array([1, 2]), np.array([3])])
    for pooling in Pooling:
        hidden = np.ones((batch.tokens, 2), np.float32)
        vectors = pool(hidden, batch, pooling)
        hidden[:] = 9.0
        assert (vectors == 1.0).all(), pooling


@pytest.mark.parametrize("longest", [1, 2, 8, 9, 17, 128, 129, 200, 514])
def test_relative_buckets_are_those_of_transformers(longest):
    """MPNet's own function is the truth, for near, far and farthest pairs."""
    places = torch.arange(longest)
    expected = MPNetEncoder.relative_position_bucket(places[None, :] - places[:, None], num_buckets=32)

    np.testing.assert_array_equal(expected.numpy(), relative_buckets(longest))
