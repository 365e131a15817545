"""Scheduling and admission decisions, as tables; no thread runs here."""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.lanes import work_queue
from backend.lanes.work_queue import (
    Admission,
    Priority,
    QueueHead,
    Throughput,
    admit,
    admit_single,
    equivalent_count,
    first_come,
    lane_budget,
    next_batch,
    next_queue,
    portions,
    retry_after_s,
)

bulk, interactive = partial(QueueHead, Priority.BULK), partial(QueueHead, Priority.INTERACTIVE)


@pytest.mark.parametrize(
    ("costs", "expected"),
    [
        pytest.param([10], [0], id="alone-without-waiting-for-more"),
        pytest.param([500], [0], id="over-the-budget-alone"),
        pytest.param([500, 1, 1], [0], id="over-the-budget-takes-no-others"),
        pytest.param([40, 40, 40], [0, 1], id="full-by-padded-cost"),
        pytest.param([10, 90, 10], [0, 2], id="a-long-item-would-widen-everyone"),
        pytest.param([30, 10, 29, 31], [0, 2, 3], id="the-closest-in-length-join"),
        pytest.param([33, 33, 33, 33], [0, 1, 2], id="the-older-joins-among-equals"),
        pytest.param([10, 14], [0], id="more-padding-than-a-launch-is-worth"),
        pytest.param([10, 13], [0, 1], id="as-much-padding-as-a-launch-is-worth"),
        pytest.param([60, 50, 1], [0], id="too-long-for-others"),
        pytest.param([0, 0], [0, 1], id="free-items"),
    ],
)
def test_next_batch(costs, expected):
    """A batch starts from the oldest item and takes others of its length while padding fits the budget."""
    assert expected == next_batch(costs, 100)


@given(st.lists(st.integers(1, 600), min_size=1, max_size=300), st.integers(1, 1024))
def test_no_batch_exceeds_the_budget_unless_alone(costs, budget):
    """Longest x count never passes the budget, the oldest always goes, and nothing goes twice."""
    batch = next_batch(costs, budget)

    assert batch[0] == 0
    assert sorted(set(batch)) == batch
    assert len(batch) == 1 or max(costs[index] for index in batch) * len(batch) <= budget


@given(st.lists(st.integers(1, 600), min_size=1, max_size=100), st.integers(1, 1024))
def test_every_item_goes_after_at_most_as_many_batches_as_stand_before_it(costs, budget):
    """Repeated cutting empties the queue, and an item is never overtaken for longer than its place in it."""
    waiting = list(enumerate(costs))
    turns = 0
    while waiting:
        batch = set(next_batch([cost for _, cost in waiting], budget))
        assert all(waiting[index][0] >= turns for index in batch)
        waiting = [item for index, item in enumerate(waiting) if index not in batch]
        turns += 1

    assert turns <= len(costs)


@pytest.mark.parametrize(
    ("heads", "bulk_went_last", "expected"),
    [
        pytest.param([interactive(95), interactive(94)], False, 1, id="the-oldest"),
        pytest.param([interactive(94, 8), interactive(95, 7)], False, 1, id="the-first-turn-before-the-oldest"),
        pytest.param([bulk(80, 2), bulk(81, 1), interactive(99, 9)], False, 1, id="the-first-turn-of-aged-bulk"),
        pytest.param([bulk(94), interactive(99)], False, 1, id="interactive-before-older-bulk"),
        pytest.param([bulk(80), interactive(99)], False, 0, id="aged-bulk-counts-as-interactive"),
        pytest.param([bulk(80), interactive(70)], False, 1, id="the-older-of-aged-and-interactive"),
        pytest.param([bulk(80), interactive(99)], True, 1, id="aged-bulk-never-twice-while-others-wait"),
        pytest.param([bulk(80), bulk(81)], True, 0, id="bulk-twice-when-nobody-else-waits"),
        pytest.param([bulk(90), interactive(99)], False, 1, id="exactly-the-age-is-not-yet-aged"),
    ],
)
def test_next_queue(heads, bulk_went_last, expected):
    """The oldest head of the highest effective priority goes; at 100 s, with ageing after 10 s."""
    assert expected == next_queue(heads, 100.0, ageing_s=10.0, bulk_went_last=bulk_went_last)


@pytest.mark.parametrize(
    ("queued", "idle_lanes", "expected"),
    [
        pytest.param(1000, 0, 512, id="nobody-idle-nothing-shared"),
        pytest.param(600, 1, 309, id="two-lanes-take-half-each-and-some-padding"),
        pytest.param(2000, 1, 512, id="enough-for-all"),
        pytest.param(100, 3, 128, id="not-below-a-quarter-of-the-budget"),
    ],
)
def test_lane_budget(queued, idle_lanes, expected):
    """Idle lanes get their part of a small queue."""
    assert expected == lane_budget(512, queued, idle_lanes)


