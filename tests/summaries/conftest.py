"""Fixture: the summary service on real models, with a tiny generator on a lane of its own."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from backend.lanes.batcher import Batcher
from backend.lanes.engine import PinnedEncoder
from backend.lanes.inference import UsageCounter
from backend.lanes.work_queue import QueueLimits
from backend.models.autotune import Choice
from backend.serving.catalog import LoadedModel, served_names
from backend.serving.engines.generation import TASK, GenerationEngine
from backend.summaries.service import SummaryService, SupportFinder
from backend.summaries.writers import Writers
from backend.text.analysis import AnalysisService
from backend.text.entities import EntityService
from backend.text.neutral_vectors import NeutralVectors
from tests.serving.loaded_models import RecordingEngine, embedding_model
from tests.text.classification_setup import build_classification
from tests.text.conftest import build
from tests.text.service_stack import ServiceStack
from tests.tiny_generators import generator_of, generators
from tests.tiny_models import placement, spec_of, tokenizer_of

__all__ = ["build", "generators"]


@dataclass
class Summaries:
    """The service, and the parts below it."""

    service: SummaryService
    stack: ServiceStack
    lanes: Batcher
    engine: Any  # of the generator, where there is one


def writing_model(folder: Path) -> LoadedModel:
    """A generator as the catalog holds it."""
    spec, choice = spec_of(folder), Choice("torch", "fp32", 4096, 0.0, ("chosen by the test",))
    source: Any = PinnedEncoder(generator_of(folder))  # type: ignore[arg-type]
    engine: Any = RecordingEngine(GenerationEngine(source, 4096))
    names = served_names(spec, ("writer",))
    return LoadedModel(spec, tokenizer_of(folder), engine, engine, placement(), choice, names, 1.0, task=TASK)


@pytest.fixture
async def make_summaries(build: Callable[..., ServiceStack], tmp_path: Path) -> AsyncIterator[Callable[..., Summaries]]:
    """``make_summaries(folder, chat=writer)``: the folder of a generator, another writer for the API."""
    started: list[Batcher] = []

    def make(folder: Path | None = None, chat: Any = None) -> Summaries:
        models = [] if folder is None else [writing_model(folder)]
        stack = build(embedding_model("minilm"), others=models, lanes=2, clock=time.monotonic)
        classification = build_classification(stack, tmp_path).service
        entities = EntityService(stack.catalog, stack.inference, stack.telemetry)
        analysis = AnalysisService(stack.catalog, stack.inference, classification, entities, stack.telemetry)
        lanes = Batcher(1, QueueLimits(100_000), stack.telemetry)
        lanes.start(asyncio.get_running_loop())
        started.append(lanes)
        usage = UsageCounter(stack.telemetry, TASK)
        writers = Writers(stack.catalog, lanes, stack.inference.text_work, usage, chat)
        support = SupportFinder(stack.catalog, stack.service, NeutralVectors(stack.service))
        return Summaries(SummaryService(analysis, writers, support), stack, lanes, models and models[0].engine)

    yield make
    for lanes in started:
        await lanes.drain(5.0)
