"""Watching devices in the background: for GET /metrics/gpu, for warnings before memory runs out, for training."""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from backend.device import default_device
from backend.device.choice.selection import DeviceRequest
from backend.device.facts.host import resident_bytes
from backend.device.facts.nvml import Nvml
from backend.device.facts.torch_source import Torch
from backend.device.plan.placement import Placement, place
from backend.device.records import DeviceType, DriverSource, MachineFacts, TorchSource
from backend.device.watch.gpu_report import Collector, Remarks, compose, performance
from backend.device.watch.history import (
    FORECAST_WINDOWS_S,
    Alert,
    AlertKind,
    Headroom,
    History,
    alerts,
    situation,
    standing,
)
from backend.device.watch.periodic_thread import Ticker
from backend.device.watch.sampling import Clock, HostMemory, Look, Sampler, host_memory, is_on
from backend.telemetry import log_event

_log = logging.getLogger(__name__)
_INTERVAL_S = 1.0  # NVML's own utilisation is a mean over up to a second; faster would read the same again
_WSL_INTERVAL_S = 5.0  # WSL2's driver is slow to answer and leaks a little when asked (WSL#12756)


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Bytes on the device; on a CPU those of this process and of the machine (or cgroup)."""

    used_bytes: int
    total_bytes: int


def memory(facts: MachineFacts, placement: Placement) -> DeviceMemory:
    """Memory in use and in all on the placement's device, asked now; opens a context on a card."""
    if placement.type is DeviceType.CUDA:
        import torch  # a CUDA placement has imported it already

        free, total = torch.cuda.mem_get_info(placement.device)
        return DeviceMemory(total - free, total)
    if placement.type is DeviceType.MPS:
        import torch  # an MPS placement has imported it already

        return DeviceMemory(int(torch.mps.driver_allocated_memory()), facts.gpus[0].total_bytes)
    return DeviceMemory(resident_bytes(), facts.memory_bytes)


def wall_clock() -> float:
    """Seconds since 1970, for what leaves the process."""
    return datetime.now(UTC).timestamp()


@dataclass(frozen=True, slots=True)
class _Known:
    """What the last good look left; replaced whole, so that readers need no lock."""

    look: Look
    remarks: Mapping[str, Remarks]  # by device
    looks: int
    losses: int  # cards that did not answer, summed over the looks
    success_timestamp_s: float | None


class DeviceMonitor:
    """Looks at every device of the service again and again: the answer of GET /metrics/gpu, headroom, and warnings.

    One daemon thread asks the driver; ``report`` and ``headroom`` answer from what it saw, so a driver that hangs
    delays nobody. Before the first look they look for themselves. Safe from every thread.

    A look and its judgement cost 0.4 to 1.1 ms of CPU with a full history, 0.1 % of a core at one a second, and what
    NVML takes besides (``python -m benchmarks.device_monitor``, AVX-512 CPU, simulated cards).

    Args:
        placements: every device in use, the CPU too; at least one.
        driver: asked for every card of ``facts``; not closed here. None: nothing is known but what torch tells.
        torch_source: asked for the allocators of accelerators in use, never for a CPU.
        batch_bytes: device -> memory of one full batch; None while nobody knows.
        counters: the service's own totals, shown in the report as they are.
        on_alert: called with the device once when a warning begins, on the thread that looked.
        host: this process's memory and what the machine has left.
        interval_s: between two looks; None for 1 s, on WSL2 5 s.
        wall_clock: seconds since 1970, for the time of the last success.
    """

    def __init__(
        self,
        facts: MachineFacts,
        placements: Sequence[Placement],
        *,
        driver: DriverSource | None = None,
        torch_source: TorchSource | None = None,
        batch_bytes: Callable[[str], int | None] = lambda device: None,  # noqa: ARG005  # nobody knows
        counters: Callable[[], Mapping[str, float]] = dict,
        on_alert: Callable[[str, Alert], None] = lambda device, alert: None,  # noqa: ARG005  # nobody listens
        host: Callable[[], HostMemory] = host_memory,
        interval_s: float | None = None,
        clock: Clock = time.monotonic,
        wall_clock: Clock = wall_clock,
    ) -> None:
        self._facts, self._wall_clock = facts, wall_clock
        self._interval_s = interval_s or (_WSL_INTERVAL_S if facts.platform.wsl else _INTERVAL_S)
        self._batch_bytes, self._counters, self._on_alert = batch_bytes, counters, on_alert
        self._sampler = Sampler(facts, placements, driver=driver, torch_source=torch_source, host=host, clock=clock)
        most = math.ceil(FORECAST_WINDOWS_S[-1] / self._interval_s) + 1
        self._histories = {placement.device: History(most) for placement in placements}
        self._known: _Known | None = None
        self._looking = threading.Lock()
        self._ticker = Ticker("device-monitor", self.look)

    def start(self) -> None:
        """Begin to look. A running one goes on with what it knows."""
        self._ticker.start(self._interval_s)

    def stop(self) -> None:
        """End the thread; what it saw stays."""
        self._ticker.stop()

    def headroom(self, device: str) -> Headroom:
        """How far ``device`` is from running out. Raises: KeyError for a device that is not watched."""
        return self._latest().remarks[device].headroom

    def report(self) -> dict[str, Any]:
        """The answer of GET /metrics/gpu, ready for JSON: the same fields on CUDA, MPS and CPU."""
        known = self._latest()
        return compose(
            self._facts,
            known.look,
            known.remarks,
            collector=Collector(
                self._ticker.running,
                self._interval_s,
                known.looks,
                known.losses + self._ticker.errors,
                known.success_timestamp_s,
            ),
            counters=self._counters(),
            own_pid=os.getpid(),
        )

    def look(self) -> None:
        """One look and its warnings, now and on this thread: what the background thread does at every turn."""
        for device, alert in self._see():
            if alert.kind is not AlertKind.LOST:  # the sampler tells that, once for every card
                fields = {"device": device, "kind": alert.kind, "reason": alert.message}
                log_event(_log, logging.WARNING, "a device needs attention", **fields)
            self._on_alert(device, alert)

    def _latest(self) -> _Known:
        if self._known is None:
            self.look()
        assert self._known is not None
        return self._known

    def _see(self) -> list[tuple[str, Alert]]:
        """Look, remember, and return the warnings that begin."""
        with self._looking:
            before, look = self._known, self._sampler.look()
            remarks, begun = dict[str, Remarks](), list[tuple[str, Alert]]()
            for reading in look.devices:
                device = reading.placement.device
                history = self._histories[device]
                history.add(reading.sample(look.at_s))
                now = situation(history, self._batch_bytes(device))
                stood = before.remarks[device].standing if before else frozenset[AlertKind]()
                stands = standing(stood, now)
                begun += [(device, alert) for alert in alerts(stood, stands, now)]
                remarks[device] = Remarks(now.headroom, stands, history.samples)
            looks, losses, success_s = (
                (before.looks, before.losses, before.success_timestamp_s) if before else (0, 0, None)
            )
            self._known = _Known(
                look, remarks, looks + 1, losses + look.lost, success_s if look.lost else self._wall_clock()
            )
            return begun


