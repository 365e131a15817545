"""Batch limits are measured once, kept, lowered by every out-of-memory error and never exceeded."""

from dataclasses import replace

import pytest

from backend.device.memory.device_memory import RESERVE_BYTES
from backend.device.memory.memory_table import Affine, MemoryTable
from backend.device.plan.placement import with_vectors
from backend.device.records import AllocatorStats, Platform
from backend.device.tuning_cache import TuningCache
from backend.models import batch_limits
from backend.models.autotune import Choice
from backend.models.batch_limits import (
    AdaptiveBatchLimits,
    AdaptiveCountLimit,
    CudaMemory,
    MemorySnapshot,
    measure_batch_limits,
)
from tests.fakes import ManualClock
from tests.tiny_models import encoder_of, placement, spec_of

MIB = 1 << 20
TABLE = MemoryTable({64: Affine(10 * MIB, 1 * MIB), 512: Affine(10 * MIB, 10 * MIB)})


def limits_with(snapshot: MemorySnapshot, **options) -> AdaptiveBatchLimits:
    return AdaptiveBatchLimits(AdaptiveCountLimit(TABLE), "cpu", lambda: snapshot, TABLE, **options)


@pytest.mark.parametrize(
    ("headroom_mib", "length", "expected"),
    [(110, 64, 100), (110, 40, 100), (110, 65, 10), (110, 512, 10), (15, 512, 1), (0, 512, 1)],
)
def test_capacity_is_by_length_and_by_what_is_free_now(headroom_mib, length, expected):
    """The bucket above the length decides; one text is always tried."""
    assert expected == limits_with(MemorySnapshot(headroom_mib * MIB)).capacity()(length)


@pytest.mark.slow
def test_an_out_of_memory_error_lowers_the_limit_for_the_next_process_too():
    """The limit is halved at once and saved."""
    kept: list[dict[int, int]] = []
    limits = limits_with(MemorySnapshot(110 * MIB), save_caps=lambda caps: kept.append(dict(caps)))
    limits.out_of_memory(512, 10)

    assert 5 == limits.capacity()(512)
    assert [{512: 5}] == kept


def test_an_allocator_that_flushes_its_cache_is_a_warning():
    """Batches that only just fit shrink before one fails."""
    snapshots = iter([MemorySnapshot(110 * MIB, retries) for retries in (0, 1, 2, 3, 3)])
    limits = AdaptiveBatchLimits(AdaptiveCountLimit(TABLE), "cpu", lambda: next(snapshots), TABLE)
    for _ in range(3):
        limits.succeeded(512, 10)

    assert limits.capacity()(512) < 10


def test_memory_of_a_full_batch():
    """For the forecast: a budget of 2048 tokens is four texts of 512."""
    assert (10 + 4 * 10) * MIB == limits_with(MemorySnapshot(0)).batch_bytes(2048, 512)
    assert (
        AdaptiveBatchLimits(AdaptiveCountLimit(None), "cpu", lambda: MemorySnapshot(0)).batch_bytes(2048, 512) is None
    )


def test_the_driver_is_asked_once_a_second(monkeypatch):
    """Between two reads our own allocator's growth is known from its counters."""
    asked: list[str] = []
    books = AllocatorStats(allocated_bytes=100 * MIB, reserved_bytes=200 * MIB, active_bytes=100 * MIB)
    stats = [books]
    clock = ManualClock()

    def free_bytes(device: str) -> int:
        asked.append(device)
        return 1800 * MIB

    monkeypatch.setattr(batch_limits, "_free_bytes", free_bytes)
    snapshot = CudaMemory(placement(), clock=clock)
    monkeypatch.setattr(snapshot._torch, "allocator", lambda device: stats[0])
    first = snapshot().headroom_bytes
    # 500 MiB more were taken from the driver, all of it active
    stats[0] = AllocatorStats(allocated_bytes=600 * MIB, reserved_bytes=700 * MIB, active_bytes=600 * MIB)
    second = snapshot().headroom_bytes
    assert 1 == len(asked)
    clock.advance(1.1)
    snapshot()

    assert 500 * MIB == first - second
    assert 2 == len(asked)


