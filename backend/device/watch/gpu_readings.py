"""PURE: the numbers of GET /metrics/gpu as metrics, in one table. What is null in the report is absent, never 0."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from backend.device.watch.gpu_report import Report, dotted
from backend.telemetry import Samples

# As nvml_queries names what holds clocks back; each has a series, so that an alert needs no "absent".
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
    """One row of the table of metrics: where its numbers stand in the report."""

    name: str  # after financia_
    help: str
    of: Callable[[Report], Any]  # of one card or device: a number, {label: number}, or None
    kind: Kind = "gauge"
    label: str = ""  # of the mapping's keys


def _in(*path: str) -> Callable[[Report], Any]:
    """Reads ``report[a][b]``; None as soon as a step is absent."""

    def read(report: Report) -> Any:
        found: Any = report
        for name in path:
            found = found.get(name) if isinstance(found, Mapping) else None
        return found

    return read


def _throttle(card: Report) -> dict[str, bool] | None:
    active = card.get("throttle")
    return None if active is None else {reason: reason in active for reason in (*THROTTLE_REASONS, *active)}


_CARDS = (
    _Family("gpu_lost", "1 while the card does not answer.", lambda card: bool(card.get("lost"))),
    _Family("gpu_memory_total_bytes", "Memory of the card.", _in("memory", "total_bytes")),
    _Family("gpu_memory_used_bytes", "Memory in use on the card, by every process.", _in("memory", "used_bytes")),
    _Family("gpu_memory_free_bytes", "Memory free on the card.", _in("memory", "free_bytes")),
    _Family("gpu_memory_unified", "1 where the card's memory is the machine's.", _in("unified")),
    _Family("gpu_utilization_ratio", "Share of time in which some kernel ran.", _in("utilization_ratio")),
    _Family(
        "gpu_memory_bandwidth_utilization_ratio",
        "Share of time in which memory was read or written; not how full it is.",
        _in("bandwidth_ratio"),
    ),
    _Family("gpu_temperature_celsius", "Temperature of the card.", _in("temperature_celsius")),
    _Family("gpu_power_watts", "Power drawn.", _in("power_watts")),
    _Family("gpu_power_limit_watts", "Power allowed.", _in("power_limit_watts")),
    _Family("gpu_energy_joules_total", "Energy used since the driver was loaded.", _in("energy_joules"), "counter"),
    _Family("gpu_clock_hz", "Clock now.", _in("clocks_hz"), label="domain"),
    _Family("gpu_throttle_active", "1 while this reason holds the clocks back.", _throttle, label="reason"),
    _Family("gpu_ecc_errors_total", "Uncorrected memory errors.", _in("ecc_errors"), "counter"),
    _Family("gpu_pcie_replays_total", "Transfers over PCIe that had to be repeated.", _in("pcie_replays"), "counter"),
    _Family("gpu_xid_errors_total", "Faults the driver reported, by Xid.", _in("xid_errors"), "counter", "xid"),
    _Family("gpu_processes", "Processes that hold memory on the card.", lambda card: _count(card.get("processes"))),
)
_ALLOCATORS = (
    _Family("torch_memory_allocated_bytes", "Memory in live tensors.", _in("allocator", "allocated_bytes")),
    _Family("torch_memory_reserved_bytes", "Memory torch took from the driver.", _in("allocator", "reserved_bytes")),
    _Family("torch_memory_active_bytes", "Memory in blocks in use.", _in("allocator", "active_bytes")),
    _Family(
        "torch_memory_allocated_peak_bytes", "Most memory in live tensors.", _in("allocator", "peak_allocated_bytes")
    ),
    _Family("torch_memory_reserved_peak_bytes", "Most memory taken.", _in("allocator", "peak_reserved_bytes")),
    _Family(
        "torch_alloc_retries_total",
        "Times the allocator emptied its cache to go on.",
        _in("allocator", "retries"),
        "counter",
    ),
    _Family("torch_ooms_total", "Allocations that failed for want of memory.", _in("allocator", "ooms"), "counter"),
    _Family(
        "torch_oom_rejections_total",
        "Allocations refused by this process's own ceiling.",
        _in("allocator", "rejections"),
        "counter",
    ),
)
_DEVICES = (
    _Family("gpu_available", "1 where this process computes on an accelerator.", lambda one: one["type"] != "cpu"),
    _Family("gpu_ceiling_bytes", "Memory this process may take on the device.", _in("ceiling_bytes")),
    _Family("gpu_headroom_bytes", "Memory this process can still take.", _in("headroom", "bytes")),
    _Family("gpu_headroom_batches", "Full batches that still fit.", _in("headroom", "batches")),
    _Family("gpu_exhaustion_seconds", "Time until memory that keeps falling is gone.", _in("headroom", "exhaustion_s")),
)
_COLLECTOR = (
    _Family(
        "gpu_collector_last_success_timestamp_seconds",
        "When every card last answered.",
        _in("collector", "last_success_timestamp_s"),
    ),
    _Family("gpu_collector_errors_total", "Looks that failed.", _in("collector", "errors"), "counter"),
)


def readings(report: Report) -> list[Samples]:
    """The report's numbers as metrics with their labels, for ``telemetry.render_samples``."""
    cards, devices = report["gpus"], report.get("devices") or [report]
    books = [one for one in devices if one.get("allocator")]
    return [
        _info(report),
        *(_family(one, _BY_DEVICE, [(_of_device(device), device) for device in devices]) for one in _DEVICES),
        *(_family(one, _BY_CARD, [(_of_card(card), card) for card in cards]) for one in _CARDS),
        *(_family(one, _BY_CARD, [(_of_books(device), device) for device in books]) for one in _ALLOCATORS),
        *(_family(one, (), [((), report)]) for one in _COLLECTOR),
    ]


def table() -> list[Samples]:
    """Every metric of GET /metrics/gpu without its rows, for documents."""
    return [replace(one, rows=()) for one in readings({"type": "cpu", "device": "cpu", "gpus": []})]


def _info(report: Report) -> Samples:
    """Who is who: the only series with names, joined to the others by ``uuid``."""
    driver = report.get("driver", {})
    labels = (*_BY_CARD, "name", "arch", "compute_capability", "driver", "cuda", "mig_profile")
    rows = tuple(
        (
            (
                *_of_card(card),
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
        found = family.of(subject)
        if family.label:
            rows += [((*values, str(key)), float(number)) for key, number in (found or {}).items()]
        elif found is not None:
            rows.append((values, float(found)))
    return Samples(family.name, family.kind, family.help, labels + (family.label,) * bool(family.label), tuple(rows))


def _of_card(card: Report) -> tuple[str, str]:
    return str(card["index"]), card["uuid"]


def _of_device(device: Report) -> tuple[str, str]:
    return device["device"], device.get("uuid", "")


def _of_books(device: Report) -> tuple[str, str]:
    return "" if device["gpu"] is None else str(device["gpu"]), device["uuid"]


def _count(processes: list[Report] | None) -> int | None:
    return None if processes is None else len(processes)
