"""PURE: composes the body of GET /metrics/gpu from a snapshot and the history, and its series for Prometheus.

``gpus`` are the cards that the driver reports, ``devices`` what this process computes on, the CPU included. The keys
are the same on every machine; an unknown value is null, never 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from backend.device.facts.compute_capability import architecture
from backend.device.records import CardSample, DeviceType, MachineFacts
from backend.device.watch.history import AlertKind, Headroom, Sample, spread
from backend.device.watch.sampling import CardSnapshot, DeviceSnapshot, Snapshot, is_on
from backend.telemetry import Samples

Report = dict[str, Any]
# The names in backend/device/facts; each always has a series, so that alert rules need no "absent()".
THROTTLE_REASONS = (
    "sw_power_cap", "hw_slowdown", "sync_boost", "sw_thermal_slowdown", "hw_thermal_slowdown",
    "hw_power_brake_slowdown", "display_clock_setting",
)  # fmt: skip

Row = tuple[tuple[str, ...], float]
Kind = Literal["gauge", "counter"]
_BY_CARD = ("gpu", "uuid")
_BY_DEVICE = ("device", "uuid")


@dataclass(frozen=True, slots=True)
class DeviceSummary:
    """What the monitor computed from one device's history."""

    headroom: Headroom
    active_alerts: frozenset[AlertKind]
    samples: tuple[Sample, ...]  # the history, oldest first


@dataclass(frozen=True, slots=True)
class Collector:
    """State of the monitor itself; the fields are keys of GET /metrics/gpu."""

    running: bool
    interval_s: float
    looks: int  # snapshots taken
    errors: int  # snapshots that failed, and cards that did not answer
    last_success_timestamp_s: float | None  # since 1970


def compose(
    facts: MachineFacts,
    snapshot: Snapshot,
    summaries: Mapping[str, DeviceSummary],
    *,
    collector: Collector,
    counters: Mapping[str, float],
    own_pid: int,
) -> Report:
    """The report, ready for JSON.

    Args:
        summaries: by device ("cuda:0"), one for each of ``snapshot.devices``.
        counters: the service's own totals, copied into the report.
    """
    devices = [_device(device, summaries[device.placement.device]) for device in snapshot.devices]
    first = devices[0]
    return {
        "available": first["type"] != DeviceType.CPU,
        **{name: first[name] for name in ("type", "device", "reason", "memory")},
        "platform": facts.platform.label,
        "driver": {"version": facts.driver.version, "cuda": dotted(facts.driver.cuda), "fault": facts.driver.fault},
        "why_no_gpu": facts.why_no_gpu,
        "gpus": [_card(card, snapshot.devices, own_pid) for card in snapshot.cards],
        "devices": devices,
        "counters": dict(counters),
        "collector": asdict(collector),
    }


def _device(device: DeviceSnapshot, summary: DeviceSummary) -> Report:
    placement, samples = device.placement, summary.samples
    spreads = {
        key: _plain(spread(getattr(sample, field) for sample in samples)) for key, field in _HISTORY_FIELDS.items()
    }
    return {
        "device": placement.device,
        "type": placement.type.value,
        "uuid": device.card.gpu.uuid if device.card else "",
        "gpu": device.card.gpu.index if device.card else None,
        "reason": placement.why[0] if placement.why else "",
        "lost": device.lost,
        "memory": {"used_bytes": device.used_bytes, "free_bytes": device.free_bytes, "total_bytes": device.total_bytes},
        "ceiling_bytes": placement.memory_bytes or None,
        "allocator": _plain(device.allocator),
        "headroom": asdict(summary.headroom),
        "alerts": sorted(kind.value for kind in summary.active_alerts),
        "history": {
            "samples": len(samples),
            "seconds": samples[-1].at_s - samples[0].at_s if samples else 0.0,
            **spreads,
        },
    }


def _card(card: CardSnapshot, devices: Iterable[DeviceSnapshot], own_pid: int) -> Report:
    gpu, sample = card.gpu, card.sample
    device = next((device for device in devices if is_on(device.placement, gpu)), None)
    return {
        **asdict(gpu),
        "architecture": architecture(gpu.capability).name if gpu.capability > (0, 0) else "",
        "device": device.placement.device if device else None,  # None: not used by this process
        "lost": card.lost,
        "memory": _memory(card, device),
        **{name: getattr(sample, name) for name in _COPIED_FIELDS},
        "clocks_hz": None if sample.clocks_hz is None else dict(sample.clocks_hz),
        "throttle": None if sample.throttle is None else list(sample.throttle),
        "xid_errors": None if sample.xid_errors is None else {str(xid): count for xid, count in sample.xid_errors},
        "processes": None
        if sample.processes is None
        else [
            {"pid": pid, "name": name, "used_bytes": used_bytes, "own": pid == own_pid}
            for pid, name, used_bytes in sample.processes
        ],
    }


