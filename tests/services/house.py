"""A service with everything below it, and engines whose vectors tell which tokens they were made of."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from backend.batching.batcher import Batcher
from backend.cache.store import VectorCache
from backend.models.autotune import Choice
from backend.services.catalog import Catalog, LoadedModel, names_of
from backend.services.embeddings import EmbeddingService
from backend.services.inference import Inference
from backend.telemetry import Telemetry
from tests.fakes import PATIENCE_S, EchoEngine, FailingEngine, GatedEngine
from tests.tiny_models import placement, spec_of, tokenizer_of

PROMPTS = {"query": "query: ", "passage": "passage: "}


def vector_of(ids: Sequence[int]) -> np.ndarray:
    """One fixed vector for each list of ids."""
    seed = [len(ids), *(int(number) for number in ids)]
    return np.random.default_rng(seed).standard_normal(384).astype(np.float32)


class VectorEngine(EchoEngine):
    """Answers each payload with a vector that only its ids decide."""

    def finish(self, output: Any) -> Sequence[Any]:
        """One vector a payload."""
        return [vector_of(ids) for ids in super().finish(output)]


class GatedVectorEngine(GatedEngine):
    """The same, once its gate is open."""

    def finish(self, output: Any) -> Sequence[Any]:
        """One vector a payload."""
        return [vector_of(ids) for ids in super().finish(output)]


class FailingVectorEngine(FailingEngine):
    """Fails for the batch that holds a token id, answers the others."""

    def finish(self, output: Any) -> Sequence[Any]:
        """One vector a payload."""
        return [vector_of(ids) for ids in super().finish(output)]

    def _fail(self, stage: Any, payloads: Sequence[Any]) -> None:
        if stage == self.stage and (self.poison is None or any(self.poison in ids for ids in payloads)):
            raise self.error


class NanEngine(VectorEngine):
    """A device whose memory has gone bad."""

    def finish(self, output: Any) -> Sequence[Any]:
        """Vectors that are no numbers."""
        return [np.full(384, np.nan, np.float32) for _ in output]


@dataclass
class House:
    """The service, and what is below it for a test to look at."""

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
    def flights(self) -> int:
        """Seats not given back: what a leak would leave."""
        return len(self.inference._flights._jobs)

    def metric(self, name: str, **labels: str) -> float:
        """A metric's value now."""
        return self.telemetry.registry.get_sample_value(f"financia_{name}", labels) or 0.0

    async def entered(self) -> None:
        """Wait until a batch is inside the engine."""
        assert await asyncio.to_thread(self.engine.entered.wait, PATIENCE_S), "no batch ever came"


def loaded_model(engine: Any, **changes: Any) -> LoadedModel:
    """The bundled model's spec and tokenizer with another engine behind them."""
    spec = replace(spec_of("bundled"), **changes)
    place = placement(lanes=1)
    choice = Choice("fake", "fp32", 512, 1000.0, ("told by the test",))
    names = names_of(spec, ("an-alias",))
    return LoadedModel(spec, tokenizer_of("bundled"), engine, engine, place, choice, names, 1.0)
