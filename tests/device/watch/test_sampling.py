"""Snapshots of cards and devices, and what happens when a card is lost."""

import logging
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from backend.device.choice.selection import DeviceRequest
from backend.device.facts.machine import probe
from backend.device.facts.nvml import Nvml
from backend.device.facts.torch_source import Torch
from backend.device.memory.device_memory import RESERVE_BYTES
from backend.device.plan.placement import place
from backend.device.records import AllocatorStats, CardSample
from backend.device.watch.history import Sample
from backend.device.watch.sampling import Sampler, host_memory
from tests.device.fakes import (
    ALLOCATOR,
    APPLE,
    CARD,
    CPU,
    GIB,
    LOST,
    ON_APPLE,
    ON_CARD,
    ON_CPU,
    ON_OTHER,
    OTHER,
    SAMPLE,
    TWO_CARDS,
    FakeDriver,
    FakeTorch,
    host,
)


def sampler(facts=TWO_CARDS, placements=(ON_CARD,), *, driver=None, torch_source=None):
    return Sampler(facts, placements, driver=driver, torch_source=torch_source, host=host, clock=lambda: 7.0)


def test_snapshot_of_two_cards():
    """Every visible card is queried once; the allocator only of devices in use."""
    driver, stats = FakeDriver(), FakeTorch()

    snapshot = sampler(driver=driver, torch_source=stats).snapshot()

    assert (["GPU-1", "GPU-2"], ["cuda:0"], 7.0, 0) == (driver.asked, stats.asked, snapshot.at_s, snapshot.lost)
    assert [CARD, OTHER] == [card.gpu for card in snapshot.cards]
    [device] = snapshot.devices
    assert (4 * GIB, 20 * GIB, 24 * GIB, ALLOCATOR) == (
        device.used_bytes,
        device.free_bytes,
        device.total_bytes,
        device.allocator,
    )


@pytest.mark.parametrize(
    ("free", "stats", "ceiling", "expected"),
    [
        pytest.param(20 * GIB, ALLOCATOR, 12 * GIB, 10 * GIB - RESERVE_BYTES, id="the-ceiling-binds"),
        pytest.param(5 * GIB, ALLOCATOR, 12 * GIB, 6 * GIB - RESERVE_BYTES, id="the-card-binds-idle-blocks-count"),
        pytest.param(5 * GIB, ALLOCATOR, 0, 6 * GIB - RESERVE_BYTES, id="no-ceiling"),
        pytest.param(5 * GIB, None, 0, 5 * GIB - RESERVE_BYTES, id="no-allocator"),
        pytest.param(None, ALLOCATOR, 12 * GIB, 10 * GIB - RESERVE_BYTES, id="unknown-to-the-driver"),
        pytest.param(None, ALLOCATOR, 0, None, id="unknown"),
        pytest.param(0, AllocatorStats(), 0, 0, id="full"),
    ],
)
def test_headroom(free, stats, ceiling, expected):
    """The smaller of what the ceiling and what the card leaves; unknown stays unknown."""
    driver = FakeDriver([replace(SAMPLE, free_bytes=free)])
    source = FakeTorch([stats]) if stats else None

    [device] = (
        sampler(placements=[replace(ON_CARD, memory_bytes=ceiling)], driver=driver, torch_source=source)
        .snapshot()
        .devices
    )

    assert expected == device.headroom_bytes


def test_snapshot_of_a_cpu():
    """This process's own memory, what the machine has left and allows; torch is not asked, so never imported."""
    driver, stats = FakeDriver(), FakeTorch()

    [device] = sampler(CPU, [ON_CPU], driver=driver, torch_source=stats).snapshot().devices

    assert ([], []) == (driver.asked, stats.asked)
    assert (GIB, 6 * GIB, 8 * GIB) == (device.used_bytes, device.free_bytes, device.total_bytes)
    assert (6 * GIB - RESERVE_BYTES, None, "") == (device.headroom_bytes, device.allocator, device.lost)


