"""Fixture: services that are built from settings and closed after the test."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from backend.bootstrap.services import Services, build
from backend.config import load_settings
from backend.models import encoder_benchmark, resting_process
from backend.text.classifier_files import BundledHeads
from tests.tiny_generators import generators
from tests.tiny_image_models import image_models
from tests.tiny_models import copy_of, tiny
from tests.tiny_scorers import scorers
from tests.tiny_taggers import taggers
from tests.tiny_whispers import tiny_whispers

__all__ = ["copy_of", "generators", "image_models", "scorers", "taggers", "tiny", "tiny_whispers"]

Start = Callable[..., Coroutine[Any, Any, Services]]
QUICK: dict[str, Any] = {"runtime": "onnx", "precision": "exact"}  # one candidate: measured in a second


@pytest.fixture
async def start(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Start]:
    """Build services from settings; they are closed after the test."""
    monkeypatch.setattr(encoder_benchmark, "WINDOW_S", 0.02)
    # Fitting 2,400 examples to the vectors of a random encoder takes minutes; services/test_bundled_heads.py learns.
    monkeypatch.setattr(BundledHeads, "has_examples", lambda *_: False)
    started: list[Services] = []

    async def run(**settings: Any) -> Services:
        defaults = {
            "state_dir": state_dir,
            "device": "cpu",
            "ner_model": "none",
            "answer_model": "none",
            "label_model": "none",
        }
        started.append(await build(load_settings(**{**defaults, **settings})))
        return started[-1]

    yield run
    for services in started:
        await services.close()


@pytest.fixture
def rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service whose lanes are free rests at once, however busy the machine of the tests is."""
    monkeypatch.setattr(resting_process, "REST_S", 0.0)
    monkeypatch.setattr(resting_process, "BUSY_RATIO", 100.0)
    monkeypatch.setattr(resting_process, "NICE", 0)


async def measured(services: Services) -> None:
    """Wait until the embedding model serves as measured."""
    async with asyncio.timeout(200):
        while services.catalog.embedding().choice.is_provisional:  # noqa: ASYNC110 - a process of its own measures
            await asyncio.sleep(0.05)