class GPUPerformanceMonitor:
    """Records one device's use in the background, for training and for notebooks.

        with GPUPerformanceMonitor() as monitor:
            train()
        print(monitor.get_latest_metrics(), len(monitor.get_metrics_history()))

    One daemon thread; a card that stops answering is marked ``lost`` and asked again. Without a GPU it records this
    process on the CPU. Safe from every thread; can be started again, and then goes on with its history.

    Args:
        device: "auto", "cuda:1", "mps" or "cpu".
        history: looks that are kept; the oldest go first.
        facts, driver, torch_source: another machine than this process's own.
    """

    def __init__(
        self,
        device: str = "auto",
        *,
        history: int = 3600,
        facts: MachineFacts | None = None,
        driver: DriverSource | None = None,
        torch_source: TorchSource | None = None,
        host: Callable[[], HostMemory] = host_memory,
        clock: Clock = time.monotonic,
    ) -> None:
        self._device, self._facts, self._driver, self._torch_source = device, facts, driver, torch_source
        self._host, self._clock = host, clock
        self._looks: deque[Look] = deque(maxlen=history)
        self._lock = threading.Lock()
        self._sampler: Sampler | None = None
        self._ticker = Ticker("gpu-performance-monitor", self._look)

    def start_monitoring(self, interval: float = 2.0) -> None:
        """Begin to look, every ``interval`` seconds; a running one goes on at the new pace.

        Raises: ValueError for an interval that is not positive, DeviceUnavailable for a device that is not there.
        """
        if self._sampler is None:
            self._sampler = self._open()
        self._ticker.start(interval)

    def stop_monitoring(self) -> None:
        """End the thread; the history stays."""
        self._ticker.stop()

    def get_latest_metrics(self) -> dict[str, Any] | None:
        """The newest look, see ``gpu_report.performance``; None before the first."""
        with self._lock:
            look = self._looks[-1] if self._looks else None
        return performance(look) if look else None

    def get_metrics_history(self) -> list[dict[str, Any]]:
        """Every look that is kept, oldest first."""
        with self._lock:
            looks = list(self._looks)
        return [performance(look) for look in looks]

    def __enter__(self) -> Self:
        self.start_monitoring()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop_monitoring()

    def _open(self) -> Sampler:
        if self._facts is None:
            facts, chosen = default_device.machine_facts(), default_device.placement(self._device)
        else:
            facts, chosen = self._facts, place(self._facts, DeviceRequest(device=self._device))
        return Sampler(
            replace(facts, gpus=tuple(gpu for gpu in facts.gpus if is_on(chosen, gpu))),  # no other card is asked
            [chosen],
            driver=self._driver or Nvml(),  # stays open: on WSL2 every start of NVML leaks (WSL#12756)
            torch_source=self._torch_source or Torch(),
            host=self._host,
            clock=self._clock,
        )

    def _look(self) -> None:
        if self._sampler is None:
            return
        look = self._sampler.look()
        with self._lock:
            self._looks.append(look)
