"""PURE: the table of Prometheus metrics of GET /metrics/gpu. A null of the report gives no sample, never a 0."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from backend.device.watch.gpu_report import Report, dotted
from backend.telemetry import Samples

# The names in backend/device/facts; each always has a series, so that alert rules need no "absent()".
THROTTLE_REASONS = (
    "sw_power_cap",
    "hw_slowdown",
    "sync_boost",
    "sw_thermal_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "display_clock_setting",
)

Row = tuple[tuple[str, ...], float]
Kind = Literal["gauge", "counter"]
_BY_CARD = ("gpu", "uuid")
_BY_DEVICE = ("device", "uuid")


@dataclass(frozen=True, slots=True)
class _Family:
    """One metric and where its values are in the report."""

    name: str  # after financia_
    help: str
    value_of: Callable[[Report], Any]  # card or device -> a number, {label: number}, or None
    kind: Kind = "gauge"
    label: str = ""  # name of the label that takes the mapping's keys


def _at(*path: str) -> Callable[[Report], Any]:
    """Reads ``report[a][b]``; None as soon as a step is absent."""

    def read(report: Report) -> Any:
        value: Any = report
        for name in path:
            value = value.get(name) if isinstance(value, Mapping) else None
        return value

    return read


def _throttle(card: Report) -> dict[str, bool] | None:
    active = card.get("throttle")
    return None if active is None else {reason: reason in active for reason in (*THROTTLE_REASONS, *active)}


_CARDS = (
    _Family("gpu_lost", "1 while the card does not answer.", lambda card: bool(card.get("lost"))),
    _Family("gpu_memory_total_bytes", "Memory of the card.", _at("memory", "total_bytes")),
    _Family("gpu_memory_used_bytes", "Memory in use on the card, by every process.", _at("memory", "used_bytes")),
    _Family("gpu_memory_free_bytes", "Memory free on the card.", _at("memory", "free_bytes")),
    _Family("gpu_memory_unified", "1 where the card's memory is the machine's.", _at("unified")),
    _Family("gpu_utilization_ratio", "Share of time in which some kernel ran.", _at("utilization_ratio")),
    _Family(
        "gpu_memory_bandwidth_utilization_ratio",
        "Share of time in which memory was read or written; not how full it is.",
        _at("bandwidth_ratio"),
    ),
    _Family("gpu_temperature_celsius", "Temperature of the card.", _at("temperature_celsius")),
    _Family("gpu_power_watts", "Power drawn.", _at("power_watts")),
    _Family("gpu_power_limit_watts", "Power allowed.", _at("power_limit_watts")),
    _Family("gpu_energy_joules_total", "Energy used since the driver was loaded.", _at("energy_joules"), "counter"),
    _Family("gpu_clock_hz", "Clock now.", _at("clocks_hz"), label="domain"),
    _Family("gpu_throttle_active", "1 while this reason holds the clocks back.", _throttle, label="reason"),
    _Family("gpu_ecc_errors_total", "Uncorrected memory errors.", _at("ecc_errors"), "counter"),
    _Family("gpu_pcie_replays_total", "Transfers over PCIe that had to be repeated.", _at("pcie_replays"), "counter"),
    _Family("gpu_xid_errors_total", "Faults the driver reported, by Xid.", _at("xid_errors"), "counter", "xid"),
    _Family("gpu_processes", "Processes that hold memory on the card.", lambda card: _count(card.get("processes"))),
)
_ALLOCATORS = (
    _Family("torch_memory_allocated_bytes", "Memory in live tensors.", _at("allocator", "allocated_bytes")),
    _Family("torch_memory_reserved_bytes", "Memory torch took from the driver.", _at("allocator", "reserved_bytes")),
    _Family("torch_memory_active_bytes", "Memory in blocks in use.", _at("allocator", "active_bytes")),
    _Family(
        "torch_memory_allocated_peak_bytes", "Most memory in live tensors.", _at("allocator", "peak_allocated_bytes")
    ),
    _Family("torch_memory_reserved_peak_bytes", "Most memory taken.", _at("allocator", "peak_reserved_bytes")),
    _Family(
        "torch_alloc_retries_total",
        "Times the allocator emptied its cache to go on.",
        _at("allocator", "retries"),
        "counter",
    ),
    _Family("torch_ooms_total", "Allocations that failed for want of memory.", _at("allocator", "ooms"), "counter"),
    _Family(
        "torch_oom_rejections_total",
        "Allocations refused by this process's own ceiling.",
        _at("allocator", "rejections"),
        "counter",
    ),
)
_DEVICES = (
    _Family("gpu_available", "1 where this process computes on an accelerator.", lambda item: item["type"] != "cpu"),
    _Family("gpu_ceiling_bytes", "Memory this process may take on the device.", _at("ceiling_bytes")),
    _Family("gpu_headroom_bytes", "Memory this process can still take.", _at("headroom", "bytes")),
    _Family("gpu_headroom_batches", "Full batches that still fit.", _at("headroom", "batches")),
    _Family("gpu_exhaustion_seconds", "Time until memory that keeps falling is gone.", _at("headroom", "exhaustion_s")),
)
_COLLECTOR = (
    _Family(
        "gpu_collector_last_success_timestamp_seconds",
        "When every card last answered.",
        _at("collector", "last_success_timestamp_s"),
    ),
    _Family("gpu_collector_errors_total", "Looks that failed.", _at("collector", "errors"), "counter"),
)


def gpu_samples(report: Report) -> list[Samples]:
    """The report's values as metrics with labels."""
    cards, devices = report["gpus"], report.get("devices") or [report]
    with_allocator = [device for device in devices if device.get("allocator")]
    return [
        _info(report),
        *(_family(family, _BY_DEVICE, [(_device_labels(device), device) for device in devices]) for family in _DEVICES),
        *(_family(family, _BY_CARD, [(_card_labels(card), card) for card in cards]) for family in _CARDS),
        *(
            _family(family, _BY_CARD, [(_allocator_labels(device), device) for device in with_allocator])
            for family in _ALLOCATORS
        ),
        *(_family(family, (), [((), report)]) for family in _COLLECTOR),
    ]


