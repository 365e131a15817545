"""A model leaves memory and comes back; whoever holds it meanwhile is not disturbed."""

from __future__ import annotations

import threading
import weakref

import pytest

from backend.errors import ModelUnavailable, Unavailable
from backend.models.residency import Pinned, Resident
from tests.fakes import PATIENCE_S, ManualClock


class Weights:
    """Stands for an encoder; can be watched for its end."""

    padding_cost = 0.5


def test_a_pinned_encoder_stays():
    """For tests and tools that never unload."""
    encoder = Weights()

    assert encoder is Pinned(encoder).get()
    assert 0.5 == Pinned(encoder).padding_cost


def test_it_leaves_and_comes_back():
    """Told both times; what is known of it is known also while it is out."""
    loads, told = [], []
    resident = Resident(Weights(), lambda: loads.append(1) or Weights(), name="m", clock=ManualClock())
    resident.changed = told.append
    assert resident.unload()
    assert (False, 0.5) == (resident.is_loaded, resident.padding_cost)
    assert not resident.unload()
    first = resident.get()

    assert first is resident.get()
    assert resident.is_loaded
    assert [1] == loads
    assert [False, True] == told


def test_its_memory_is_free_once_the_last_batch_has_ended():
    """A batch that began before the unload keeps its encoder to the end, and nothing keeps it longer."""
    resident = Resident(Weights(), Weights, name="m")
    held = resident.get()
    gone = weakref.ref(held)
    resident.unload()
    assert gone() is held
    del held

    assert gone() is None


def test_idle_time_counts_from_the_last_batch():
    """Every ``get`` starts it anew."""
    clock = ManualClock()
    resident = Resident(Weights(), Weights, name="m", clock=clock)
    clock.advance(40)
    assert 40 == resident.idle_s
    resident.get()
    clock.advance(5)

    assert 5 == resident.idle_s


def test_lanes_that_ask_together_load_it_once():
    """The second waits for the first and gets the same."""
    entered, gate, loads = threading.Event(), threading.Event(), []

    def load() -> Weights:
        loads.append(1)
        entered.set()
        assert gate.wait(PATIENCE_S)
        return Weights()

    resident = Resident(Weights(), load, name="m")
    resident.unload()
    found: list[object] = []
    lanes = [threading.Thread(target=lambda: found.append(resident.get())) for _ in range(3)]
    for lane in lanes:
        lane.start()
    assert entered.wait(PATIENCE_S)
    gate.set()
    for lane in lanes:
        lane.join(PATIENCE_S)

    assert [1] == loads
    assert 3 == len(found)
    assert 1 == len(set(map(id, found)))


def test_a_model_that_cannot_come_back():
    """Its folder was removed meanwhile: the request gets 503 with the reason, and the next one tries again."""

    def load() -> Weights:
        raise ModelUnavailable("/models/m has no config.json")

    resident = Resident(Weights(), load, name="m")
    resident.unload()

    with pytest.raises(Unavailable, match=r"loaded again: /models/m has no config\.json"):
        resident.get()
    assert not resident.is_loaded
