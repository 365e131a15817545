"""Ready means that the device answered lately, or answers now."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from backend.errors import DeviceLost, DeviceUnavailable
from backend.models.encoder_source import UnloadableEncoder
from backend.services.health import CANARY_S, FRESH_S, HUNG_S, HealthService
from tests.fakes import ManualClock
from tests.services.house import FailingVectorEngine, GatedVectorEngine, House, NanEngine, VectorEngine


@pytest.fixture
def health(build, clock: ManualClock) -> Callable[..., tuple[HealthService, House]]:
    """A health service over a house: ``health(engine)``."""

    def make(engine, **options) -> tuple[HealthService, House]:
        house = build(engine, **options)
        return HealthService(
            house.catalog, house.batcher, house.cache, lambda: {"available": False}, clock=clock
        ), house

    return make


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_the_first_probe_flies_a_canary(health):
    """Before any request the device proves itself, through the lanes and the engine."""
    service, house = health(VectorEngine())

    assert (await service.ready()).ready
    assert 1 == len(house.computed)


async def test_a_fresh_batch_is_proof_enough(health, clock):
    """A busy service flies no canary; one that has been idle does."""
    service, house = health(VectorEngine())
    await house.service.embed(["la factura"])
    clock.advance(FRESH_S)

    assert (await service.ready()).ready
    assert 1 == len(house.computed)
    clock.advance(0.1)
    assert (await service.ready()).ready
    assert 2 == len(house.computed)


async def test_many_probes_share_one_canary(health):
    """A load balancer with many probes does not load the device."""
    service, house = health(GatedVectorEngine())
    probes = [asyncio.create_task(service.ready()) for _ in range(50)]
    await house.entered()
    await turns()
    house.engine.gate.set()
    found = await asyncio.gather(*probes)

    assert all(each.ready for each in found)
    assert 1 == len(house.computed)


async def test_a_probe_that_leaves_does_not_end_the_others(health):
    """The canary belongs to all of them."""
    service, house = health(GatedVectorEngine())
    first, second = [asyncio.create_task(service.ready()) for _ in range(2)]
    await house.entered()
    first.cancel()
    await turns()
    house.engine.gate.set()

    assert (await second).ready


async def test_a_failing_engine_is_not_ready(health):
    """The reason is the engine's fault in our words; when it works again, so does readiness."""
    service, house = health(FailingVectorEngine())

    found = await service.ready()

    assert not found.ready
    assert "the device did not answer a probe: the model failed" in found.reasons[0]
    house.engine.poison = -1
    assert (await service.ready()).ready


async def test_numbers_that_are_none_are_not_ready(health):
    """A device that answers NaN does not work."""
    service, _ = health(NanEngine())

    found = await service.ready()

    assert (False, ("the device answered a probe with numbers that are not finite",)) == (found.ready, found.reasons)


async def test_a_canary_that_waits_too_long_is_not_ready(health, clock):
    """Behind a batch that does not end the canary's time runs out, and every probe is told."""
    service, house = health(GatedVectorEngine())
    busy = asyncio.create_task(house.service.embed(["la factura"]))
    await house.entered()
    probes = [asyncio.create_task(service.ready()) for _ in range(3)]
    await turns()
    clock.advance(CANARY_S + 0.1)
    house.batcher.expire()
    found = await asyncio.gather(*probes)

    assert [False] * 3 == [each.ready for each in found]
    assert f"within {CANARY_S:g} s" in found[0].reasons[0]
    house.engine.gate.set()
    await busy


async def test_a_hung_lane_is_not_ready(health, clock):
    """Even while another lane still works and its batches are fresh."""
    service, house = health(GatedVectorEngine(), lanes=2)
    busy = asyncio.create_task(house.service.embed(["la factura"]))
    await house.entered()
    clock.advance(HUNG_S + 1)

    found = await service.ready()

    assert not found.ready
    assert f"a lane has run one batch for {HUNG_S + 1:.0f} s" in found.reasons[0]
    house.engine.gate.set()
    await busy


async def test_a_lane_that_is_only_slow_stays_ready(health, clock):
    """A long batch is no hang; the batch before it was fresh."""
    service, house = health(GatedVectorEngine())
    house.engine.gate.set()
    await house.service.embed(["first"])
    house.engine.gate.clear()
    house.engine.entered.clear()
    busy = asyncio.create_task(house.service.embed(["second"]))
    await house.entered()
    clock.advance(FRESH_S - 1)

    assert (await service.ready()).ready
    house.engine.gate.set()
    await busy


