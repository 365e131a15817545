"""Rows of waiting jobs; no thread runs here."""

from __future__ import annotations

import asyncio
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.batching.work_item import Job, Priority
from backend.batching.work_queue import WaitingJobs
from tests.fakes import EchoEngine

INTERACTIVE, BULK = Priority.INTERACTIVE, Priority.BULK
ENGINES = (EchoEngine("first"), EchoEngine("second"))


class Seat:
    """A future that has not ended; a real one needs a loop."""

    def done(self) -> bool:
        """Never."""
        return False


def make_job(cost=10, *, engine=ENGINES[0], priority=INTERACTIVE, at_s=0.0, deadline_s=math.inf):
    """A job without a loop."""
    return Job(engine, None, cost, priority, deadline_s, at_s, Seat())


def add(waiting, *jobs):
    """Submit each job on its own."""
    for job in jobs:
        waiting.add([job], job.cost)


@pytest.fixture
def waiting():
    """An empty one, with ageing after 2 s."""
    return WaitingJobs(ageing_s=2.0)


def test_empty(waiting):
    """Nothing waits, nothing is taken."""
    taken = waiting.take(0.0, 0)

    assert (taken.jobs, taken.dropped) == ([], [])
    assert waiting.oldest_s(5.0) == 0.0


def test_one_engine_at_a_time(waiting):
    """A batch never mixes engines; the oldest head decides whose turn it is."""
    first, second, third = make_job(at_s=1), make_job(engine=ENGINES[1], at_s=0), make_job(at_s=2)
    add(waiting, first, second, third)

    assert waiting.take(3.0, 0).jobs == [second]
    assert waiting.take(3.0, 0).jobs == [first, third]


def test_bulk_never_widens_an_interactive_batch(waiting):
    """Priorities do not mix either."""
    bulk, interactive = make_job(priority=BULK), make_job()
    add(waiting, bulk, interactive)

    assert waiting.take(0.0, 0).jobs == [interactive]
    assert waiting.take(0.0, 0).jobs == [bulk]


def test_an_aged_bulk_backlog_takes_every_other_batch(waiting):
    """Neither starves: bulk that aged and fresh interactive work take turns."""
    add(waiting, *(make_job(100, priority=BULK) for _ in range(3)))
    add(waiting, *(make_job(100, at_s=9.0) for _ in range(3)))
    turns = [waiting.take(10.0, 0).jobs[0].priority for _ in range(6)]

    assert turns == [BULK, INTERACTIVE, BULK, INTERACTIVE, BULK, INTERACTIVE]


def test_left_ones_keep_their_order(waiting):
    """What was looked at and not taken goes back to the front, oldest first."""
    jobs = [make_job(cost) for cost in (10, 90, 10, 80, 10)]
    waiting.add(jobs, 200)
    order = [waiting.take(0.0, 0).jobs for _ in range(3)]

    assert order == [[jobs[0], jobs[2], jobs[4]], [jobs[1]], [jobs[3]]]


def test_a_long_job_is_not_starved_by_a_stream_of_short_ones(waiting):
    """Once it is the oldest it goes, however many short ones keep coming."""
    add(waiting, make_job(10))
    long = make_job(95)
    add(waiting, long, *(make_job(10) for _ in range(20)))
    waiting.take(0.0, 0)
    add(waiting, *(make_job(10) for _ in range(20)))

    assert waiting.take(0.0, 0).jobs == [long]


def test_late_ones_are_dropped_on_the_way(waiting):
    """Wherever a look meets a late job it leaves, and its tokens with it."""
    jobs = [make_job(deadline_s=5.0), make_job(), make_job(deadline_s=5.0), make_job()]
    waiting.add(jobs, 40)
    taken = waiting.take(6.0, 0)

    assert taken.jobs == [jobs[1], jobs[3]]
    assert set(taken.dropped) == {jobs[0], jobs[2]}
    assert (waiting.jobs, waiting.tokens) == (0, 0)


def test_all_dropped(waiting):
    """A look may give nothing to run."""
    add(waiting, make_job(deadline_s=5.0), make_job(deadline_s=5.0))
    taken = waiting.take(6.0, 0)

    assert (len(taken.jobs), len(taken.dropped)) == (0, 2)
    assert waiting.jobs == 0


def test_idle_lanes_get_their_part(waiting):
    """Four jobs and another idle lane: two each."""
    waiting.add([make_job(25) for _ in range(4)], 100)

    assert len(waiting.take(0.0, 1).jobs) == 2


def test_a_look_at_ten_thousand_is_bounded(waiting):
    """Only the window is touched: jobs behind it are not even asked whether they are wanted."""
    asked = []

    class Asked(Seat):
        def done(self):
            asked.append(1)
            return False

    jobs = [make_job(10) for _ in range(10_000)]
    for job in jobs:
        job.future = Asked()
    waiting.add(jobs, 100_000)
    waiting.take(0.0, 0)

    assert len(asked) <= 100  # the head, then eight batches of ten; the head is asked twice


def test_clear(waiting):
    """Nothing is left."""
    add(waiting, make_job(), make_job(priority=BULK))
    waiting.clear()

    assert (waiting.jobs, waiting.tokens, waiting.oldest_s(9.0)) == (0, 0, 0.0)


@given(
    st.lists(
        st.tuples(
            st.integers(1, 300), st.sampled_from(Priority), st.sampled_from(ENGINES), st.sampled_from([1.0, 9.0])
        ),
        max_size=200,
    ),
    st.integers(0, 3),
)
def test_every_job_leaves_once(specs, idle_lanes):
    """Whatever comes in: each job leaves once, batches keep to the budget and to one row, counts end at zero."""
    waiting = WaitingJobs(ageing_s=2.0)
    jobs = [make_job(cost, priority=priority, engine=engine, deadline_s=late) for cost, priority, engine, late in specs]
    add(waiting, *jobs)
    gone = []
    while waiting.jobs:
        taken = waiting.take(5.0, idle_lanes)
        gone += taken.jobs + taken.dropped
        assert all(job.deadline_s == 1.0 for job in taken.dropped)
        assert len({(id(job.engine), job.priority) for job in taken.jobs}) <= 1
        assert len(taken.jobs) <= 1 or max(job.cost for job in taken.jobs) * len(taken.jobs) <= 100

    assert len(gone) == len(jobs)
    assert set(gone) == set(jobs)
    assert waiting.tokens == 0


async def test_cancelled_futures_are_dropped(waiting):
    """A real future, cancelled by its caller."""
    job = make_job()
    job.future = asyncio.get_running_loop().create_future()
    add(waiting, job)
    job.future.cancel()

    assert waiting.take(0.0, 0).dropped == [job]
