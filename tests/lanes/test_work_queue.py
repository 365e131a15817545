"""The FIFOs of the work queue; no thread runs here."""

import math
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.lanes.engine import UnlimitedBatches, unlimited_count
from backend.lanes.work_queue import Priority, WorkItem, WorkQueue
from tests.fakes import EchoEngine

INTERACTIVE, BULK = Priority.INTERACTIVE, Priority.BULK
ENGINES = (EchoEngine("first"), EchoEngine("second"))


class PendingFuture:
    """A future that has not ended; a real one needs a loop."""

    def done(self) -> bool:
        return False


def make_item(cost=10, *, engine=ENGINES[0], priority=INTERACTIVE, at_s=0.0, deadline_s=math.inf, owner=""):
    """An item without a loop."""
    return WorkItem(engine, None, cost, priority, deadline_s, at_s, PendingFuture(), owner)


def add(queue, *items):
    """Submit each item on its own."""
    for item in items:
        queue.add([item], item.cost)


def take(queue, now_s, idle_lanes):
    """What a lane does: see whose turn it is, ask what fits, take."""
    turn = queue.next_turn(now_s)
    capacity = unlimited_count if turn is None else turn.engine.batch_limits.capacity()
    return queue.take(turn, capacity, now_s, idle_lanes)


@pytest.fixture
def queue():
    """An empty queue, with ageing after 2 s."""
    return WorkQueue(ageing_s=2.0)


def test_one_engine_at_a_time(queue):
    """A batch never mixes engines; the oldest head decides whose turn it is."""
    first, second, third = make_item(), make_item(engine=ENGINES[1], at_s=1), make_item(at_s=2)
    add(queue, first, second, third)

    assert take(queue, 3.0, 0).items == [first, third]
    assert take(queue, 3.0, 0).items == [second]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("priority", Priority)
def test_a_short_request_passes_by_what_another_owner_queued(queue, engine, priority):
    """Whichever of the two loaded engines it asks, and whenever it comes."""
    for each in ENGINES:
        queue.add([make_item(10, engine=each, priority=priority, owner="ana") for _ in range(100)], 1000)
    for came_s in (0.0, 1.0):
        take(queue, came_s, 0)
        short = make_item(10, engine=engine, priority=priority, at_s=came_s, owner="eva")
        add(queue, short)

        assert short in take(queue, came_s, 0).items + take(queue, came_s, 0).items


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 30)), min_size=1, max_size=100), st.integers(0, 50))
def test_owners_take_turns_by_cost(specs, late):
    """While two wait, neither gets more than the other by over a batch and an item each; an owner's keep their order.

    The engine runs what comes first, so that only turns decide.
    """
    engine, queue = EchoEngine(padding_cost=0.0), WorkQueue(ageing_s=2.0)
    items = [make_item(cost, engine=engine, owner=owner) for owner, cost in specs]
    add(queue, *items[late:])
    batches = [take(queue, 0.0, 0).items] if items[late:] else []
    add(queue, *items[:late])
    taken, arrived = list(chain(*batches)), [*items[late:], *items[:late]]
    got = dict.fromkeys("abc", 0)
    while queue.items:
        batch = take(queue, 0.0, 0).items
        taken += batch
        for item in batch:
            got[item.owner] += item.cost
        waiting = {owner for owner in "abc" if any(item.owner == owner and item not in taken for item in arrived)}
        assert (
            max((got[owner] for owner in waiting), default=0) - min((got[owner] for owner in waiting), default=0) <= 160
        )

    assert all(
        [item for item in taken if item.owner == owner] == [item for item in arrived if item.owner == owner]
        for owner in "abc"
    )


def test_an_aged_bulk_backlog_takes_every_other_batch(queue):
    """Neither starves: bulk that aged and fresh interactive work take turns."""
    add(queue, *(make_item(100, priority=BULK) for _ in range(3)))
    add(queue, *(make_item(100, at_s=9.0) for _ in range(3)))
    turns = [take(queue, 10.0, 0).items[0].priority for _ in range(6)]

    assert turns == [BULK, INTERACTIVE, BULK, INTERACTIVE, BULK, INTERACTIVE]


def test_left_ones_keep_their_order(queue):
    """Items examined and not taken go back to the front, oldest first."""
    items = [make_item(cost) for cost in (10, 90, 10, 80, 10)]
    queue.add(items, 200)
    order = [take(queue, 0.0, 0).items for _ in range(3)]

    assert order == [[items[0], items[2], items[4]], [items[1]], [items[3]]]


def test_items_of_several_owners_are_promoted_together(queue):
    """They go before the bulk work that stays; what a lane has taken is left alone."""
    items = [make_item(30, priority=BULK, owner=owner) for owner in "aabbab"]
    add(queue, *items)

    assert [items[0], items[2], items[1]] == take(queue, 0.0, 0).items
    queue.promote([items[1], items[4], items[3]], INTERACTIVE)
    assert {items[3], items[4]} == set(take(queue, 0.0, 0).items)
    assert [items[5]] == take(queue, 0.0, 0).items
    assert items[1].priority is BULK
    assert (0, 0) == (queue.items, queue.tokens)