def test_snapshot_of_an_apple_gpu():
    """What its driver gave, of what Metal recommends; never more free than the machine, whose memory it is."""
    stats = FakeTorch([AllocatorStats(2 * GIB, 3 * GIB, 2 * GIB)])

    [device] = sampler(APPLE, [ON_APPLE], torch_source=stats).snapshot().devices

    assert (3 * GIB, 6 * GIB, 12 * GIB) == (device.used_bytes, device.free_bytes, device.total_bytes)
    assert 7 * GIB - RESERVE_BYTES == device.headroom_bytes
    assert CardSample() == device.card.sample


def test_unified_memory_that_nvml_does_not_tell():
    """On GB10 and Jetson the card has no memory of its own: free is the machine's."""
    facts = replace(TWO_CARDS, gpus=(replace(CARD, unified=True),))

    [device] = sampler(facts, driver=FakeDriver([CardSample()]), torch_source=FakeTorch()).snapshot().devices

    assert (6 * GIB, 18 * GIB, 24 * GIB) == (device.free_bytes, device.used_bytes, device.total_bytes)


def test_a_lost_card(caplog):
    """Marked in every snapshot, logged once, and again when it is back; the other card is still sampled."""
    driver = FakeDriver([SAMPLE, LOST, LOST, SAMPLE, LOST])
    source = sampler(placements=[ON_CARD, ON_OTHER], driver=driver, torch_source=FakeTorch())
    with caplog.at_level(logging.INFO):
        snapshots = [source.snapshot() for _ in range(5)]

    assert [0, 2, 2, 0, 2] == [snapshot.lost for snapshot in snapshots]
    assert ["", str(LOST), str(LOST), "", str(LOST)] == [snapshot.devices[0].lost for snapshot in snapshots]
    by_card = [record.message for record in caplog.records if record.fields["gpu"] == "GPU-1"]
    assert ["a GPU no longer answers", "a GPU answers again", "a GPU no longer answers"] == by_card


def test_a_lost_device_has_no_numbers():
    """Of a lost card only its size and torch's statistics are known."""
    [device] = sampler(driver=FakeDriver([LOST]), torch_source=FakeTorch()).snapshot().devices

    assert (None, None, 24 * GIB, None, ALLOCATOR) == (
        device.used_bytes,
        device.free_bytes,
        device.total_bytes,
        device.headroom_bytes,
        device.allocator,
    )
    assert Sample(1.0, retries=1, lost=str(LOST)) == device.sample(1.0)


@pytest.mark.parametrize(
    ("initialized", "answer", "expected"),
    [
        pytest.param(True, (5 * GIB, 24 * GIB), (5 * GIB, 19 * GIB), id="from-torch"),
        pytest.param(False, (5 * GIB, 24 * GIB), (None, None), id="no-context-is-opened-for-a-reading"),
        pytest.param(True, RuntimeError("CUDA error: illegal address"), (None, None), id="the-context-is-dead"),
    ],
)
def test_without_nvml(monkeypatch, initialized, answer, expected):
    """A container without the driver's utilities: memory comes from torch's context, if it is open."""

    def mem_get_info(device):
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(torch, "cuda", SimpleNamespace(is_initialized=lambda: initialized, mem_get_info=mem_get_info))

    [device] = sampler(torch_source=FakeTorch()).snapshot().devices

    assert expected == (device.free_bytes, device.used_bytes)


def test_the_real_machine(device):
    """On a real GPU NVML and the allocator answer (--device cuda:0); on a CPU the operating system does."""
    driver, source = Nvml(), Torch()
    facts = probe(look_for_gpu=device != "cpu", driver=driver, torch_source=source)
    chosen = place(facts, DeviceRequest(device=device))
    if device != "cpu":
        torch.ones(2**20, device=device)

    [snapshot] = (
        Sampler(facts, [chosen], driver=driver, torch_source=source, host=host_memory, clock=float).snapshot().devices
    )

    assert 0 < snapshot.used_bytes < snapshot.total_bytes
    assert 0 <= snapshot.headroom_bytes < snapshot.total_bytes
    assert "" == snapshot.lost
    if device != "cpu":
        assert snapshot.allocator.peak_allocated_bytes >= 2**22
        assert 0.0 <= snapshot.card.sample.utilization_ratio <= 1.0