@pytest.mark.parametrize(
    ("queued", "new", "items", "own", "expected"),
    [
        pytest.param(0, 100, 2, None, Admission.ACCEPTED, id="just-the-limit"),
        pytest.param(60, 40, 2, None, Admission.ACCEPTED, id="the-last-tokens"),
        pytest.param(61, 40, 2, None, Admission.FULL, id="full-for-now"),
        pytest.param(0, 101, 2, None, Admission.NEVER, id="over-the-limit-alone"),
        pytest.param(99, 101, 2, None, Admission.NEVER, id="over-the-limit-alone-even-when-full"),
        pytest.param(0, 101, 1, None, Admission.ACCEPTED, id="one-item-over-the-limit-alone"),
        pytest.param(1, 101, 1, None, Admission.FULL, id="one-item-over-the-limit-waits-for-an-empty-queue"),
        pytest.param(31, 21, 2, 30, Admission.FULL, id="more-than-its-half-while-another-waits"),
        pytest.param(31, 21, 1, 30, Admission.FULL, id="one-item-more-than-its-half"),
        pytest.param(31, 20, 2, 30, Admission.ACCEPTED, id="just-its-half"),
        pytest.param(30, 70, 2, 30, Admission.ACCEPTED, id="all-of-it-alone"),
        pytest.param(100, 4, 2, 2, Admission.ACCEPTED, id="always-a-sixteenth"),
        pytest.param(100, 5, 2, 2, Admission.FULL, id="more-than-a-sixteenth-of-a-full-queue"),
        pytest.param(30, 70, 2, 0, Admission.ACCEPTED, id="the-first-request-of-an-owner-may-have-the-rest"),
    ],
)
def test_admit(queued, new, items, own, expected):
    """A request is taken whole or not at all; at a limit of 100 tokens."""
    assert expected == (admit_single if items == 1 else admit)(queued, new, 100, own)


@pytest.mark.parametrize(
    ("costs", "expected"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param([40, 60], [[40, 60]], id="just-the-limit"),
        pytest.param([40, 61, 30], [[40], [61, 30]], id="cut-where-it-is-full"),
        pytest.param([5, 500, 5], [[5], [500], [5]], id="one-over-the-limit-goes-alone"),
    ],
)
def test_portions(costs, expected):
    """In order, each within the limit of 100 tokens or a single item."""
    assert expected == [costs[part] for part in portions(costs, 100)]


@pytest.mark.parametrize(
    ("queued", "rate", "expected"),
    [
        pytest.param(5000, 1000.0, 5.0, id="queued-over-rate"),
        pytest.param(5000, 0.0, work_queue.RETRY_UNKNOWN_S, id="nothing-measured-yet"),
        pytest.param(1, 1000.0, work_queue.RETRY_MIN_S, id="never-at-once"),
        pytest.param(10**9, 1.0, work_queue.RETRY_MAX_S, id="never-for-ever"),
    ],
)
def test_retry_after_s(queued, rate, expected):
    """The time the lanes need for what is queued now, within bounds."""
    assert expected == retry_after_s(queued, rate)


def test_throughput_is_exact_after_the_first_batch():
    """One batch is enough to know a rate; batches weigh by their time."""
    assert Throughput().per_s == 0.0
    assert Throughput().after(500, 0.5).per_s == 1000.0
    assert Throughput().after(500, 0.5).after(0, 1.0).per_s < 500.0


@pytest.mark.parametrize(
    ("costs", "capacity", "expected"),
    [
        pytest.param([10, 10, 10, 10], {10: 2}, [0, 1], id="memory-before-the-budget"),
        pytest.param([10, 10, 10, 10], {10: 9}, [0, 1, 2, 3], id="memory-for-all"),
        pytest.param([10, 11, 10, 10], {10: 3, 11: 1}, [0, 2, 3], id="a-longer-one-would-not-fit"),
        pytest.param([10, 10], {10: 1}, [0], id="one-at-a-time"),
    ],
)
def test_memory_limits_a_batch(costs, capacity, expected):
    """Items join while as many as long as the longest fit the device; the oldest always goes."""
    assert expected == next_batch(costs, 1000, capacity=lambda longest: capacity[longest])