def test_a_long_item_is_not_starved_by_a_stream_of_short_ones(queue):
    """Once it is the oldest it goes, however many short ones keep coming."""
    add(queue, make_item(10))
    long = make_item(95)
    add(queue, long, *(make_item(10) for _ in range(20)))
    take(queue, 0.0, 0)
    add(queue, *(make_item(10) for _ in range(20)))

    assert take(queue, 0.0, 0).items == [long]


def test_idle_lanes_get_their_share(queue):
    """Four items and another idle lane: two each."""
    queue.add([make_item(25) for _ in range(4)], 100)

    assert len(take(queue, 0.0, 1).items) == 2


def test_a_take_from_ten_thousand_examines_few(queue):
    """Only the lookahead is examined: whether items behind it are wanted is not checked."""
    checks = []

    class CountingFuture(PendingFuture):
        def done(self):
            checks.append(1)
            return False

    items = [make_item(10) for _ in range(10_000)]
    for item in items:
        item.future = CountingFuture()
    queue.add(items, 100_000)
    take(queue, 0.0, 0)

    assert len(checks) <= 100  # the head, then eight batches of ten; the head is checked twice


@given(
    st.lists(
        st.tuples(
            st.integers(1, 300), st.sampled_from(Priority), st.sampled_from(ENGINES), st.sampled_from([1.0, 9.0])
        ),
        max_size=200,
    ),
    st.integers(0, 3),
)
def test_every_item_leaves_once(specs, idle_lanes):
    """Whatever comes in: each item leaves once, batches keep to the budget and to one FIFO, counts end at zero."""
    queue = WorkQueue(ageing_s=2.0)
    items = [
        make_item(cost, priority=priority, engine=engine, deadline_s=late) for cost, priority, engine, late in specs
    ]
    add(queue, *items)
    gone = []
    while queue.items:
        dequeued = take(queue, 5.0, idle_lanes)
        gone += dequeued.items + dequeued.dropped
        assert all(item.deadline_s == 1.0 for item in dequeued.dropped)
        assert len({(id(item.engine), item.priority) for item in dequeued.items}) <= 1
        assert len(dequeued.items) <= 1 or max(item.cost for item in dequeued.items) * len(dequeued.items) <= 100

    assert len(gone) == len(items)
    assert set(gone) == set(items)
    assert queue.tokens == 0


class FailingLimits(UnlimitedBatches):
    """A device whose memory cannot be read, or for a second text only."""

    def __init__(self, *, at: str) -> None:
        self.at = at

    def capacity(self):
        if self.at == "snapshot":
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return self._room

    def _room(self, longest: int) -> int:
        if longest > 10:
            raise RuntimeError("no table")
        return 1 << 30


@pytest.mark.parametrize("at", ["snapshot", "length"])
@pytest.mark.parametrize("padding_cost", [1.0, 0.0])
def test_nothing_is_lost_when_the_devices_memory_cannot_be_read(queue, at, padding_cost):
    """All items stay in their order, and what was dropped before is returned by the next take."""
    engine = EchoEngine(budget=1000, padding_cost=padding_cost, batch_limits=FailingLimits(at=at))
    late, *items = [
        make_item(9, engine=engine, deadline_s=1.0),
        *(make_item(cost, engine=engine) for cost in (9, 11, 9)),
    ]
    add(queue, late, *items)
    with pytest.raises(RuntimeError):
        take(queue, 2.0, 0)
    assert (3, 29) == (queue.items, queue.tokens)
    engine.batch_limits = UnlimitedBatches()
    dequeued = take(queue, 2.0, 0)

    assert [late] == dequeued.dropped
    assert items == dequeued.items
    assert (0, 0) == (queue.items, queue.tokens)


def test_an_engine_without_padding_runs_what_came_first(queue):
    """Lengths are not sorted: the oldest leave until the rows are full."""
    engine = EchoEngine(padding_cost=0.0)
    items = [make_item(cost, engine=engine) for cost in (5, 80, 10, 6, 5)]
    add(queue, *items)

    assert items[:3] == take(queue, 0.0, 0).items
    assert items[3:] == take(queue, 0.0, 0).items


def test_an_unwanted_item_of_a_packed_batch_leaves_its_place_to_the_next(queue):
    """A batch is chosen again without it."""
    engine = EchoEngine(padding_cost=0.0)
    items = [make_item(50, engine=engine, deadline_s=late) for late in (9.0, 1.0, 9.0, 9.0)]
    add(queue, *items)
    dequeued = take(queue, 2.0, 0)

    assert [items[0], items[2]] == dequeued.items
    assert [items[1]] == dequeued.dropped
    assert [items[3]] == take(queue, 2.0, 0).items


def test_an_engines_launch_cost_fills_the_batch(queue):
    """What is padded within a launch goes at once."""
    engine = EchoEngine(budget=1000, launch_cost=400)
    items = [make_item(cost, engine=engine) for cost in (10, 90, 40, 60)]
    add(queue, *items)

    assert items == take(queue, 0.0, 0).items


def test_a_turn_whose_items_another_lane_took(queue):
    """Nothing is left to take; items of another engine are not taken with the first one's capacity."""
    add(queue, make_item(), make_item(engine=ENGINES[1]))
    turn = queue.next_turn(0.0)
    take(queue, 0.0, 0)

    assert [] == queue.take(turn, unlimited_count, 0.0, 0).items
    assert 1 == queue.items
