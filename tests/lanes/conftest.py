"""Batchers that are stopped after their test, whatever happened in it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from backend.lanes.batcher import Batcher, show_gauges
from backend.lanes.work_queue import QueueLimits
from backend.telemetry import Telemetry
from tests.fakes import ManualClock
from tests.text.conftest import build, copy_of, scorers, taggers, tiny

__all__ = ["build", "copy_of", "scorers", "taggers", "tiny"]


@pytest.fixture
async def make_batcher(telemetry: Telemetry, clock: ManualClock) -> AsyncIterator[Callable[..., Batcher]]:
    """Start a batcher on the manual clock: ``make_batcher(lanes=2, depth=2, queue_tokens=100)``."""
    started: list[Batcher] = []

    def make(*, lanes: int = 1, queue_tokens: int = 10_000, ageing_s: float = 2.0, **options: Any) -> Batcher:
        batcher = Batcher(lanes, QueueLimits(queue_tokens, ageing_s), telemetry, clock=clock, **options)
        show_gauges(telemetry, batcher.status)
        batcher.start(asyncio.get_running_loop())
        started.append(batcher)
        return batcher

    yield make
    for batcher in started:
        await batcher.drain(0.0)


@pytest.fixture
def value(telemetry: Telemetry) -> Callable[..., float]:
    """Read a metric: ``value("jobs_dropped_total", reason="deadline")``."""

    def read(name: str, **labels: str) -> float:
        return telemetry.registry.get_sample_value(f"financia_{name}", labels) or 0.0

    return read
