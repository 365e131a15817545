"""Spans of batches: every request that shared one finds it, and it finds them."""

import asyncio

import numpy as np
import pytest

from backend.lanes.batcher import Batcher, record_items
from backend.lanes.work_queue import QueueLimits, WorkItem
from backend.telemetry import Telemetry
from backend.tracing.spans import Active, Sampler, Span
from tests.fakes import EchoEngine, FailingEngine, GatedEngine
from tests.traced import KeptSpans

TOKENS = np.arange(10, dtype=np.int64)


@pytest.fixture
def kept() -> KeptSpans:
    return KeptSpans()


@pytest.fixture
async def batcher():
    """One lane, on the clock that spans are on."""
    batcher = Batcher(1, QueueLimits(10_000), Telemetry())
    batcher.start(asyncio.get_running_loop())
    yield batcher
    await batcher.drain(0.0)


def submit(
    kept: KeptSpans, batcher: Batcher, engine: EchoEngine, name: str, count: int = 1
) -> tuple[Span, list[WorkItem]]:
    """Items of a request with that name."""
    with Active(kept.tracer.start(name, "server")) as request:
        return request.span, batcher.submit(engine, [TOKENS] * count, [10] * count)


async def finished(kept: KeptSpans, request: Span, items: list[WorkItem]) -> None:
    await asyncio.gather(*(item.future for item in items), return_exceptions=True)
    with Active(kept.tracer.resume(request.context)):
        record_items(items)


async def share_a_batch(kept: KeptSpans, batcher: Batcher, *counts: int) -> list[Span]:
    """So many items of as many requests, which wait behind another until they run together."""
    engine = GatedEngine()
    batcher.submit(engine, [TOKENS], [10])
    await asyncio.to_thread(engine.entered.wait, 10)
    requests = [submit(kept, batcher, engine, f"request-{number}", count) for number, count in enumerate(counts)]
    engine.gate.set()
    for request, items in requests:
        await finished(kept, request, items)
    return [request for request, _ in requests]


async def test_requests_that_share_a_batch(kept, batcher):
    """It is in the trace of the first and links to the others; each links to it from its own trace."""
    requests = await share_a_batch(kept, batcher, 2, 1, 3)
    batch = kept.one("batch")

    assert requests[0].context == batch.parent
    assert [request.context for request in requests[1:]] == list(batch.links)
    assert [(request.context, [batch.context]) for request in requests] == [
        (one.parent, list(one.links)) for one in kept.spans if one.name == "inference"
    ]
    assert ("gated", 6, 3, 60) == tuple(
        batch.attributes[f"financia.{name}"] for name in ("engine", "batch.items", "batch.requests", "batch.tokens")
    )


async def test_the_stages_of_a_batch(kept, batcher):
    """In their order, within it; and the queue ends where it begins."""
    await share_a_batch(kept, batcher, 1)
    batch, prepare, forward, finish = (kept.one(name) for name in ("batch", "prepare", "forward", "finish"))

    assert {batch.context} == {one.parent for one in (prepare, forward, finish)}
    assert batch.started_s == prepare.started_s == kept.one("queue").ended_s
    assert prepare.ended_s == forward.started_s <= forward.ended_s <= finish.started_s <= finish.ended_s
    assert batch.ended_s == finish.ended_s == kept.one("inference").ended_s


async def test_a_batch_that_nobody_traces(batcher):
    """Requests that are not sampled leave no span, and learn of none."""
    kept = KeptSpans(Sampler(0.0))
    request, items = submit(kept, batcher, EchoEngine(), "request", 3)
    await finished(kept, request, items)

    assert [] == kept.spans
    assert [(None, None)] * 3 == [(item.span, item.batch_span) for item in items]


async def test_a_batch_that_fails(kept, batcher):
    """Its span says how many of its items did."""
    engine = FailingEngine(poison=7)
    with Active(kept.tracer.start("request", "server")) as request:
        items = batcher.submit(engine, [7, 8], [10, 10])
    await finished(kept, request.span, items)
    batches = [one for one in kept.spans if one.name == "batch"]

    assert 1 == sum(int(one.attributes.get("financia.batch.failed_items", 0)) for one in batches)
    assert "request" in kept.names
