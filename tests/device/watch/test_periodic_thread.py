"""The periodic thread: survives exceptions of its action and stops on request."""

import logging
import threading

import pytest

from backend.device.watch import monitor as module
from backend.device.watch.monitor import PeriodicThread
from tests.device.fakes import Turnstile

SOON = 0.001  # the pace of tests that count turns; none depends on it


@pytest.fixture
def running():
    """Creates periodic threads and stops them after the test."""
    made = []

    def make(action):
        made.append(PeriodicThread("test-thread", action))
        return made[-1]

    yield make
    for thread in made:
        thread.stop()


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "test-thread"]


def test_start_again(running):
    """After a stop, and with another interval while it runs: always one thread."""
    turns = Turnstile()
    periodic = running(turns)
    for _ in range(2):
        periodic.start(3600.0)
    turns.wait(2)
    periodic.stop()
    periodic.start(SOON)
    turns.wait(4)

    assert 1 == len(threads())


def test_faults_are_survived_counted_and_logged_once(running, caplog):
    """A streak is one line; after a good turn the next fault is news again."""
    faults = iter([OSError("one"), OSError("two"), None, OSError("three"), None])

    def action():
        if fault := next(faults, None):
            raise fault

    turns = Turnstile(action)
    periodic = running(turns)
    with caplog.at_level(logging.ERROR):
        periodic.start(SOON)
        turns.wait(5)
        periodic.stop()

    assert 3 == periodic.errors
    assert ["OSError('one')", "OSError('three')"] == [record.fields["reason"] for record in caplog.records]


def test_a_hung_call_is_abandoned(running, monkeypatch):
    """A driver call that never returns delays stop for a while, and does not continue beside its successor."""
    monkeypatch.setattr(module, "STOP_S", 0.01)
    gate, entered = threading.Event(), Turnstile()

    def action():
        entered()
        gate.wait(10.0)

    periodic = running(action)
    periodic.start(SOON)
    entered.wait(1)
    periodic.stop()
    [hung] = threads()
    gate.set()
    hung.join(10.0)

    assert (1, False) == (entered.count, hung.is_alive())


def test_an_action_may_stop_its_own_thread(running):
    """A callback that stops the monitor does not wait for itself."""
    done = Turnstile()

    def action():
        periodic.stop()
        done()

    periodic = running(action)
    periodic.start(SOON)
    done.wait(1)

    assert not periodic.running