def test_vectors_of_search_leave_models_what_they_were_promised(monkeypatch):
    """With their part of the card full, the headroom is that of a card without them and so much smaller."""
    card = replace(placement(device="cuda:0"), memory_bytes=4000 * MIB)
    shared = with_vectors(card, 300 * MIB)
    headroom = []
    for place, vectors in ((replace(card, memory_bytes=3700 * MIB), 0), (shared, 300 * MIB)):
        monkeypatch.setattr(batch_limits, "_free_bytes", lambda _: 9000 * MIB)
        snapshot = CudaMemory(place)
        held = 1000 * MIB + vectors
        stats = AllocatorStats(allocated_bytes=held, reserved_bytes=held, active_bytes=held)
        monkeypatch.setattr(snapshot._torch, "allocator", lambda _, stats=stats: stats)
        headroom.append(snapshot().headroom_bytes)

    assert headroom[0] == headroom[1] > 2000 * MIB


@pytest.mark.parametrize(
    ("fraction", "process_mib", "expected_mib"),
    [
        pytest.param(None, 4000, 4000, id="no-limit-in-torch"),
        pytest.param(1.0, 4000, 4000, id="not-set-yet"),
        pytest.param(0.25, 4000, 2000, id="a-part-left-to-others"),
        pytest.param(0.25, 0, 2000, id="a-placement-without-one"),
    ],
)
def test_the_ceiling_that_torch_was_given_counts(monkeypatch, fraction, process_mib, expected_mib):
    """OCR on the same card takes a part of the process's memory that torch never sees: no batch is promised it."""
    monkeypatch.setattr(batch_limits, "_free_bytes", lambda _: 9000 * MIB)
    monkeypatch.setattr(batch_limits, "_total_bytes", lambda _: 8000 * MIB)
    snapshot = CudaMemory(replace(placement(device="cuda:0"), memory_bytes=process_mib * MIB))
    monkeypatch.setattr(snapshot._torch, "allocator", lambda _: AllocatorStats(fraction=fraction))

    assert expected_mib * MIB - RESERVE_BYTES == snapshot().headroom_bytes


def test_a_device_that_reports_no_peaks_is_limited_by_out_of_memory_errors_only(tmp_path):
    """On a CPU nothing is measured and nothing is kept; an out-of-memory error still halves."""
    kept = TuningCache(tmp_path / "tuning.json")
    encoder, spec = encoder_of("minilm", "onnx", "fp32"), spec_of("minilm")
    choice = Choice("onnx", "fp32", 512, 1.0, ())
    limits = measure_batch_limits(encoder, spec, choice, placement(), kept=kept, platform=Platform())
    assert limits.capacity()(512) > 1_000_000
    limits.out_of_memory(512, 8)

    assert 4 == limits.capacity()(512)
    assert not (tmp_path / "tuning.json").exists()


def test_probes_are_padded_as_texts_are():
    """The longest has the bucket's length, the others less: attention gets a mask, except for a lone text."""
    encoder = encoder_of("minilm", "onnx", "fp32")
    masks = [encoder.prepare(batch_limits.probe_batch(count, 64)).mask for count in (1, 2, 3)]

    assert [(1, 1, 1, 64), (2, 1, 1, 64), (3, 1, 1, 64)] == [mask.shape for mask in masks]
    assert [False, True, True] == [bool((mask != 0).any()) for mask in masks]
    assert [1, 1] == [len(text) for text in batch_limits.probe_batch(2, 1)]


def test_a_card_is_measured_once(tmp_path, device):
    """On a real card (--device cuda:0): a table for every length, read from the file by the second start."""
    if not device.startswith("cuda"):
        pytest.skip("needs a card: tests/device/memory/test_probe.py measures with a meter that is told")
    kept = TuningCache(tmp_path / "tuning.json")
    encoder, spec = encoder_of("minilm", "torch", "fp32", device), spec_of("minilm")
    choice, place = Choice("torch", "fp32", 16384, 1.0, ()), placement(device=device)
    first = measure_batch_limits(encoder, spec, choice, place, kept=kept, platform=Platform())
    second = measure_batch_limits(None, spec, choice, place, kept=kept, platform=Platform())  # nothing is run

    assert first.batch_bytes(4096, 512) == second.batch_bytes(4096, 512)
    assert first.batch_bytes(4096, 512) > first.batch_bytes(1024, 512)
