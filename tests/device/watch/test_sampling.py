"""Snapshots of cards and devices, and what happens when a card is lost."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from backend.device.memory.device_memory import RESERVE_BYTES
from backend.device.records import AllocatorStats, CardSample
from backend.device.watch.history import Sample
from backend.device.watch.sampling import Sampler
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
        pytest.param(5 * GIB, None, 0, 5 * GIB - RESERVE_BYTES, id="no-allocator"),
        pytest.param(None, ALLOCATOR, 0, None, id="unknown"),
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
