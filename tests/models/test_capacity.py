"""What fits a device is measured once, kept, lowered by every miss and never exceeded."""

from __future__ import annotations

import pytest

from backend.device.measurements import TunedSettings
from backend.device.memory.adaptive_limit import LearntLimits
from backend.device.memory.memory_table import Affine, MemoryTable
from backend.device.records import AllocatorStats, Platform
from backend.models import capacity
from backend.models.autotune import Choice
from backend.models.capacity import CardGlance, Glance, LearntRoom, learn_room
from tests.fakes import ManualClock
from tests.tiny_models import encoder_of, placement, spec_of

MIB = 1 << 20
TABLE = MemoryTable({64: Affine(10 * MIB, 1 * MIB), 512: Affine(10 * MIB, 10 * MIB)})


def learnt(glance: Glance, **options) -> LearntRoom:
    return LearntRoom(LearntLimits(TABLE), "cpu", lambda: glance, TABLE, **options)


@pytest.mark.parametrize(
    ("headroom_mib", "length", "expected"),
    [(110, 64, 100), (110, 40, 100), (110, 65, 10), (110, 512, 10), (15, 512, 1), (0, 512, 1)],
)
def test_capacity_is_by_length_and_by_what_is_free_now(headroom_mib, length, expected):
    """The bucket above the length decides; one text is always tried."""
    assert expected == learnt(Glance(headroom_mib * MIB)).capacity()(length)


def test_a_miss_is_remembered_by_the_next_process():
    """The limit is halved at once and handed to whoever keeps it."""
    kept: list[dict[int, int]] = []
    found = learnt(Glance(110 * MIB), keep=lambda caps: kept.append(dict(caps)))
    found.missed(512, 10)

    assert 5 == found.capacity()(512)
    assert [{512: 5}] == kept


def test_an_allocator_that_flushes_its_cache_is_a_warning():
    """Batches that only just fit shrink before one fails."""
    looks = iter([Glance(110 * MIB, 0), *(Glance(110 * MIB, count) for count in (1, 2, 3)), Glance(110 * MIB, 3)])
    found = LearntRoom(LearntLimits(TABLE), "cpu", lambda: next(looks), TABLE)
    for _ in range(3):
        found.succeeded(512, 10)

    assert found.capacity()(512) < 10


def test_memory_of_a_full_batch():
    """For the forecast: a budget of 2048 tokens is four texts of 512."""
    assert (10 + 4 * 10) * MIB == learnt(Glance(0)).batch_bytes(2048, 512)
    assert LearntRoom(LearntLimits(None), "cpu", lambda: Glance(0)).batch_bytes(2048, 512) is None


def test_the_driver_is_asked_once_a_second(monkeypatch):
    """Between two looks our own allocator's growth is known from its books."""
    asked: list[str] = []
    books = AllocatorStats(allocated_bytes=100 * MIB, reserved_bytes=200 * MIB, active_bytes=100 * MIB)
    stats = [books]
    clock = ManualClock()

    def free_bytes(device: str) -> int:
        asked.append(device)
        return 1800 * MIB

    monkeypatch.setattr(capacity, "_free_bytes", free_bytes)
    glance = CardGlance(placement(), clock=clock)
    monkeypatch.setattr(glance._torch, "allocator", lambda device: stats[0])
    first = glance().headroom_bytes
    # 500 MiB more were taken from the driver, all of it active
    stats[0] = AllocatorStats(allocated_bytes=600 * MIB, reserved_bytes=700 * MIB, active_bytes=600 * MIB)
    second = glance().headroom_bytes
    assert 1 == len(asked)
    clock.advance(1.1)
    glance()

    assert 500 * MIB == first - second
    assert 2 == len(asked)


def test_where_peaks_are_not_told_only_misses_limit(tmp_path):
    """On a CPU nothing is measured and nothing is kept; a miss still halves."""
    kept = TunedSettings(tmp_path / "tuning.json")
    encoder, spec = encoder_of("bundled", "onnx", "fp32"), spec_of("bundled")
    choice = Choice("onnx", "fp32", 512, 1.0, ())
    found = learn_room(encoder, spec, choice, placement(), kept=kept, platform=Platform())
    assert found.capacity()(512) > 1_000_000
    found.missed(512, 8)

    assert 4 == found.capacity()(512)
    assert not (tmp_path / "tuning.json").exists()


def test_a_card_is_measured_once(tmp_path, device):
    """On a real card (--device cuda:0): a table for every length, read from the file by the second start."""
    if not device.startswith("cuda"):
        pytest.skip("needs a card: tests/device/memory/test_probe.py measures with a meter that is told")
    kept = TunedSettings(tmp_path / "tuning.json")
    encoder, spec = encoder_of("bundled", "torch", "fp32", device), spec_of("bundled")
    choice, place = Choice("torch", "fp32", 16384, 1.0, ()), placement(device=device)
    first = learn_room(encoder, spec, choice, place, kept=kept, platform=Platform())
    second = learn_room(None, spec, choice, place, kept=kept, platform=Platform())  # nothing is run

    assert first.batch_bytes(4096, 512) == second.batch_bytes(4096, 512)
    assert first.batch_bytes(4096, 512) > first.batch_bytes(1024, 512)
