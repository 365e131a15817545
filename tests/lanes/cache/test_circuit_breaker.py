"""The circuit breaker: when calls are allowed, and what their outcomes change."""

import pytest

from backend.lanes.cache.redis_client import BreakerPolicy, CircuitBreaker, State
from backend.retry import Backoff

POLICY = BreakerPolicy(failures=3, backoff=Backoff(1.0, 5.0))


@pytest.fixture
def circuit(clock):
    """A trusted circuit: a call has succeeded, so it tolerates failures."""
    breaker = CircuitBreaker(POLICY, clock)
    breaker.succeed(breaker.acquire())
    return breaker


def fail(circuit, times=1):
    for _ in range(times):
        circuit.fail(circuit.acquire())


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        pytest.param("", State.CLOSED, id="fresh"),
        pytest.param("ff", State.CLOSED, id="two-failures-are-tolerated"),
        pytest.param("fff", State.OPEN, id="three-in-a-row-open"),
        pytest.param("ffsff", State.CLOSED, id="a-success-resets-the-count"),
        pytest.param("ffsfff", State.OPEN, id="three-in-a-row-after-a-success"),
        pytest.param("aaaa", State.CLOSED, id="abandoned-calls-say-nothing"),
        pytest.param("ffaf", State.OPEN, id="nor-do-they-interrupt-a-row"),
    ],
)
def test_what_opens_a_closed_circuit(circuit, outcomes, expected):
    """Only failures in a row open it."""
    report = {"f": circuit.fail, "s": circuit.succeed, "a": circuit.abandon}
    for outcome in outcomes:
        report[outcome](circuit.acquire())

    assert expected == circuit.state


def test_open_until_the_backoff_is_over_then_one_probe(circuit, clock):
    """No call while it is open; then exactly one probe, until it has reported."""
    fail(circuit, 3)
    clock.advance(0.999)

    assert circuit.acquire() is None
    assert circuit.retry_in_s() == pytest.approx(0.001)
    clock.advance(0.001)
    probe = circuit.acquire()
    assert probe.probe
    assert circuit.state is State.HALF_OPEN
    assert [None, None] == [circuit.acquire(), circuit.acquire()]
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


def test_a_probe_does_not_restore_trust(circuit, clock):
    """For a server that answers probes but fails calls, the back-off keeps growing."""
    fail(circuit, 3)
    waits = []
    for _ in range(4):
        waits.append(circuit.retry_in_s())
        clock.advance(waits[-1])
        circuit.succeed(circuit.acquire())
        fail(circuit)

    assert [1.0, 2.0, 4.0, 5.0] == pytest.approx(waits)


def test_a_successful_call_restores_trust(circuit, clock):
    """Then failures are tolerated again and the back-off is short again."""
    fail(circuit, 3)
    clock.advance(1.0)
    circuit.succeed(circuit.acquire())
    circuit.succeed(circuit.acquire())
    fail(circuit, 2)

    assert circuit.state is State.CLOSED
    fail(circuit)
    assert circuit.retry_in_s() == pytest.approx(1.0)


def test_an_abandoned_probe_allows_the_next(circuit, clock):
    """A cancelled probe does not block the circuit."""
    fail(circuit, 3)
    clock.advance(1.0)
    circuit.abandon(circuit.acquire())

    assert circuit.state is State.OPEN
    assert circuit.acquire().probe


def test_late_outcomes_change_nothing(circuit, clock):
    """Outcomes of calls from before it opened do not change its state."""
    early = [circuit.acquire() for _ in range(4)]
    fail(circuit, 3)
    circuit.succeed(early[0])
    circuit.fail(early[1])

    assert circuit.state is State.OPEN
    clock.advance(1.0)
    probe = circuit.acquire()
    circuit.fail(early[2])
    circuit.abandon(early[3])
    assert circuit.state is State.HALF_OPEN
    circuit.succeed(probe)
    circuit.fail(probe)
    assert circuit.state is State.CLOSED