async def test_no_lanes_is_not_ready(health):
    """Stopped lanes answer nobody, and no canary is sent to them."""
    service, house = health(VectorEngine())
    await house.batcher.drain(1.0)

    found = await service.ready()

    assert (False, ("none of 1 lanes is alive",)) == (found.ready, found.reasons)
    assert [] == house.computed


async def test_lanes_that_died_are_not_ready(health):
    """An error that ends lanes shows in readiness at once."""

    class Lethal(VectorEngine):
        def forward(self, prepared):
            raise SystemExit("the device is lost")

    service, house = health(Lethal())
    for _ in range(3):
        with pytest.raises(Exception, match="the lane that ran this input died"):
            await house.service.embed(["la factura"])
    await turns()

    found = await service.ready()

    assert not found.ready
    assert "none of 1 lanes is alive" in found.reasons


async def test_a_full_queue_with_fresh_batches_stays_ready(health, clock):
    """Overload is answered with 429; taking the replica away would only make it worse."""
    service, house = health(GatedVectorEngine(), queue_tokens=8)
    house.engine.gate.set()
    await house.service.embed(["first"])
    house.engine.gate.clear()
    house.engine.entered.clear()
    busy = asyncio.create_task(house.service.embed(["second"]))
    await house.entered()
    waiting = asyncio.create_task(house.service.embed(["la factura de"]))
    await turns()

    assert (await service.ready()).ready
    house.engine.gate.set()
    await asyncio.gather(busy, waiting)


async def test_an_error_of_the_tree_that_is_not_inference(health):
    """Whatever of ours the canary meets is a reason, never an exception of the probe."""
    service, _ = health(FailingVectorEngine(error=DeviceUnavailable("the card fell off the bus")))

    found = await service.ready()

    assert "the card fell off the bus" in found.reasons[0]


async def test_reports_are_ready_for_json(health):
    """Models, device, lanes and cache; and the GPU's answer where there is none."""
    service, _ = health(VectorEngine())

    report, gpu = json.loads(json.dumps(service.report())), json.loads(json.dumps(service.gpu()))

    assert {"models", "device", "lanes", "cache"} == set(report)
    assert "sentence-transformers/all-MiniLM-L6-v2" == report["models"][0]["name"]
    assert {"available": False} == gpu


async def test_a_lost_device_is_not_ready(health):
    """From the failing batch on, without waiting for a canary, and with the reason."""
    service, house = health(FailingVectorEngine(error=RuntimeError("CUDA error: an illegal memory access")))
    with pytest.raises(DeviceLost):
        await house.service.embed(["la factura"])

    found = await service.ready()

    assert not found.ready
    assert "illegal memory access" in found.reasons[0]


async def test_an_idle_model_is_not_called_back_by_a_probe(health, clock):
    """Unloaded is ready: the next request loads it. A probe every few seconds must not."""
    service, house = health(VectorEngine())
    resident = UnloadableEncoder(VectorEngine(), VectorEngine, name="m")
    house.catalog.replace(replace(house.catalog.embedding(), residents=(resident,)))
    clock.advance(10 * FRESH_S)
    resident.unload()

    assert (await service.ready()).ready
    assert not house.computed
    assert not resident.is_loaded
    assert not service.report()["models"][0]["is_loaded"]


async def test_the_metric_says_what_is_known(health, clock):
    """1 from the start, 0 after a canary that failed, 1 again once a batch succeeds; it never asks the device."""
    service, house = health(FailingVectorEngine(poison=None))
    assert service.known_ready()
    assert not house.computed

    assert not (await service.ready()).ready
    assert not service.known_ready()

    house.engine.error, house.engine.stage = RuntimeError("mended"), "never"
    clock.advance(1.0)
    await house.service.embed(["la factura"])
    clock.advance(1.0)
    assert service.known_ready()


async def test_the_metric_falls_with_the_device(health):
    """Nobody has to probe for it."""
    service, house = health(FailingVectorEngine(poison=None, error=DeviceLost("the card has gone")))
    with pytest.raises(DeviceLost):
        await house.service.embed(["la factura"])

    assert not service.known_ready()
