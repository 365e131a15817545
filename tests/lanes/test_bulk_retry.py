"""What background work tries again, how long it waits, and what ends it."""

import math

import pytest

from backend.errors import (
    DeadlineExceeded,
    DeviceLost,
    FinanciaError,
    InferenceFailed,
    InvalidField,
    NotInstalled,
    Overloaded,
    Unavailable,
)
from backend.lanes.inference import retry_bulk
from backend.lanes.work_queue import Priority
from tests.fakes import ManualClock


class Attempts:
    """Raises ``errors`` one after another, then answers; time passes only while it sleeps."""

    def __init__(self, *errors: FinanciaError) -> None:
        self.errors, self.count, self.waits = list(errors), 0, list[float]()
        self.clock = ManualClock(0.0)

    async def attempt(self) -> int:
        self.count += 1
        if self.errors:
            raise self.errors.pop(0)
        return self.count

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.clock.advance(seconds)

    async def run(self, priority: Priority = Priority.BULK, deadline_s: float = math.inf, jitter: float = 0.0) -> int:
        return await retry_bulk(
            (priority, deadline_s), self.attempt, sleep=self.sleep, clock=self.clock, jitter=lambda: jitter
        )


def full(retry_after_s: float = 0.0) -> Overloaded:
    return Overloaded(10, 10, retry_after_s)


async def test_waits_grow():
    """Up to ten seconds."""
    attempts = Attempts(*(full() for _ in range(8)))

    assert 9 == await attempts.run()
    assert [0.25, 0.5, 1, 2, 4, 8, 10, 10] == attempts.waits


async def test_retry_after_is_heeded_within_ten_seconds():
    attempts = Attempts(full(3.0), full(60.0))

    assert 3 == await attempts.run()
    assert [3.0, 10.0] == attempts.waits


async def test_pages_do_not_come_back_together():
    attempts = Attempts(full(4.0))
    await attempts.run(jitter=0.5)

    assert [3.0] == attempts.waits


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(full(), id="full"),
        pytest.param(Unavailable("no process can be started"), id="unavailable-for-now"),
        pytest.param(Unavailable("the lane died", kind="lane_died"), id="a-dead-lane"),
    ],
)
async def test_requests_fail_at_once(error):
    """Their callers can ask elsewhere; background work tries again."""
    interactive, bulk = Attempts(error), Attempts(error)

    with pytest.raises(type(error)):
        await interactive.run(Priority.INTERACTIVE)
    assert 2 == await bulk.run()


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(InvalidField("pages: none"), id="the-requests-fault"),
        pytest.param(InferenceFailed("broken"), id="the-inputs-fault"),
        pytest.param(DeadlineExceeded(1.0), id="late"),
        pytest.param(Unavailable("stopping", kind="for_good"), id="the-process-stops"),
        pytest.param(NotInstalled("no speech model"), id="not-installed"),
        pytest.param(DeviceLost("the card is gone"), id="a-lost-device"),
    ],
)
async def test_what_waiting_does_not_cure(error):
    attempts = Attempts(error)

    with pytest.raises(type(error)):
        await attempts.run()
    assert 1 == attempts.count


async def test_an_input_under_which_lanes_die():
    """It is given up before it has ended every lane; a full queue between does not excuse it."""
    dead = [Unavailable("the lane died", kind="lane_died") for _ in range(3)]
    attempts = Attempts(dead[0], full(), dead[1], dead[2])

    with pytest.raises(InferenceFailed, match="died 2 times"):
        await attempts.run()
    assert 3 == attempts.count


async def test_an_input_that_hangs_its_reader_is_given_up():
    """Retryably, as a machine that is too busy cannot be told from it."""
    attempts = Attempts(*(Unavailable("ended after 60 s", kind="starved") for _ in range(9)))

    with pytest.raises(Unavailable, match="60 s"):
        await attempts.run()
    assert 5 == attempts.count


async def test_the_deadline_ends_it():
    """With a last try when it has come."""
    attempts = Attempts(*(full(7.0) for _ in range(9)))

    with pytest.raises(DeadlineExceeded, match="LIMIT_QUEUE_TOKENS"):
        await attempts.run(deadline_s=10.0)
    assert [7.0, 3.0] == attempts.waits
    assert 3 == attempts.count
