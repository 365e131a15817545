"""An embedding service with everything below it, and engines whose vectors depend on the token ids alone."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from backend.lanes.batcher import Batcher
from backend.lanes.cache.store import VectorCache
from backend.lanes.inference import Inference
from backend.lanes.work_queue import Priority
from backend.models.autotune import Choice
from backend.serving.catalog import Catalog, LoadedModel, served_names
from backend.telemetry import Telemetry
from backend.text.embeddings import EmbeddingService
from tests.fakes import TEST_TIMEOUT_S, EchoEngine, FailingEngine, GatedEngine
from tests.tiny_models import placement, spec_of, tokenizer_of

PROMPTS = {"query": "query: ", "passage": "passage: "}


def vector_of(ids: Sequence[int]) -> np.ndarray:
    """One fixed vector for each list of ids."""
    seed = [len(ids), *(int(number) for number in ids)]
    return np.random.default_rng(seed).standard_normal(384).astype(np.float32)


class VectorEngine(EchoEngine):
    """Answers each payload with ``vector_of`` its ids."""

    def finish(self, output: Any) -> Sequence[Any]:
        return [vector_of(ids) for ids in super().finish(output)]


class GatedVectorEngine(GatedEngine):
    """The same, once its gate is set."""

    def finish(self, output: Any) -> Sequence[Any]:
        return [vector_of(ids) for ids in super().finish(output)]


class FailingVectorEngine(FailingEngine):
    """Fails for the batch that holds a token id, answers the others."""

    def finish(self, output: Any) -> Sequence[Any]:
        return [vector_of(ids) for ids in super().finish(output)]

    def _fail(self, stage: Any, payloads: Sequence[Any]) -> None:
        if stage == self.stage and (self.poison is None or any(self.poison in ids for ids in payloads)):
            raise self.error


class NanEngine(VectorEngine):
    """Answers with vectors of NaN."""

    def finish(self, output: Any) -> Sequence[Any]:
        return [np.full(384, np.nan, np.float32) for _ in output]


@dataclass
class ServiceStack:
    """The embedding service, and the parts below it that tests inspect."""

    engine: Any
    service: EmbeddingService
    inference: Inference
    batcher: Batcher
    cache: VectorCache
    catalog: Catalog
    telemetry: Telemetry

    @property
    def computed(self) -> list[tuple[int, ...]]:
        """The ids of every text that reached the engine, in order."""
        return [tuple(int(number) for number in ids) for batch in self.engine.batches for ids in batch]

    @property
    def in_flight(self) -> int:
        """Work items that requests still share; 0 once all have left."""
        return len(self.inference._in_flight._items)

    def metric(self, name: str, **labels: str) -> float:
        """A metric's value now."""
        return self.telemetry.registry.get_sample_value(f"financia_{name}", labels) or 0.0

    def spy_on_submissions(self) -> list[tuple[Priority, float]]:
        """Priority and deadline of every work item from here on."""
        submitted, submit = list[tuple[Priority, float]](), self.batcher.submit

        def spied(*arguments: Any, **options: Any) -> Any:
            submitted.append((options["priority"], options["deadline_s"]))
            return submit(*arguments, **options)

        self.batcher.submit = spied  # type: ignore[method-assign]
        return submitted

    async def entered(self) -> None:
        """Wait until a batch is inside the engine."""
        assert await asyncio.to_thread(self.engine.entered.wait, TEST_TIMEOUT_S), "no batch ever came"


def loaded_model(engine: Any, **changes: Any) -> LoadedModel:
    """The bundled model's spec and tokenizer with another engine behind them."""
    spec = replace(spec_of("minilm"), **changes)
    place = placement(lanes=1)
    choice = Choice("fake", "fp32", 512, 1000.0, ("chosen by the test",))
    names = served_names(spec, ("an-alias",))
    return LoadedModel(spec, tokenizer_of("minilm"), engine, engine, place, choice, names, 1.0)
