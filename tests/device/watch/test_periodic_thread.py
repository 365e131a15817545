"""A thread that goes on whatever happens, and ends when told."""

from __future__ import annotations

import logging
import threading

import pytest

from backend.device.watch import periodic_thread as module
from backend.device.watch.periodic_thread import Ticker
from tests.device.fakes import Turnstile

SOON = 0.001  # the pace of tests that count turns; none depends on it


@pytest.fixture
def running():
    """Makes tickers and ends them all."""
    made = []

    def make(act):
        made.append(Ticker("test-ticker", act))
        return made[-1]

    yield make
    for one in made:
        one.stop()


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "test-ticker"]


def test_again_and_again(running):
    """At once, and then at every interval."""
    turns = Turnstile()
    ticker = running(turns)
    ticker.start(SOON)

    turns.wait(3)

    assert (True, 1, True) == (ticker.running, len(threads()), threads()[0].daemon)


def test_stop_ends_the_thread(running):
    """Nothing is done after stop has returned, however long the interval."""
    turns = Turnstile()
    ticker = running(turns)
    ticker.start(3600.0)
    turns.wait(1)
    ticker.stop()

    assert (False, [], 1) == (ticker.running, threads(), turns.count)


def test_stop_is_idempotent(running):
    """Before a start and after a stop there is nothing to end."""
    ticker = running(Turnstile())
    ticker.stop()
    ticker.start(SOON)
    ticker.stop()
    ticker.stop()

    assert not ticker.running


def test_start_again(running):
    """After a stop, and with another interval while it runs: always one thread."""
    turns = Turnstile()
    ticker = running(turns)
    for _ in range(2):
        ticker.start(3600.0)
    turns.wait(2)
    ticker.stop()
    ticker.start(SOON)
    turns.wait(4)

    assert 1 == len(threads())


@pytest.mark.parametrize("interval_s", [0.0, -1.0, float("nan")])
def test_interval_must_be_positive(running, interval_s):
    """A pace that is none is refused, with what was got."""
    ticker = running(Turnstile())
    with pytest.raises(ValueError, match=r"interval .*: must be more than 0 seconds"):
        ticker.start(interval_s)

    assert not ticker.running


def test_faults_are_survived_counted_and_logged_once(running, caplog):
    """A streak is one line; after a good turn the next fault is news again."""
    faults = iter([OSError("one"), OSError("two"), None, OSError("three"), None])

    def act():
        if fault := next(faults, None):
            raise fault

    turns = Turnstile(act)
    ticker = running(turns)
    with caplog.at_level(logging.ERROR):
        ticker.start(SOON)
        turns.wait(5)
        ticker.stop()

    assert 3 == ticker.errors
    assert ["OSError('one')", "OSError('three')"] == [record.fields["reason"] for record in caplog.records]


def test_a_hung_turn_is_left_behind(running, monkeypatch):
    """A driver call that never returns delays stop for a while, and never comes back to life beside its successor."""
    monkeypatch.setattr(module, "STOP_S", 0.01)
    gate, entered = threading.Event(), Turnstile()

    def act():
        entered()
        gate.wait(10.0)

    ticker = running(act)
    ticker.start(SOON)
    entered.wait(1)
    ticker.stop()
    [hung] = threads()
    gate.set()
    hung.join(10.0)

    assert (1, False) == (entered.count, hung.is_alive())


def test_a_turn_may_stop_its_own_ticker(running):
    """A callback that stops the monitor does not wait for itself."""
    done = Turnstile()

    def act():
        ticker.stop()
        done()

    ticker = running(act)
    ticker.start(SOON)
    done.wait(1)

    assert not ticker.running
