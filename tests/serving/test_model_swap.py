"""What the start leaves undone for a model: warming it up, another way to load it, and what was measured since."""

from dataclasses import replace

import pytest

from backend.device.records import MachineFacts
from backend.device.tuning_cache import TuningCache
from backend.errors import Unavailable
from backend.lanes.engine import UnloadableEncoder
from backend.models.autotune import Choice, EncoderRequest
from backend.serving.catalog import AfterStart, Catalog, LoadedModel
from backend.serving.engines.answers import LABEL_TASK
from backend.serving.loading import LoadContext, ModelRequest
from backend.serving.model_swap import IdleUnloader, ModelSwapper
from backend.telemetry import Telemetry
from tests.serving.loaded_models import embedding_model
from tests.tiny_models import placement

KNOWN = Choice("onnx", "fp32", 512, 0.0, ("known",), is_provisional=True)
SAME = replace(KNOWN, tokens_per_s=900.0, why=("measured",), is_provisional=False)
FASTER = replace(SAME, budget=256)


class Start:
    """A service whose model serves by what is known; ``measured`` is what its measurement will find."""

    def __init__(self, tmp_path, measured: Choice | None = None, fault: Exception | None = None) -> None:
        self.warmed: list[str] = []
        self.fault = fault
        known = embedding_model()
        self.anew = replace(known, choice=measured or SAME)
        after = AfterStart(self._warm_up, lambda: self.anew, measured=lambda: measured)
        self.model = replace(known, choice=KNOWN, after_start=after)
        telemetry, self.catalog = Telemetry(), Catalog(self.model)
        facts = MachineFacts(cores=1, cpu_name="", cpu_flags=(), memory_bytes=2**33)
        context = LoadContext(facts, [placement(lanes=1)], TuningCache(tmp_path / "tuning.json"), telemetry)
        request = {"embeddings": ModelRequest("minilm", EncoderRequest())}
        self.swaps: list[LoadedModel] = []
        self.swapper = ModelSwapper(
            context, self.catalog, IdleUnloader(None, telemetry), request, on_swap=self.swaps.append
        )

    def _warm_up(self) -> None:
        self.warmed.append("warm")
        if self.fault is not None:
            raise self.fault


@pytest.fixture
def started(tmp_path):
    return lambda *arguments, **options: Start(tmp_path, *arguments, **options)


async def test_a_better_choice_is_swapped_in(started):
    """Between two batches, as any other model."""
    start = started(FASTER)
    await start.swapper.adopt_measured(start.model)

    assert [start.anew] == start.swaps
    assert FASTER == start.catalog.embedding().choice


@pytest.mark.parametrize("was_loaded", [True, False])
async def test_a_model_is_in_memory_only_where_it_was(started, was_loaded):
    """What was measured before anybody asked for the model does not keep it there."""
    start = started(FASTER)
    new = UnloadableEncoder(start.anew.engine, lambda: start.anew.engine, name="new")
    old = UnloadableEncoder(start.anew.engine if was_loaded else None, lambda: start.anew.engine, name="old")
    start.anew = replace(start.anew, residents=(new,))
    start.model = replace(start.model, residents=(old,))
    start.catalog.replace(start.model)
    await start.swapper.adopt_measured(start.model)

    assert (start.anew, was_loaded) == (start.catalog.embedding(), new.is_loaded)


async def test_the_same_choice_swaps_nothing(started):
    """Its engine and its encoder stay; the report tells what was measured."""
    start = started(SAME)
    await start.swapper.adopt_measured(start.model)

    assert [] == start.swaps
    assert start.model.engine is start.catalog.embedding().engine
    assert SAME == start.catalog.embedding().choice


@pytest.mark.parametrize("measured", [None, FASTER], ids=["nothing-was-kept", "another-model-serves"])
async def test_what_does_not_concern_the_model_that_serves(started, measured):
    start = started(measured)
    serves = start.model
    if measured is not None:
        serves = replace(start.model, after_start=None)
        start.catalog.replace(serves)
    await start.swapper.adopt_measured(start.model)

    assert [] == start.swaps
    assert serves is start.catalog.embedding()


async def test_files_that_changed_meanwhile_do_not_serve(started):
    """A measurement is no wish for another model."""
    start = started(FASTER)
    start.anew = replace(start.anew, spec=replace(start.anew.spec, sha256="0" * 64))
    await start.swapper.adopt_measured(start.model)

    assert [] == start.swaps


async def test_models_are_warmed_up(started):
    start = started()
    await start.swapper.finish_start()

    assert (["warm"], []) == (start.warmed, start.swaps)


@pytest.mark.parametrize(("fault", "warmed"), [(None, ["warm"]), (Unavailable("no kernel"), ["warm", "labels"])])
async def test_what_few_ask_for_comes_with_its_first_request(started, fault, warmed):
    """Labels' model; but where another cannot be loaded as known, it is tried, too, before somebody needs it."""
    start = started(fault=fault)
    after = replace(start.model.after_start, warm_up=lambda: start.warmed.append("labels"))
    start.catalog.replace(replace(start.model, task=LABEL_TASK, after_start=after))
    await start.swapper.finish_start()

    assert warmed == start.warmed


async def test_a_model_that_cannot_be_loaded_as_known_is_loaded_in_another_way(started):
    """Its requests wait or are told to come again until then."""
    start = started(fault=Unavailable("no kernel"))
    await start.swapper.finish_start()

    assert [start.anew] == start.swaps
