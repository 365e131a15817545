"""Seats on shared jobs: who holds one, who gives it back, and what is left when all have."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from backend.batching.work_item import Job, Priority
from backend.errors import Unavailable
from backend.models.tokenizer import Tokens
from backend.services.coalescing import Flights
from backend.telemetry import Telemetry
from tests.fakes import EchoEngine

TOKENS = Tokens(np.array([101, 102]), truncated=False)


class Queue:
    """Takes jobs and never runs them."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []

    def submit(self, payloads, costs):
        loop = asyncio.get_running_loop()
        new = [
            Job(EchoEngine(), payload, cost, Priority.INTERACTIVE, float("inf"), 0.0, loop.create_future())
            for payload, cost in zip(payloads, costs, strict=True)
        ]
        self.jobs += new
        return new


@pytest.fixture
def flights() -> Flights:
    return Flights(Telemetry())


def board(flights: Flights, queue: Queue, *keys: bytes):
    return flights.board(keys, [TOKENS] * len(keys), queue.submit)


async def test_a_key_under_way_is_joined(flights):
    """New keys get jobs in their order, known ones a seat; cost is the number of tokens."""
    queue = Queue()
    first = board(flights, queue, b"a", b"b")
    second = board(flights, queue, b"c", b"a")

    assert [first[0].job, first[1].job, second[0].job] == queue.jobs
    assert second[1].job is first[0].job
    assert [2, 1, 1] == [job.waiters for job in queue.jobs]
    assert [2, 2, 2] == [job.cost for job in queue.jobs]


async def test_a_job_that_has_ended_is_not_joined(flights):
    """A vector that is there already is the cache's business; here a new job is made."""
    queue = Queue()
    [seat] = board(flights, queue, b"a")
    seat.job.future.set_result("vector")
    [other] = board(flights, queue, b"a")

    assert other.job is not seat.job
    flights.leave([seat])
    assert {b"a": other.job} == flights._jobs


async def test_the_last_to_leave_gives_the_job_up(flights):
    """Not the first."""
    queue = Queue()
    [one], [two] = board(flights, queue, b"a"), board(flights, queue, b"a")

    flights.leave([one])
    assert not one.job.future.done()
    flights.leave([two])
    assert one.job.future.cancelled()
    assert {} == flights._jobs


async def test_a_refusal_takes_no_seat(flights):
    """What submit raises reaches the caller, seats taken on the way are given back, nothing new is noted."""
    queue = Queue()
    [seat] = board(flights, queue, b"a")

    def refuse(payloads, costs):
        raise Unavailable("full")

    with pytest.raises(Unavailable):
        flights.board([b"a", b"b"], [TOKENS] * 2, refuse)

    assert 1 == seat.job.waiters
    assert {b"a"} == set(flights._jobs)


async def test_nothing_new_asks_for_no_job(flights):
    """A request that only joins never touches the queue's limits."""
    board(flights, Queue(), b"a")

    flights.board([b"a"], [TOKENS], lambda payloads, costs: pytest.fail("asked for a job"))


async def test_a_landing_survives_the_others_leaving(flights):
    """One caller's cancelled wait does not cancel the job."""
    queue = Queue()
    [one], [two] = board(flights, queue, b"a"), board(flights, queue, b"a")
    waits = [asyncio.create_task(seat.landing()) for seat in (one, two)]
    await asyncio.sleep(0)
    waits[0].cancel()
    await asyncio.sleep(0)
    flights.leave([one])
    one.job.future.set_result("vector")

    assert await waits[1] == "vector"
    flights.leave([two])
    assert {} == flights._jobs
