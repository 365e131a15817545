"""PURE: composes the body of GET /metrics/gpu from a snapshot and the history.

``gpus`` are the cards that the driver reports, ``devices`` what this process computes on, the CPU included. The keys
are the same on every machine; an unknown value is null, never 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from backend.device.facts.compute_capability import architecture
from backend.device.records import CardSample, DeviceType, MachineFacts, Process
from backend.device.watch.history import AlertKind, Headroom, Sample, spread
from backend.device.watch.sampling import CardSnapshot, DeviceSnapshot, Snapshot, is_on

Report = dict[str, Any]


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
        "memory": {
            "used_bytes": device.used_bytes,
            "free_bytes": device.free_bytes,
            "total_bytes": device.total_bytes,
        },
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
        "processes": _processes(sample, own_pid),
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


def _processes(sample: CardSample, own_pid: int) -> list[Report] | None:
    if sample.processes is None:
        return None
    return [_process(process, own_pid) for process in sample.processes]


def _process(process: Process, own_pid: int) -> Report:
    """``own`` compares process ids; in a container it can be wrong, because the driver reports ids of the host."""
    pid, name, used_bytes = process
    return {"pid": pid, "name": name, "used_bytes": used_bytes, "own": pid == own_pid}


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