# 997 tokens together: what came within a moment, as texts over HTTP are.
SHORT = [
    12, 31, 44, 9, 27, 60, 18, 22, 35, 51, 14, 8, 90, 41, 33, 26, 19, 73, 11, 38, 29, 47, 16, 24, 55, 7, 30, 66, 21,
    40,
]  # fmt: skip


def test_padding_within_a_launch_is_free():
    """A card takes 30 short texts at once: one launch more costs more than all their padding."""
    assert 23 == len(next_batch(SHORT, 16384))
    assert list(range(30)) == next_batch(SHORT, 16384, launch_cost=2700)


@pytest.mark.parametrize(
    ("launch_cost", "expected"),
    [
        pytest.param(0, [0], id="unknown"),
        pytest.param(179, [0], id="padded-costs-more-than-a-launch"),
        pytest.param(180, [0, 1], id="padded-costs-a-launch"),
        pytest.param(10_000, [0, 1], id="never-over-the-budget"),
    ],
)
def test_padding_costs_beyond_a_launch(launch_cost, expected):
    """Two texts of 10 and 90 tokens are 180 padded ones; the third would make 270 of a budget of 200."""
    assert expected == next_batch([10, 90, 90], 200, launch_cost=launch_cost)


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=80),
    st.integers(1, 2000),
    st.sampled_from([0.1, 1.0]),
    st.integers(0, 500),
    st.integers(1, 4000),
)
def test_looking_no_further_changes_nothing(costs, budget, padding_cost, launch_cost, memory):
    """Ending the search at the first item refused on either side gives what trying every item gives."""

    def capacity(longest: int) -> int:
        return max(1, memory // max(1, longest))

    head = longest = total = costs[0]
    expected = [0]
    for index in sorted(range(1, len(costs)), key=lambda index: abs(costs[index] - head)):
        count, new_longest = len(expected) + 1, max(longest, costs[index])
        padded = new_longest * count
        cheap = padded <= launch_cost or (padded - total - costs[index]) * padding_cost <= budget / 32
        if padded <= budget and cheap and count <= capacity(new_longest):
            expected.append(index)
            longest, total = new_longest, total + costs[index]

    assert sorted(expected) == next_batch(costs, budget, padding_cost, capacity, launch_cost=launch_cost)


def test_memory_is_asked_once_a_length():
    """The device's table is read for each longest text, not for each text."""
    asked: list[int] = []

    def capacity(longest: int) -> int:
        asked.append(longest)
        return 1 << 30

    next_batch([10] * 200 + [11] * 200, 16384, capacity=capacity)

    assert [10, 11] == asked[:2]
    assert len(asked) < 10


@pytest.mark.parametrize(
    ("costs", "expected"),
    [
        pytest.param([10], 1, id="alone"),
        pytest.param([500, 1], 1, id="over-the-budget-alone"),
        pytest.param([1, 90, 9, 1], 3, id="lengths-need-not-be-alike"),
        pytest.param([10, 95, 1], 1, id="in-their-order"),
        pytest.param([0, 0, 100, 0], 4, id="free-items"),
    ],
)
def test_first_come(costs, expected):
    """Without padding a batch is what came first, until its rows are full; at a budget of 100."""
    assert expected == first_come(costs, 100)


@pytest.mark.parametrize(
    ("costs", "expected"),
    [
        pytest.param([10, 10, 10, 10, 10], 4, id="forty-rows-of-short-ones"),
        pytest.param([10, 20, 10, 10], 1, id="a-longer-one-takes-more-for-each-row"),
        pytest.param([20, 10], 1, id="the-longest-decides"),
    ],
)
def test_first_come_within_memory(costs, expected):
    """The device has room for four texts of 10 tokens, or for one of 20."""
    assert expected == first_come(costs, 1000, {10: 4, 20: 1}.__getitem__)


def test_first_come_is_bounded():
    """A batch never has more items than a launch repays, and the queue behind it is not read."""
    costs = iter([1] * 10_000)

    assert work_queue.BATCH_ITEMS_MAX == first_come(costs, 1 << 30)
    assert 10_000 - work_queue.BATCH_ITEMS_MAX - 1 == len(list(costs))


@pytest.mark.parametrize(
    ("costs", "padding_cost", "expected"),
    [([10, 10, 30], 1.0, 3), ([10, 10, 30], 0.1, 3), ([10, 10, 30], 0.0, 2), ([0, 0], 0.0, 2)],
)
def test_equivalent_count(costs, padding_cost, expected):
    """A padded batch takes the memory of its count of the longest; packed rows take that of 50 / 30 of them."""
    assert expected == equivalent_count(costs, padding_cost)
