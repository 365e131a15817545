"""Models that could not be fetched yet: their names, their pauses, and what is told of them."""

import json

import pytest

from backend.errors import ModelPending
from backend.serving.catalog import Catalog
from backend.serving.pending_models import PendingModel, PendingModels
from tests.fakes import ManualClock
from tests.text.service_stack import VectorEngine, loaded_model

NAMES = ("owner/model@v1", "owner/model", "model", "text-embedding-3-small")


def pending(clock: ManualClock, task: str = "embeddings", serving: str | None = "the-bundled-one") -> PendingModel:
    """One that failed just now."""
    model = PendingModel(task, "owner/model@v1", NAMES, "no network", serving)
    model.failed("no network", clock())
    return model


@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_it_is_answered_later(clock, name):
    """503 with the reason and when to come again; the model in its place keeps its own names."""
    model = loaded_model(VectorEngine())
    catalog = Catalog(model, pending=PendingModels([pending(clock)], clock=clock))
    clock.advance(5.0)

    for find in (catalog.embedding, catalog.find):
        with pytest.raises(ModelPending, match="no network") as caught:
            find(name)
        assert (503, True, 10.0) == (caught.value.status, caught.value.retryable, caught.value.retry_after_s)
        assert "leave model out to have the-bundled-one" in str(caught.value)
    assert all(catalog.embedding(own) is model for own in (None, "bundled", model.name))


def test_pauses_grow_up_to_a_limit(clock):
    """Doubling from 15 s to a quarter of an hour: a hub that is back is seen soon, one that stays away is spared."""
    model, pauses = PendingModel("ner", "owner/model", NAMES, "", None), []
    for _ in range(20):
        model.failed("no network", clock())
        pauses.append(model.next_try_s - clock())

    assert [15.0, 30.0, 60.0, 120.0, 240.0, 480.0, 900.0] == pauses[:7]
    assert {900.0} == set(pauses[6:])


def test_the_next_is_the_one_whose_pause_ends_first(clock):
    """Each model has its own pauses."""
    first = pending(clock, "ner")
    clock.advance(1.0)
    second = pending(clock, "embeddings")
    models = PendingModels([second, first], clock=clock)
    assert first is models.next()

    first.failed("no network", clock())

    assert second is models.next()


def test_what_is_told(clock):
    """What is set, what serves, why, and when the next try is; ready for JSON."""
    model = pending(clock)
    models = PendingModels([model, pending(clock, "classifier", None)], clock=clock)
    clock.advance(4.0)
    expected = {
        "task": "embeddings",
        "source": "owner/model@v1",
        "serving": "the-bundled-one",
        "reason": "no network",
        "tries": 1,
        "is_under_way": False,
        "next_try_in_s": 11.0,
    }

    assert expected == json.loads(json.dumps(models.report()))[0]
    first, second = models.sentences()
    assert first.startswith("the model for embeddings (owner/model@v1) is not loaded: no network; ")
    assert first.endswith("the-bundled-one serves in its place; next try in 11 s")
    assert second.endswith("no network; no model of its own serves; next try in 11 s")
    model.is_under_way = True
    assert models.sentences()[0].endswith("; a try is under way")
    assert models.report()[0]["next_try_in_s"] is None
    assert 30.0 == model.retry_after_s(clock())
