"""Replicas of one engine on several devices behave as one engine."""

from backend.lanes.engine import Replicas
from tests.fakes import EchoEngine


def test_each_device_has_its_own():
    """A lane's ``on`` gives the engine of its device; the task keeps one name."""
    first, second = EchoEngine(budget=300), EchoEngine(budget=200)
    both = Replicas([first, second])

    assert first is both.on(0)
    assert second is both.on(1)
    assert ("echo", 1.0) == (both.name, both.padding_cost)


def test_the_smallest_device_sets_the_budget():
    """So that whichever lane is free can take the batch."""
    assert 200 == Replicas([EchoEngine(budget=300), EchoEngine(budget=200)]).budget


def test_without_a_device_the_first_one_answers():
    """A tool that knows nothing of devices can use it like any engine."""
    both = Replicas([EchoEngine(), EchoEngine()])

    assert ["a", "b"] == both.finish(both.forward(both.prepare(["a", "b"])))
