"""PURE: the answer of GET /metrics/gpu from one look and its history.

``gpus`` are the cards of the machine as the driver tells them, ``devices`` what this process computes on, the CPU
too. The shape is the same on every machine: what is unknown is null, never 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from backend.device.facts.compute_capability import architecture
from backend.device.records import CardSample, DeviceType, MachineFacts, Process
from backend.device.watch.history import AlertKind, Headroom, Sample, spread
from backend.device.watch.sampling import CardReading, DeviceReading, Look, is_on

Report = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Remarks:
    """What the monitor made of one device's history."""

    headroom: Headroom
    standing: frozenset[AlertKind]
    samples: tuple[Sample, ...]  # the history, oldest first


@dataclass(frozen=True, slots=True)
class Collector:
    """How the readings themselves fare."""

    running: bool
    interval_s: float
    looks: int
    errors: int  # looks that failed and cards that did not answer
    last_success_timestamp_s: float | None  # since 1970


def compose(
    facts: MachineFacts,
    look: Look,
    remarks: Mapping[str, Remarks],
    *,
    collector: Collector,
    counters: Mapping[str, float],
    own_pid: int,
) -> Report:
    """The whole answer, ready for JSON.

    Args:
        remarks: by device ("cuda:0"), one for each of ``look.devices``.
        counters: the service's own totals, shown as they are.
    """
    devices = [_device(one, remarks[one.placement.device]) for one in look.devices]
    first = devices[0]
    return {
        "available": first["type"] != DeviceType.CPU,
        **{name: first[name] for name in ("type", "device", "reason", "memory")},
        "platform": facts.platform.label,
        "driver": {"version": facts.driver.version, "cuda": dotted(facts.driver.cuda), "fault": facts.driver.fault},
        "why_no_gpu": facts.why_no_gpu,
        "gpus": [_card(one, look.devices, own_pid) for one in look.cards],
        "devices": devices,
        "counters": dict(counters),
        "collector": asdict(collector),
    }


def _device(reading: DeviceReading, remarks: Remarks) -> Report:
    placement, samples = reading.placement, remarks.samples
    summary = {
        name: _plain(spread(getattr(sample, name) for sample in samples))
        for name in ("used_bytes", "room_bytes", "utilization_ratio", "temperature_celsius", "power_watts")
    }
    return {
        "device": placement.device,
        "type": placement.type.value,
        "uuid": reading.card.gpu.uuid if reading.card else "",
        "gpu": reading.card.gpu.index if reading.card else None,
        "reason": placement.why[0] if placement.why else "",
        "lost": reading.lost,
        "memory": {
            "used_bytes": reading.used_bytes,
            "free_bytes": reading.free_bytes,
            "total_bytes": reading.total_bytes,
        },
        "ceiling_bytes": placement.memory_bytes or None,
        "allocator": _plain(reading.allocator),
        "headroom": asdict(remarks.headroom),
        "alerts": sorted(kind.value for kind in remarks.standing),
        "history": {
            "samples": len(samples),
            "seconds": samples[-1].at_s - samples[0].at_s if samples else 0.0,
            **summary,
        },
    }


def _card(reading: CardReading, devices: Iterable[DeviceReading], own_pid: int) -> Report:
    gpu, sample = reading.gpu, reading.sample
    device = next((one for one in devices if is_on(one.placement, gpu)), None)
    return {
        **asdict(gpu),
        "architecture": architecture(gpu.capability).name if gpu.capability > (0, 0) else "",
        "device": device.placement.device if device else None,  # None: this process does not use it
        "lost": reading.lost,
        "memory": _memory(reading, device),
        **{name: getattr(sample, name) for name in _AS_THEY_ARE},
        "clocks_hz": None if sample.clocks_hz is None else dict(sample.clocks_hz),
        "throttle": None if sample.throttle is None else list(sample.throttle),
        "xid_errors": None if sample.xid_errors is None else {str(xid): count for xid, count in sample.xid_errors},
        "processes": _processes(sample, own_pid),
    }


_AS_THEY_ARE = (
    "utilization_ratio",
    "bandwidth_ratio",
    "temperature_celsius",
    "power_watts",
    "power_limit_watts",
    "energy_joules",
    "ecc_errors",
    "pcie_replays",
)


def _memory(reading: CardReading, device: DeviceReading | None) -> Report:
    """The driver's numbers; where it has none, those of whom we could ask for a device in use."""
    sample, names = reading.sample, ("used_bytes", "free_bytes", "total_bytes")
    if sample.used_bytes is None and sample.free_bytes is None and device is not None:
        return {name: getattr(device, name) for name in names}
    return {name: getattr(sample, name) for name in names}


def _processes(sample: CardSample, own_pid: int) -> list[Report] | None:
    if sample.processes is None:
        return None
    return [_process(one, own_pid) for one in sample.processes]


def _process(process: Process, own_pid: int) -> Report:
    """``own`` is only as good as the number: in a container the driver tells the host's."""
    pid, name, used_bytes = process
    return {"pid": pid, "name": name, "used_bytes": used_bytes, "own": pid == own_pid}


def performance(look: Look) -> Report:
    """One device's look in one flat record, by the names of the training guides and in base units besides.

    ``gpu_utilization`` and ``memory_utilization`` are percent, the latter of the memory's bandwidth; ``…_gb`` are GiB
    (2**30 bytes), as the guides divide. None where nobody tells; ``memory_allocated_gb`` is always a number: on a
    CPU it is this process's memory. ``elapsed_s`` is of the monitor's clock, whose zero means nothing.
    """
    [device] = look.devices
    card, books = device.card.sample if device.card else CardSample(), device.allocator
    own = device.used_bytes or 0 if device.card is None else 0
    sizes = {
        "memory_allocated": books.allocated_bytes if books else own,
        "memory_reserved": books.reserved_bytes if books else own,
        "memory_cached": books.reserved_bytes - books.allocated_bytes if books else 0,
        "memory_peak": books.peak_allocated_bytes if books else None,
        "memory_used": device.used_bytes,
        "memory_free": device.free_bytes,
        "memory_total": device.total_bytes,
    }
    return {
        "elapsed_s": look.at_s,
        "device": device.placement.device,
        "name": device.card.gpu.name if device.card else "CPU",
        "gpu_utilization": _percent(card.utilization_ratio),
        "memory_utilization": _percent(card.bandwidth_ratio),
        **{f"{name}_gb": None if size is None else size / 2**30 for name, size in sizes.items()},
        **{f"{name}_bytes": size for name, size in sizes.items()},
        **{name: getattr(card, name) for name in _AS_THEY_ARE},
        "clocks_hz": None if card.clocks_hz is None else dict(card.clocks_hz),
        "throttle": None if card.throttle is None else list(card.throttle),
        "allocator_retries": books.retries if books else 0,
        "lost": device.lost,
    }


def _percent(ratio: float | None) -> float | None:
    return None if ratio is None else round(100.0 * ratio, 1)


def _plain(record: Any) -> Report | None:
    return None if record is None else asdict(record)


def dotted(version: Sequence[int]) -> str:
    """(12, 8) as "12.8"; (0, 0) means unknown and is empty."""
    return ".".join(str(part) for part in version) if any(version) else ""
