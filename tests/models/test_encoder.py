"""Packing, its two maps, pooling and MPNet's buckets: algebra on numbers, no model."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

from backend.models.encoder import TokenBatch, pack, pool, relative_buckets
from backend.models.spec import Pooling

LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=12)
MULTIPLES = st.sampled_from([1, 2, 8, 16])


def numbered(lengths: list[int]) -> list[np.ndarray]:
    """Texts whose ids are all different, so that none can stand in for another."""
    ends = np.cumsum([1, *lengths])
    return [np.arange(start, stop) for start, stop in pairwise(ends)]


def padded(values: np.ndarray, batch: TokenBatch) -> np.ndarray:
    """Packed rows as attention sees them: (batch, longest, …)."""
    return values[batch.scatter]


def repacked(slots: np.ndarray, batch: TokenBatch) -> np.ndarray:
    """Slots as the rest of the model sees them: (rows, …)."""
    return slots.reshape(-1, *slots.shape[2:])[batch.gather]


@given(LENGTHS, MULTIPLES, MULTIPLES)
def test_padding_and_packing_again_changes_nothing(lengths, row_multiple, length_multiple):
    """gather undoes scatter for every real token, whatever the sizes are rounded to."""
    batch = pack(numbered(lengths), row_multiple=row_multiple, length_multiple=length_multiple)

    again = repacked(padded(batch.ids, batch), batch)

    assert again[: batch.tokens].tolist() == batch.ids[: batch.tokens].tolist()


@given(LENGTHS, MULTIPLES, MULTIPLES)
def test_every_text_lies_in_its_own_row_of_slots(lengths, row_multiple, length_multiple):
    """Behind the mask each row of slots holds exactly its text, in order, from the first slot on."""
    texts = numbered(lengths)
    batch = pack(texts, row_multiple=row_multiple, length_multiple=length_multiple)
    slots = padded(batch.ids, batch)

    for index, text in enumerate(texts):
        real = batch.mask[index, 0, 0] == 0
        assert text.tolist() == slots[index][real].tolist()
        assert [True] * len(text) == real[: len(text)].tolist()
        assert not real[len(text) :].any()


@pytest.mark.slow
@given(LENGTHS, MULTIPLES, MULTIPLES)
def test_positions_start_again_with_each_text(lengths, row_multiple, length_multiple):
    """A text's positions are 0, 1, 2, … whoever stands before it."""
    batch = pack(numbered(lengths), row_multiple=row_multiple, length_multiple=length_multiple)

    expected = [place for length in lengths for place in range(length)]
    assert expected == batch.positions[: batch.tokens].tolist()


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


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        pytest.param(Pooling.MEAN, [[2.0, -1.0], [7.0, 8.0]], id="mean"),
        pytest.param(Pooling.CLS, [[1.0, -2.0], [7.0, 8.0]], id="first"),
        pytest.param(Pooling.LAST, [[3.0, 0.0], [7.0, 8.0]], id="last"),
        pytest.param(Pooling.MAX, [[3.0, 0.0], [7.0, 8.0]], id="max"),
    ],
)
def test_pool(pooling, expected):
    """Two texts, of two tokens and of one."""
    batch = pack([np.array([5, 6]), np.array([7])])
    hidden = np.array([[1, -2], [3, 0], [7, 8]], np.float32)

    assert expected == pool(hidden, batch, pooling).tolist()


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
