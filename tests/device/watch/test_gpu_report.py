"""The body of GET /metrics/gpu: the same keys everywhere, and null for unknown values."""

import json
from dataclasses import replace

import pytest

from backend.device.records import CardSample
from backend.device.watch.gpu_report import DeviceSummary, performance
from backend.device.watch.history import AlertKind, Headroom, Sample
from tests.device.fakes import (
    ALLOCATOR,
    APPLE,
    CARD,
    CPU,
    GIB,
    LOST,
    MACHINES,
    ON_APPLE,
    ON_CARD,
    ON_CPU,
    TWO_CARDS,
    report,
    snapshot,
)


def shape(value):
    """The nested keys of a report, without the lists of cards."""
    if isinstance(value, dict):
        return {name: shape(inner) for name, inner in value.items() if name not in ("gpus", "memory")}
    return None


@pytest.mark.parametrize(("facts", "placement", "samples", "available"), MACHINES)
def test_one_shape(facts, placement, samples, available):
    """The same names on every machine, ready for JSON, with the device in use and its reason on top."""
    found = report(facts, placement, samples)

    expected = report()
    assert shape(expected) == shape(found)
    assert (available, placement.device, placement.why[0]) == (found["available"], found["device"], found["reason"])
    assert len(facts.gpus) == len(found["gpus"])
    assert all(set(expected["gpus"][0]) == set(card) for card in found["gpus"])
    [device] = found["devices"]
    assert set(device["memory"]) == set(found["memory"]) == {"used_bytes", "free_bytes", "total_bytes"}


def test_a_card():
    """Identity from the machine facts, values from the driver; processes by size, hidden sizes as null."""
    assert {
        "name": "NVIDIA L4",
        "uuid": "GPU-1",
        "index": 0,
        "capability": [8, 9],
        "architecture": "Ada Lovelace",
        "device": "cuda:0",
        "utilization_ratio": 0.5,
        "bandwidth_ratio": 0.25,
        "temperature_celsius": 54.0,
        "power_watts": 61.5,
        "power_limit_watts": 72.0,
        "energy_joules": 123.5,
        "ecc_errors": 0,
        "pcie_replays": 3,
        "memory": {"used_bytes": 4 * GIB, "free_bytes": 20 * GIB, "total_bytes": 24 * GIB},
        "clocks_hz": {"sm": 2_040_000_000, "memory": 6_251_000_000},
        "throttle": ["sw_power_cap"],
        "xid_errors": {"31": 2},
        "processes": [
            {"pid": 17, "name": "python", "used_bytes": 3 * GIB, "own": True},
            {"pid": 4711, "name": "train", "used_bytes": None, "own": False},
        ],
    }.items() <= report()["gpus"][0].items()


def test_unknown_values_are_null():
    """A card without sensors gives nulls, not zeros."""
    card = report(samples=[CardSample()])["gpus"][1]

    assert {None} == {
        card[name]
        for name in ("utilization_ratio", "temperature_celsius", "power_watts", "clocks_hz", "throttle", "xid_errors")
    } | {card["processes"], *card["memory"].values()}


def test_apples_memory():
    """Where there is no driver to ask, the card's memory is what torch told of the device in use."""
    assert {"used_bytes": 3 * GIB, "free_bytes": 6 * GIB, "total_bytes": 12 * GIB} == report(APPLE, ON_APPLE)["gpus"][
        0
    ]["memory"]


def test_a_device():
    """Allocator, ceiling, headroom, warnings that stand, and the range of what was seen."""
    samples = (
        Sample(10.0, headroom_bytes=4, used_bytes=2, temperature_celsius=50.0),
        Sample(20.0, headroom_bytes=2, used_bytes=None, temperature_celsius=60.0),
    )
    summary = DeviceSummary(
        Headroom(5 * GIB, 2.5, 300.0), frozenset({AlertKind.RETRIES, AlertKind.EXHAUSTION}), samples
    )

    [device] = report(summary=summary)["devices"]

    assert ("GPU-1", 0, 20 * GIB, "") == tuple(device[name] for name in ("uuid", "gpu", "ceiling_bytes", "lost"))
    assert (ALLOCATOR.reserved_bytes, 0.9) == (device["allocator"]["reserved_bytes"], device["allocator"]["fraction"])
    assert {"bytes": 5 * GIB, "batches": 2.5, "exhaustion_s": 300.0} == device["headroom"]
    assert ["exhaustion", "retries"] == device["alerts"]
    assert {
        "samples": 2,
        "seconds": 10.0,
        "used_bytes": {"minimum": 2, "mean": 2.0, "maximum": 2, "count": 1},
        "room_bytes": {"minimum": 2, "mean": 3.0, "maximum": 4, "count": 2},
        "utilization_ratio": None,
        "temperature_celsius": {"minimum": 50.0, "mean": 55.0, "maximum": 60.0, "count": 2},
        "power_watts": None,
    } == device["history"]


def test_a_lost_card():
    """The reason is in card and device."""
    found = report(samples=[LOST])

    assert (str(LOST), str(LOST)) == (found["gpus"][0]["lost"], found["devices"][0]["lost"])
    assert {"used_bytes": None, "free_bytes": None, "total_bytes": 24 * GIB} == found["memory"]


def test_machine_and_collector():
    """Platform, driver, state of the collector and the service's totals."""
    found = report()

    assert ("Linux (docker)", {"version": "580.95.05", "cuda": "13.0", "fault": ""}) == (
        found["platform"],
        found["driver"],
    )
    assert ({"oom_recoveries_total": 3.0}, 3, 1) == (
        found["counters"],
        found["collector"]["looks"],
        found["collector"]["errors"],
    )
    assert "no NVIDIA driver answers" == report(CPU, ON_CPU)["why_no_gpu"]


def test_performance_on_a_card():
    """Percent and GiB by the guides' names, base units besides."""
    found = performance(snapshot(replace(TWO_CARDS, gpus=(CARD,)), ON_CARD))

    assert {
        "gpu_utilization": 50.0,
        "memory_utilization": 25.0,
        "memory_allocated_gb": 2.0,
        "memory_reserved_gb": 3.0,
        "memory_cached_gb": 1.0,
        "memory_peak_gb": 5.0,
        "memory_used_gb": 4.0,
        "memory_free_gb": 20.0,
        "memory_total_gb": 24.0,
        "memory_allocated_bytes": 2 * GIB,
        "utilization_ratio": 0.5,
        "power_watts": 61.5,
        "name": "NVIDIA L4",
        "device": "cuda:0",
        "lost": "",
        "allocator_retries": 1,
        "elapsed_s": 1.0,
    }.items() <= found.items()
    assert json.dumps(found)
