"""Readiness: the device answered lately, or answers a probe now."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from backend.errors import DeviceLost, DeviceUnavailable
from backend.lanes.engine import UnloadableEncoder
from backend.serving.health import FRESH_S, HUNG_S, PROBE_S, HealthService
from tests.fakes import ManualClock, turns
from tests.text.service_stack import FailingVectorEngine, GatedVectorEngine, NanEngine, ServiceStack, VectorEngine


@pytest.fixture
def health(build, clock: ManualClock) -> Callable[..., tuple[HealthService, ServiceStack]]:
    """A health service over a stack: ``health(engine)``."""

    def make(engine, **options) -> tuple[HealthService, ServiceStack]:
        stack = build(engine, **options)
        return HealthService(
            stack.catalog, stack.batcher, stack.cache, lambda: {"available": False}, clock=clock
        ), stack

    return make


async def test_lanes(health):
    """What waits and what runs, as the batcher counts it."""
    service, stack = health(VectorEngine())

    assert stack.batcher.status() == service.lanes()


async def test_a_fresh_batch_is_proof_enough(health, clock):
    """A busy service is not probed; an idle one is."""
    service, stack = health(VectorEngine())
    await stack.service.embed(["la factura"])
    clock.advance(FRESH_S)

    assert (await service.ready()).ready
    assert 1 == len(stack.computed)
    clock.advance(0.1)
    assert (await service.ready()).ready
    assert 2 == len(stack.computed)


async def test_concurrent_checks_share_one_probe(health):
    """Many checks at once put no load on the device, and one that is cancelled does not cancel it."""
    service, stack = health(GatedVectorEngine())
    checks = [asyncio.create_task(service.ready()) for _ in range(50)]
    await stack.entered()
    checks.pop(0).cancel()
    await turns()
    stack.engine.gate.set()
    readiness = await asyncio.gather(*checks)

    assert all(check.ready for check in readiness)
    assert 1 == len(stack.computed)


async def test_a_failing_engine_is_not_ready(health):
    """The reason names the engine's failure; ready again once it works."""
    service, stack = health(FailingVectorEngine())

    readiness = await service.ready()

    assert not readiness.ready
    assert "the device did not answer a probe: the model failed" in readiness.reasons[0]
    stack.engine.poison = -1
    assert (await service.ready()).ready


async def test_nan_is_not_ready(health):
    """An engine that answers NaN is broken."""
    service, _ = health(NanEngine())

    readiness = await service.ready()

    assert (False, ("the device answered a probe with numbers that are not finite",)) == (
        readiness.ready,
        readiness.reasons,
    )


async def test_a_probe_that_waits_too_long_is_not_ready(health, clock):
    """Behind a batch that hangs the probe times out, for every check that shares it."""
    service, stack = health(GatedVectorEngine())
    busy = asyncio.create_task(stack.service.embed(["la factura"]))
    await stack.entered()
    checks = [asyncio.create_task(service.ready()) for _ in range(3)]
    await turns()
    clock.advance(PROBE_S + 0.1)
    stack.batcher.expire()
    readiness = await asyncio.gather(*checks)

    assert [False] * 3 == [check.ready for check in readiness]
    assert f"within {PROBE_S:g} s" in readiness[0].reasons[0]
    stack.engine.gate.set()
    await busy


async def test_a_hung_lane_is_not_ready(health, clock):
    """Even while another lane still works and its batches are fresh."""
    service, stack = health(GatedVectorEngine(), lanes=2)
    busy = asyncio.create_task(stack.service.embed(["la factura"]))
    await stack.entered()
    clock.advance(HUNG_S + 1)

    readiness = await service.ready()

    assert not readiness.ready
    assert f"a lane has run one batch for {HUNG_S + 1:.0f} s" in readiness.reasons[0]
    stack.engine.gate.set()
    await busy


async def test_a_lane_that_is_only_slow_stays_ready(health, clock):
    """A long batch is no hang; the batch before it was fresh."""
    service, stack = health(GatedVectorEngine())
    stack.engine.gate.set()
    await stack.service.embed(["first"])
    stack.engine.gate.clear()
    stack.engine.entered.clear()
    busy = asyncio.create_task(stack.service.embed(["second"]))
    await stack.entered()
    clock.advance(FRESH_S - 1)

    assert (await service.ready()).ready
    stack.engine.gate.set()
    await busy


