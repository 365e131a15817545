"""Effective batches: every example once an epoch, the costliest first, the same after a resume and on any rank."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.errors import BadCheckpoint, BadData
from backend.training.data.batches import EffectiveBatchSampler, micro_batches, share

LENGTHS = [int(length) for length in np.random.default_rng(5).integers(4, 200, 103)]


def epochs(sampler: EffectiveBatchSampler, count: int) -> list[list[list[int]]]:
    """The batches of the next ``count`` epochs, walked through."""
    found = []
    for _ in range(count):
        batches = sampler.remaining()
        found.append(batches)
        for _ in batches:
            sampler.advance()
    return found


@given(
    lengths=st.lists(st.integers(1, 500), min_size=1, max_size=120),
    batch_size=st.integers(1, 40),
    grouped=st.booleans(),
    seed=st.integers(-5, 2**70),
)
def test_every_example_comes_once_an_epoch(lengths, batch_size, grouped, seed):
    """No example is dropped or repeated, no batch is too large or empty, whatever the sizes."""
    for batches in epochs(EffectiveBatchSampler(lengths, batch_size, seed=seed, group_by_length=grouped), 2):
        assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
        assert all(0 < len(batch) <= batch_size for batch in batches)
        assert len(batches) == -(-len(lengths) // batch_size)
        assert [sorted((lengths[index] for index in batch), reverse=True) for batch in batches] == [
            [lengths[index] for index in batch] for batch in batches
        ]
        costs = [max(lengths[index] for index in batch) * len(batch) for batch in batches]
        assert costs[0] == max(costs)


def test_epochs_differ_and_seeds_decide():
    """Another epoch or seed gives another order; the same seed the same one."""
    first, second = epochs(EffectiveBatchSampler(LENGTHS, 8, seed=1), 2)

    assert first != second
    assert first == EffectiveBatchSampler(LENGTHS, 8, seed=1).remaining()
    assert first != EffectiveBatchSampler(LENGTHS, 8, seed=2).remaining()


def test_grouping_pads_less():
    """Padded cells are a good part fewer than with random batches."""

    def padded(grouped: bool) -> int:
        batches = EffectiveBatchSampler(LENGTHS, 8, seed=1, group_by_length=grouped).remaining()
        return sum(len(batch) * LENGTHS[batch[0]] for batch in batches)

    assert padded(True) < 0.85 * padded(False)


@pytest.mark.parametrize("stop", [0, 12, 20])
def test_resuming_goes_on_where_it_was(stop):
    """After any number of batches a saved state, also through JSON, brings the same batches."""
    whole = EffectiveBatchSampler(LENGTHS, 8, seed=9)
    for _ in range(stop):
        whole.advance()
    state = json.loads(json.dumps(whole.state()))

    again = EffectiveBatchSampler(LENGTHS, 8, seed=9)
    again.load(state)

    assert (again.epoch, again.position) == divmod(stop, 13)
    assert again.progress == pytest.approx(stop / 13)
    assert epochs(whole, 2) == epochs(again, 2)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        pytest.param({"lengths": LENGTHS[:-1]}, "examples was 103 and is 102", id="fewer-examples"),
        pytest.param({"lengths": [*LENGTHS[1:], LENGTHS[0]]}, "lengths was", id="another-order"),
        pytest.param({"batch_size": 4}, "batch_size was 8 and is 4", id="another-batch"),
        pytest.param({"seed": 1}, "seed was 9 and is 1", id="another-seed"),
        pytest.param({"group_by_length": False}, "group_by_length was True and is False", id="ungrouped"),
    ],
)
def test_another_plan_is_refused(change, named):
    """Positions in other batches mean nothing: what differs is said."""
    state = EffectiveBatchSampler(LENGTHS, 8, seed=9).state()
    other = EffectiveBatchSampler(**{"lengths": LENGTHS, "batch_size": 8, "seed": 9} | change)

    with pytest.raises(BadCheckpoint, match=named):
        other.load(state)


def test_leaving_out_examples_keeps_the_other_batches():
    """The others stay in their batches; a batch that is empty then keeps its place; resuming remembers."""
    sampler = EffectiveBatchSampler(LENGTHS, 8, seed=9)
    before = sampler.remaining()
    bad = [*before[1], before[4][2]]
    sampler.leave_out(bad)

    after = sampler.remaining()

    assert after[1] == []
    assert after[4] == [index for index in before[4] if index != before[4][2]]
    assert [after[place] for place in (0, 2, 3)] == [before[place] for place in (0, 2, 3)]
    again = EffectiveBatchSampler(LENGTHS, 8, seed=9)
    again.load(sampler.state())
    assert again.left_out == tuple(sorted(bad))
    assert again.remaining() == after


def test_ranks_share_a_batch():
    """All ranks together run exactly the batch, counts differ by one at most, and each gets long and short ones."""
    batch = EffectiveBatchSampler(LENGTHS, 32, seed=2).remaining()[0]
    shares = [share(batch, rank, 3) for rank in range(3)]

    assert sorted(batch) == sorted(index for rank_share in shares for index in rank_share)
    assert [11, 11, 10] == [len(rank_share) for rank_share in shares]
    longest = sorted(LENGTHS[index] for index in batch)[-3:]
    assert sorted(LENGTHS[rank_share[0]] for rank_share in shares) == longest
    assert share([4], 1, 2) == []


def test_cuts():
    """Micro-batches are cut in order."""
    assert [[0, 1, 2], [3, 4, 5], [6]] == micro_batches(range(7), 3)
    assert [] == micro_batches([], 3)


def test_no_examples():
    """An empty data set is an error."""
    with pytest.raises(BadData, match="no example"):
        EffectiveBatchSampler([], 8)
