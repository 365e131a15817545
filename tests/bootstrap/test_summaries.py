"""SUMMARY_MODEL and SUMMARY_URL of a whole service: loaded, listed, pending while the hub is away, closed."""

import json

import pytest

from backend.bootstrap.models import PROFILES
from backend.errors import InvalidField, ModelPending, ModelUnavailable
from backend.serving.engines.generation import TASK
from backend.serving.engines.heads import EMBEDDINGS
from backend.summaries.records import SummaryOptions
from tests.bootstrap.conftest import QUICK
from tests.bootstrap.test_models import Hub, hub, until
from tests.tiny_generators import TinyGenerators
from tests.tiny_models import TinyModels

__all__ = ["hub"]

TEXT = "The invoice is due. La factura: 100 euros."


@pytest.mark.slow
async def test_a_model_that_writes(start, tiny: TinyModels, generators: TinyGenerators):
    """Loaded beside the others; listed, reported, counted; swapped for another while the service runs."""
    t5, bart = generators.folder("t5"), generators.folder("bart")
    small = tiny.folder("roberta")
    services = await start(
        embedding_model=str(small), summary_model=str(t5), summary_url="http://key@127.0.0.1:9/v1", **QUICK
    )
    first = await services.summaries.summarize(TEXT, SummaryOptions("model", max_tokens=8))
    system = json.dumps(services.system())
    await services.loader.load(str(bart), TASK)
    second = await services.summaries.summarize(TEXT, SummaryOptions("abstractive", max_tokens=8))

    assert (t5.name, bart.name) == (first.summary.model, second.summary.model)
    assert (TASK, "torch", "fp32") == tuple(
        getattr(services.catalog.find(bart.name), name) for name in ("task", "runtime", "dtype")
    )
    assert "key@" not in system
    assert '"url": "http://127.0.0.1:9/v1"' in system
    metrics = services.telemetry.render().decode()
    assert 'financia_inputs_total{task="summaries"} 2.0' in metrics
    assert 'financia_model_pending{task="summaries"} 0.0' in metrics


@pytest.mark.slow
async def test_a_model_that_the_hub_gives_later(
    start, hub: Hub, tiny: TinyModels, generators: TinyGenerators, monkeypatch
):
    """Pending: 503 for who asks for it, extracts as ever; then it writes."""
    monkeypatch.setitem(PROFILES, "bundled", {EMBEDDINGS: str(tiny.folder("roberta"))})
    hub.folders["owner/writer"] = generators.folder("t5")
    services = await start(summary_model="owner/writer", **QUICK)
    extract = await services.summaries.summarize(TEXT, SummaryOptions())
    with pytest.raises(ModelPending, match="owner/writer"):
        await services.summaries.summarize(TEXT, SummaryOptions("abstractive"))
    hub.is_open = True
    await until(lambda: services.catalog.of(TASK) is not None)

    assert "extractive" == extract.summary.method
    written = await services.summaries.summarize(TEXT, SummaryOptions("abstractive", max_tokens=8))
    assert "owner/writer" == written.summary.model


@pytest.mark.slow
async def test_models_of_the_wrong_kind(start, tiny: TinyModels, generators: TinyGenerators):
    """An encoder does not write, and a writer does not embed; both stop the start with the reason."""
    small = str(tiny.folder("roberta"))
    with pytest.raises(ModelUnavailable, match="SUMMARY_MODEL needs a model that writes"):
        await start(embedding_model=small, summary_model=small, **QUICK)
    with pytest.raises(ModelUnavailable, match="SUMMARY_MODEL serves it"):
        await start(embedding_model=str(generators.folder("t5")), **QUICK)
    services = await start(embedding_model=small, **QUICK)
    with pytest.raises(InvalidField, match="SUMMARY_MODEL or SUMMARY_URL"):
        services.summaries.check(SummaryOptions("abstractive"))
