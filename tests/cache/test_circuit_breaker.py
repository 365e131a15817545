"""The circuit: who may call, and what an outcome changes."""

from __future__ import annotations

import pytest

from backend.cache.circuit_breaker import BreakerPolicy, CircuitBreaker, State
from tests.fakes import ManualClock

POLICY = BreakerPolicy(failures=3, backoff_s=1.0, backoff_max_s=5.0)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def circuit(clock):
    """A circuit that has done work, so it bears failures."""
    breaker = CircuitBreaker(POLICY, clock)
    breaker.succeed(breaker.ask())
    return breaker


def fail(circuit, times=1):
    for _ in range(times):
        circuit.fail(circuit.ask())


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        pytest.param("", State.CLOSED, id="fresh"),
        pytest.param("ff", State.CLOSED, id="two-failures-are-borne"),
        pytest.param("fff", State.OPEN, id="three-in-a-row-open"),
        pytest.param("ffsff", State.CLOSED, id="a-success-starts-the-count-anew"),
        pytest.param("ffsfff", State.OPEN, id="three-in-a-row-after-a-success"),
        pytest.param("aaaa", State.CLOSED, id="abandoned-calls-say-nothing"),
        pytest.param("ffaf", State.OPEN, id="nor-do-they-interrupt-a-row"),
    ],
)
def test_what_opens_a_closed_circuit(circuit, outcomes, expected):
    """Failures in a row open it; success and silence do not."""
    report = {"f": circuit.fail, "s": circuit.succeed, "a": circuit.abandon}
    for outcome in outcomes:
        report[outcome](circuit.ask())

    assert expected == circuit.state


def test_a_new_circuit_opens_at_its_first_failure(clock):
    """A neighbour that was never there costs one failure, not three."""
    breaker = CircuitBreaker(POLICY, clock)
    fail(breaker)

    assert breaker.state is State.OPEN


def test_open_until_the_backoff_is_over_then_one_probe(circuit, clock):
    """Nobody may call while it is open; then exactly one may, until it has reported."""
    fail(circuit, 3)
    clock.advance(0.999)

    assert circuit.ask() is None
    assert circuit.retry_in_s() == pytest.approx(0.001)
    clock.advance(0.001)
    probe = circuit.ask()
    assert probe is not None
    assert probe.probe
    assert circuit.state is State.HALF_OPEN
    assert [None, None] == [circuit.ask(), circuit.ask()]
    circuit.succeed(probe)
    assert circuit.state is State.CLOSED
    assert circuit.retry_in_s() == 0


def test_backoff_doubles_to_its_cap(circuit, clock):
    """Each failed probe doubles the wait, up to the cap, however long it goes on."""
    fail(circuit, 3)
    waits = []
    for _ in range(2000):
        waits.append(circuit.retry_in_s())
        clock.advance(waits[-1])
        fail(circuit)

    assert [1.0, 2.0, 4.0, 5.0, 5.0] == pytest.approx(waits[:5])
    assert waits[-1] == pytest.approx(5.0)


def test_a_probe_is_not_yet_trust(circuit, clock):
    """A neighbour that answers probes and fails at work is left alone ever longer."""
    fail(circuit, 3)
    waits = []
    for _ in range(4):
        waits.append(circuit.retry_in_s())
        clock.advance(waits[-1])
        circuit.succeed(circuit.ask())
        fail(circuit)

    assert [1.0, 2.0, 4.0, 5.0] == pytest.approx(waits)


def test_work_done_restores_trust(circuit, clock):
    """After a success at work failures are borne again and the back-off is short again."""
    fail(circuit, 3)
    clock.advance(1.0)
    circuit.succeed(circuit.ask())
    circuit.succeed(circuit.ask())
    fail(circuit, 2)

    assert circuit.state is State.CLOSED
    fail(circuit)
    assert circuit.retry_in_s() == pytest.approx(1.0)


def test_an_abandoned_probe_makes_way_for_the_next(circuit, clock):
    """A probe whose caller went away does not block the circuit for ever."""
    fail(circuit, 3)
    clock.advance(1.0)
    circuit.abandon(circuit.ask())

    assert circuit.state is State.OPEN
    assert circuit.ask().probe


def test_late_outcomes_change_nothing(circuit, clock):
    """Calls from before the circuit opened neither close it nor stand in for the probe."""
    early = [circuit.ask() for _ in range(4)]
    fail(circuit, 3)
    circuit.succeed(early[0])
    circuit.fail(early[1])

    assert circuit.state is State.OPEN
    clock.advance(1.0)
    probe = circuit.ask()
    circuit.fail(early[2])
    circuit.abandon(early[3])
    assert circuit.state is State.HALF_OPEN
    circuit.succeed(probe)
    circuit.fail(probe)
    assert circuit.state is State.CLOSED