def table() -> list[Samples]:
    """Every metric of GET /metrics/gpu without values, for the documentation."""
    return [replace(metric, rows=()) for metric in gpu_samples({"type": "cpu", "device": "cpu", "gpus": []})]


def _info(report: Report) -> Samples:
    """The only series with names; queries join it to the others by ``uuid``."""
    driver = report.get("driver", {})
    labels = (*_BY_CARD, "name", "arch", "compute_capability", "driver", "cuda", "mig_profile")
    rows = tuple(
        (
            (
                *_card_labels(card),
                card["name"],
                card.get("architecture", ""),
                dotted(card["capability"]),
                driver.get("version", ""),
                driver.get("cuda", ""),
                card.get("mig", ""),
            ),
            1.0,
        )
        for card in report["gpus"]
    )
    return Samples("gpu_info", "gauge", "1 for each card this process may see.", labels, rows)


def _family(family: _Family, labels: tuple[str, ...], subjects: Iterable[tuple[tuple[str, ...], Report]]) -> Samples:
    rows: list[Row] = []
    for values, subject in subjects:
        value = family.value_of(subject)
        if family.label:
            rows += [((*values, str(key)), float(number)) for key, number in (value or {}).items()]
        elif value is not None:
            rows.append((values, float(value)))
    return Samples(family.name, family.kind, family.help, labels + (family.label,) * bool(family.label), tuple(rows))


def _card_labels(card: Report) -> tuple[str, str]:
    return str(card["index"]), card["uuid"]


def _device_labels(device: Report) -> tuple[str, str]:
    return device["device"], device.get("uuid", "")


def _allocator_labels(device: Report) -> tuple[str, str]:
    return "" if device["gpu"] is None else str(device["gpu"]), device["uuid"]


def _count(processes: list[Report] | None) -> int | None:
    return None if processes is None else len(processes)
