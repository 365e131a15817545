"""Fixtures: the embedding service on real lanes and a real cache, over engines that answer, hang or fail."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from backend.lanes.batcher import Batcher
from backend.lanes.cache.store import MemoryTier, TieredCache, VectorCache
from backend.lanes.inference import Inference
from backend.lanes.work_queue import QueueLimits
from backend.serving.catalog import Catalog, LoadedModel
from backend.telemetry import Telemetry
from backend.text.embeddings import EmbeddingService
from tests.fakes import ManualClock
from tests.text.service_stack import ServiceStack, loaded_model
from tests.tiny_models import copy_of, tiny
from tests.tiny_scorers import scorers
from tests.tiny_taggers import taggers

__all__ = ["copy_of", "scorers", "taggers", "tiny"]


@pytest.fixture
async def build(clock: ManualClock) -> AsyncIterator[Callable[..., ServiceStack]]:
    """Build a service stack: ``build(engine, lanes=2, queue_tokens=100, spec={…})``, ``build(model, others=[…])``."""
    stacks: list[ServiceStack] = []

    def make(
        engine: Any,
        *,
        lanes: int = 1,
        queue_tokens: int = 100_000,
        cache: VectorCache | None = None,
        clock: Callable[[], float] = clock,
        spec: dict[str, Any] | None = None,
        others: Sequence[LoadedModel] = (),
    ) -> ServiceStack:
        telemetry = Telemetry()
        embedding = engine if isinstance(engine, LoadedModel) else loaded_model(engine, **(spec or {}))
        catalog = Catalog(embedding, *others)
        batcher = Batcher(lanes, QueueLimits(queue_tokens), telemetry, clock=clock)
        batcher.start(asyncio.get_running_loop())
        vectors = cache or TieredCache(MemoryTier(2**24), None, telemetry)
        inference = Inference(batcher, vectors, telemetry)
        service = EmbeddingService(catalog, inference, vectors, telemetry)
        stacks.append(ServiceStack(embedding.engine, service, inference, batcher, vectors, catalog, telemetry))
        return stacks[-1]

    yield make
    for stack in stacks:
        if hasattr(stack.engine, "gate"):
            stack.engine.gate.set()
        await stack.batcher.drain(0.0)
        stack.inference.close()