_HISTORY_FIELDS = {  # key of the report -> field of Sample
    "used_bytes": "used_bytes",
    "room_bytes": "headroom_bytes",
    "utilization_ratio": "utilization_ratio",
    "temperature_celsius": "temperature_celsius",
    "power_watts": "power_watts",
}
_COPIED_FIELDS = (  # of CardSample
    "utilization_ratio",
    "bandwidth_ratio",
    "temperature_celsius",
    "power_watts",
    "power_limit_watts",
    "energy_joules",
    "ecc_errors",
    "pcie_replays",
)


def _memory(card: CardSnapshot, device: DeviceSnapshot | None) -> Report:
    """Memory from the driver; where it reports none, from the device in use."""
    sample, names = card.sample, ("used_bytes", "free_bytes", "total_bytes")
    if sample.used_bytes is None and sample.free_bytes is None and device is not None:
        return {name: getattr(device, name) for name in names}
    return {name: getattr(sample, name) for name in names}


def performance(snapshot: Snapshot) -> Report:
    """The snapshot of one device as a flat record with the keys of the training guides, and in base units.

    ``gpu_utilization`` and ``memory_utilization`` are percent, the latter of the memory's bandwidth; ``…_gb`` are GiB
    (2**30 bytes), as in the guides. None where unknown, "n/a" for percent; ``memory_allocated_gb`` is always a
    number: on a CPU it is this process's memory. ``elapsed_s`` is on the monitor's clock, which has an arbitrary zero.
    """
    [device] = snapshot.devices
    card, stats = device.card.sample if device.card else CardSample(), device.allocator
    resident_bytes = device.used_bytes or 0 if device.card is None else 0
    sizes = {
        "memory_allocated": stats.allocated_bytes if stats else resident_bytes,
        "memory_reserved": stats.reserved_bytes if stats else resident_bytes,
        "memory_cached": stats.reserved_bytes - stats.allocated_bytes if stats else 0,
        "memory_peak": stats.peak_allocated_bytes if stats else None,
        "memory_used": device.used_bytes,
        "memory_free": device.free_bytes,
        "memory_total": device.total_bytes,
    }
    return {
        "elapsed_s": snapshot.at_s,
        "device": device.placement.device,
        "name": device.card.gpu.name if device.card else "CPU",
        "gpu_utilization": _percent(card.utilization_ratio),
        "memory_utilization": _percent(card.bandwidth_ratio),
        **{f"{name}_gb": None if size is None else size / 2**30 for name, size in sizes.items()},
        **{f"{name}_bytes": size for name, size in sizes.items()},
        **{name: getattr(card, name) for name in _COPIED_FIELDS},
        "clocks_hz": None if card.clocks_hz is None else dict(card.clocks_hz),
        "throttle": None if card.throttle is None else list(card.throttle),
        "allocator_retries": stats.retries if stats else 0,
        "lost": device.lost,
    }


def _percent(ratio: float | None) -> float | str:
    """For people, as guides print it: ``f"GPU Util: {metrics['gpu_utilization']}%"``."""
    return "n/a" if ratio is None else round(100.0 * ratio, 1)


def _plain(record: Any) -> Report | None:
    return None if record is None else asdict(record)


def dotted(version: Sequence[int]) -> str:
    """(12, 8) as "12.8"; (0, 0), unknown, as ""."""
    return ".".join(str(number) for number in version) if any(version) else ""


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


def _held_by(card: Report) -> int | None:
    processes = card.get("processes")
    return None if processes is None else len(processes)


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
    _Family("gpu_processes", "Processes that hold memory on the card.", _held_by),
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
    by_device = [((device["device"], device.get("uuid", "")), device) for device in devices]
    with_allocator = [device for device in devices if device.get("allocator")]
    return [
        _info(report),
        *(_family(family, _BY_DEVICE, by_device) for family in _DEVICES),
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


def _allocator_labels(device: Report) -> tuple[str, str]:
    return "" if device["gpu"] is None else str(device["gpu"]), device["uuid"]