async def test_no_lanes_is_not_ready(health):
    """Stopped lanes are not probed."""
    service, stack = health(VectorEngine())
    await stack.batcher.drain(1.0)

    readiness = await service.ready()

    assert (False, ("none of 1 lanes is alive",)) == (readiness.ready, readiness.reasons)
    assert [] == stack.computed


async def test_lanes_that_died_are_not_ready(health):
    """Dead lanes show in readiness at once."""

    class LethalEngine(VectorEngine):
        def forward(self, prepared):
            raise SystemExit("the device is lost")

    service, stack = health(LethalEngine())
    for _ in range(3):
        with pytest.raises(Exception, match="the lane that ran this input died"):
            await stack.service.embed(["la factura"])
    await turns()

    readiness = await service.ready()

    assert not readiness.ready
    assert "none of 1 lanes is alive" in readiness.reasons


async def test_a_full_queue_with_fresh_batches_stays_ready(health, clock):
    """Overload is answered with 429; removing the replica would make it worse."""
    service, stack = health(GatedVectorEngine(), queue_tokens=8)
    stack.engine.gate.set()
    await stack.service.embed(["first"])
    stack.engine.gate.clear()
    stack.engine.entered.clear()
    busy = asyncio.create_task(stack.service.embed(["second"]))
    await stack.entered()
    waiting = asyncio.create_task(stack.service.embed(["la factura de"]))
    await turns()

    assert (await service.ready()).ready
    stack.engine.gate.set()
    await asyncio.gather(busy, waiting)


async def test_any_error_of_ours_is_a_reason(health):
    """A FinanciaError of the probe is a reason, never an exception of ``ready``."""
    service, _ = health(FailingVectorEngine(error=DeviceUnavailable("the card fell off the bus")))

    readiness = await service.ready()

    assert "the card fell off the bus" in readiness.reasons[0]


async def test_reports_are_ready_for_json(health):
    """Models, device, lanes and cache; and the report without a GPU."""
    service, _ = health(VectorEngine())

    report, gpu = json.loads(json.dumps(service.report())), json.loads(json.dumps(service.gpu()))

    assert {"models", "device", "lanes", "cache", "degraded", "measuring"} == set(report)
    assert [] == report["degraded"]
    assert "sentence-transformers/all-MiniLM-L6-v2" == report["models"][0]["name"]
    assert {"available": False} == gpu


async def test_a_lost_device_is_not_ready(health):
    """From the failing batch on, without a probe, and with the reason."""
    service, stack = health(FailingVectorEngine(error=RuntimeError("CUDA error: an illegal memory access")))
    with pytest.raises(DeviceLost):
        await stack.service.embed(["la factura"])

    readiness = await service.ready()

    assert not readiness.ready
    assert "illegal memory access" in readiness.reasons[0]


async def test_an_unloaded_model_is_not_probed(health, clock):
    """Unloaded is ready: the next request loads the model; checks every few seconds must not."""
    service, stack = health(VectorEngine())
    resident = UnloadableEncoder(VectorEngine(), VectorEngine, name="m")
    stack.catalog.replace(replace(stack.catalog.embedding(), residents=(resident,)))
    clock.advance(10 * FRESH_S)
    resident.unload()

    assert (await service.ready()).ready
    assert not stack.computed
    assert not resident.is_loaded
    assert not service.report()["models"][0]["is_loaded"]


async def test_the_metric_needs_no_probe(health, clock):
    """1 from the start, 0 after a failed probe, 1 again once a batch succeeds."""
    service, stack = health(FailingVectorEngine(poison=None))
    assert service.known_ready()
    assert not stack.computed

    assert not (await service.ready()).ready
    assert not service.known_ready()

    stack.engine.error, stack.engine.stage = RuntimeError("mended"), "never"
    clock.advance(1.0)
    await stack.service.embed(["la factura"])
    clock.advance(1.0)
    assert service.known_ready()


async def test_the_metric_falls_with_the_device(health):
    """A lost device shows without a probe."""
    service, stack = health(FailingVectorEngine(poison=None, error=DeviceLost("the card has gone")))
    with pytest.raises(DeviceLost):
        await stack.service.embed(["la factura"])

    assert not service.known_ready()
