"""An encoder is unloaded and loaded again; batches that hold it meanwhile are not disturbed."""

import threading
import weakref

import pytest

from backend.errors import ModelUnavailable, Unavailable
from backend.lanes.engine import PinnedEncoder, UnloadableEncoder
from tests.fakes import TEST_TIMEOUT_S, ManualClock


class Weights:
    """A fake encoder that a weak reference can watch."""

    padding_cost = 0.5


def test_a_pinned_encoder_stays():
    encoder = Weights()

    assert encoder is PinnedEncoder(encoder).get()
    assert 0.5 == PinnedEncoder(encoder).padding_cost


def test_it_is_unloaded_and_loaded_again():
    """The callback hears of both; the padding cost is known also while it is unloaded."""
    loads, changes = [], []
    source = UnloadableEncoder(Weights(), lambda: loads.append(1) or Weights(), name="m", clock=ManualClock())
    source.changed = changes.append
    assert source.unload()
    assert (False, 0.5) == (source.is_loaded, source.padding_cost)
    assert not source.unload()
    first = source.get()

    assert first is source.get()
    assert source.is_loaded
    assert [1] == loads
    assert [False, True] == changes


def test_its_memory_is_free_once_the_last_batch_has_ended():
    """A batch that began before the unload keeps its encoder to the end, and nothing keeps it longer."""
    source = UnloadableEncoder(Weights(), Weights, name="m")
    held = source.get()
    gone = weakref.ref(held)
    source.unload()
    assert gone() is held
    del held

    assert gone() is None


class Graphs:
    """Fake CUDA graphs."""

    def report(self) -> dict[str, object]:
        return {"captured": 3}


def test_its_cuda_graphs_are_told_while_it_is_loaded():
    """Asking is no use of it: a model that is watched goes idle all the same."""
    encoder, clock = Weights(), ManualClock()
    encoder.graphs = Graphs()
    source = UnloadableEncoder(encoder, Weights, name="m", device="cuda:1", clock=clock)
    clock.advance(40)

    assert {"device": "cuda:1", "captured": 3} == source.graphs()
    assert 40 == source.idle_s
    source.unload()
    assert source.graphs() is None
    source.get()
    assert source.graphs() is None  # an encoder without any


def test_idle_time_counts_from_the_last_batch():
    clock = ManualClock()
    source = UnloadableEncoder(Weights(), Weights, name="m", clock=clock)
    clock.advance(40)
    assert 40 == source.idle_s
    source.get()
    clock.advance(5)

    assert 5 == source.idle_s


def test_lanes_that_ask_together_load_it_once():
    """The second waits for the first and gets the same."""
    entered, gate, loads = threading.Event(), threading.Event(), []

    def load() -> Weights:
        loads.append(1)
        entered.set()
        assert gate.wait(TEST_TIMEOUT_S)
        return Weights()

    source = UnloadableEncoder(Weights(), load, name="m")
    source.unload()
    encoders: list[object] = []
    lanes = [threading.Thread(target=lambda: encoders.append(source.get())) for _ in range(3)]
    for lane in lanes:
        lane.start()
    assert entered.wait(TEST_TIMEOUT_S)
    gate.set()
    for lane in lanes:
        lane.join(TEST_TIMEOUT_S)

    assert [1] == loads
    assert 3 == len(encoders)
    assert 1 == len(set(map(id, encoders)))


def test_a_model_that_cannot_be_loaded_again():
    """Its folder was removed meanwhile: the request gets 503 with the reason, and the next one tries again."""

    def load() -> Weights:
        raise ModelUnavailable("/models/m has no config.json")

    source = UnloadableEncoder(Weights(), load, name="m")
    source.unload()

    with pytest.raises(Unavailable, match=r"loaded again: /models/m has no config\.json"):
        source.get()
    assert not source.is_loaded
