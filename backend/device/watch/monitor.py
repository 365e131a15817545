"""Background monitors: of all devices for GET /metrics/gpu and memory alerts, and of one device for training."""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

from backend.device import default_device
from backend.device.choice.selection import DeviceRequest
from backend.device.facts.host import resident_bytes
from backend.device.facts.nvml import Nvml
from backend.device.facts.torch_source import Torch
from backend.device.plan.placement import Placement, place
from backend.device.records import DeviceType, DriverSource, MachineFacts, TorchSource
from backend.device.watch.gpu_report import Collector, DeviceSummary, compose, performance
from backend.device.watch.history import (
    FORECAST_WINDOWS_S,
    Alert,
    AlertKind,
    Headroom,
    History,
    active_alerts,
    alert_inputs,
    new_alerts,
)
from backend.device.watch.sampling import Clock, HostMemory, Sampler, Snapshot, host_memory, is_on
from backend.telemetry import log_event

_log = logging.getLogger(__name__)
STOP_S = 5.0  # a driver call can hang on a card that fell off the bus; the daemon thread is then abandoned


class PeriodicThread:
    """Calls ``action`` at once and then at every interval, on one daemon thread, until stopped. Can be restarted.

    Exceptions of ``action`` are counted, logged once per streak and dropped: a failing device must not end its monitor.
    """

    def __init__(self, name: str, action: Callable[[], None]) -> None:
        self._name, self._action = name, action
        self._stop: threading.Event | None = None
        self._thread: threading.Thread | None = None
        self._failing = False
        self.errors = 0

    @property
    def running(self) -> bool:
        """True between ``start`` and ``stop``."""
        return self._stop is not None

    def start(self, interval_s: float) -> None:
        """Start the thread; a running one is restarted with the new interval.

        Raises: ValueError for an interval that is not positive.
        """
        if not interval_s > 0.0:
            raise ValueError(f"interval {interval_s}: must be more than 0 seconds")
        self.stop()
        stop = threading.Event()  # one per thread: an abandoned thread stays stopped when its driver call returns
        self._stop = stop
        self._thread = threading.Thread(target=self._run, args=(stop, interval_s), name=self._name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread and wait for the call in progress, at most STOP_S."""
        if self._stop is None or self._thread is None:
            return
        self._stop.set()
        if self._thread is not threading.current_thread():
            self._thread.join(STOP_S)
        self._stop = self._thread = None

    def call_once(self) -> None:
        """Call ``action`` on this thread; count and log its exceptions."""
        try:
            self._action()
        except Exception as error:  # noqa: BLE001  # drivers and callbacks are foreign; the thread must outlive them
            self.errors += 1
            if not self._failing:
                log_event(_log, logging.ERROR, "a look at the devices failed", thread=self._name, reason=repr(error))
            self._failing = True
        else:
            self._failing = False

    def _run(self, stop: threading.Event, interval_s: float) -> None:
        while not stop.is_set():
            self.call_once()
            stop.wait(interval_s)


_INTERVAL_S = 1.0  # NVML averages utilisation over up to a second; faster polling repeats values
_WSL_INTERVAL_S = 5.0  # WSL2's driver answers slowly and leaks a little memory per query (WSL#12756)


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Bytes on the device; on a CPU those of this process and of the machine (or cgroup)."""

    used_bytes: int
    total_bytes: int


def memory(facts: MachineFacts, placement: Placement) -> DeviceMemory:
    """Used and total memory of the placement's device now; opens a context on a CUDA card."""
    if placement.type is DeviceType.CUDA:
        import torch  # a CUDA placement has imported it already

        free, total = torch.cuda.mem_get_info(placement.device)
        return DeviceMemory(total - free, total)
    if placement.type is DeviceType.MPS:
        import torch  # an MPS placement has imported it already

        return DeviceMemory(int(torch.mps.driver_allocated_memory()), facts.gpus[0].total_bytes)
    return DeviceMemory(resident_bytes(), facts.memory_bytes)


@dataclass(frozen=True, slots=True)
class _State:
    """The result of the last successful poll; replaced as a whole, so that readers need no lock."""

    snapshot: Snapshot
    summaries: Mapping[str, DeviceSummary]  # by device
    polls: int
    losses: int  # cards that did not answer, summed over all polls
    success_timestamp_s: float | None


class DeviceMonitor:
    """Polls every device of the service; serves GET /metrics/gpu and the headroom, and raises alerts.

    One daemon thread queries the driver; ``report`` and ``headroom`` answer from its last snapshot, so a driver that
    hangs delays no caller. Before the first snapshot they poll themselves. Thread-safe.

    A poll costs 0.4 to 1.1 ms of CPU with a full history, 0.1 % of a core at one poll a second, plus the time in
    NVML (benchmarks/device_monitor.py, last in commit fb789e9; AVX-512 CPU, simulated cards).

    Args:
        placements: every device in use, the CPU too; at least one.
        driver: queried for every card of ``facts``; not closed here. None: only torch is queried.
        torch_source: queried for the allocators of accelerators in use, never for a CPU.
        batch_bytes: device -> memory of one full batch; None while unknown.
        counters: the service's own totals, copied into the report.
        on_alert: called with the device once when an alert begins, on the polling thread.
        host: returns this process's memory and the free memory of the machine.
        interval_s: between two polls; None for 1 s, on WSL2 5 s.
        wall_clock: seconds since 1970, for the time of the last success.
    """

    def __init__(
        self,
        facts: MachineFacts,
        placements: Sequence[Placement],
        *,
        driver: DriverSource | None = None,
        torch_source: TorchSource | None = None,
        batch_bytes: Callable[[str], int | None] = lambda device: None,  # noqa: ARG005  # unknown
        counters: Callable[[], Mapping[str, float]] = dict,
        on_alert: Callable[[str, Alert], None] = lambda device, alert: None,  # noqa: ARG005  # ignored
        host: Callable[[], HostMemory] = host_memory,
        interval_s: float | None = None,
        clock: Clock = time.monotonic,
        wall_clock: Clock = time.time,  # noqa: TID251 - a date, not a duration
    ) -> None:
        self._facts, self._wall_clock = facts, wall_clock
        self._interval_s = interval_s or (_WSL_INTERVAL_S if facts.platform.wsl else _INTERVAL_S)
        self._batch_bytes, self._counters, self._on_alert = batch_bytes, counters, on_alert
        self._sampler = Sampler(facts, placements, driver=driver, torch_source=torch_source, host=host, clock=clock)
        max_samples = math.ceil(FORECAST_WINDOWS_S[-1] / self._interval_s) + 1
        self._histories = {placement.device: History(max_samples) for placement in placements}
        self._state: _State | None = None
        self._poll_lock = threading.Lock()
        self._thread = PeriodicThread("device-monitor", self.poll)

    def start(self) -> None:
        """Start polling. The history of an earlier run is kept."""
        self._thread.start(self._interval_s)

    def stop(self) -> None:
        """Stop the thread; the history stays."""
        self._thread.stop()

    def headroom(self, device: str) -> Headroom:
        """How far ``device`` is from running out of memory. Raises: KeyError for an unknown device."""
        return self._latest().summaries[device].headroom

    def report(self) -> dict[str, Any]:
        """The body of GET /metrics/gpu, ready for JSON; the same keys on CUDA, MPS and CPU."""
        state = self._latest()
        return compose(
            self._facts,
            state.snapshot,
            state.summaries,
            collector=Collector(
                self._thread.running,
                self._interval_s,
                state.polls,
                state.losses + self._thread.errors,
                state.success_timestamp_s,
            ),
            counters=self._counters(),
            own_pid=os.getpid(),
        )

    def poll(self) -> None:
        """Take a snapshot on this thread and raise its alerts; the background thread calls this at every interval."""
        for device, alert in self._update():
            if alert.kind is not AlertKind.LOST:  # logged by the sampler, once per card
                fields = {"device": device, "kind": alert.kind, "reason": alert.message}
                log_event(_log, logging.WARNING, "a device needs attention", **fields)
            self._on_alert(device, alert)

    def _latest(self) -> _State:
        if self._state is None:
            self.poll()
        assert self._state is not None
        return self._state

    def _update(self) -> list[tuple[str, Alert]]:
        """Take a snapshot, extend the histories, and return the alerts that begin."""
        with self._poll_lock:
            before, snapshot = self._state, self._sampler.snapshot()
            summaries, begun = dict[str, DeviceSummary](), list[tuple[str, Alert]]()
            for device_snapshot in snapshot.devices:
                device = device_snapshot.placement.device
                history = self._histories[device]
                history.add(device_snapshot.sample(snapshot.at_s))
                now = alert_inputs(history, self._batch_bytes(device))
                previous = before.summaries[device].active_alerts if before else frozenset[AlertKind]()
                active = active_alerts(previous, now)
                begun += [(device, alert) for alert in new_alerts(previous, active, now)]
                summaries[device] = DeviceSummary(now.headroom, active, history.samples)
            polls, losses, success_s = (
                (before.polls, before.losses, before.success_timestamp_s) if before else (0, 0, None)
            )
            if not snapshot.lost:
                success_s = self._wall_clock()
            self._state = _State(snapshot, summaries, polls + 1, losses + snapshot.lost, success_s)
            return begun


class GPUPerformanceMonitor:
    """Records utilisation and memory of one device in the background, for training and notebooks.

        with GPUPerformanceMonitor() as monitor:
            train()
        print(monitor.get_latest_metrics(), len(monitor.get_metrics_history()))

    One daemon thread; a card that stops answering is marked ``lost`` and queried again. Without a GPU it records this
    process on the CPU. Thread-safe; can be restarted and then keeps its history.

    Args:
        device: "auto", "cuda:1", "mps" or "cpu".
        history: number of snapshots kept; the oldest are dropped.
        facts, driver, torch_source: a machine other than this process's own, for tests.
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
        self._snapshots: deque[Snapshot] = deque(maxlen=history)
        self._lock = threading.Lock()
        self._sampler: Sampler | None = None
        self._thread = PeriodicThread("gpu-performance-monitor", self._poll)

    def start_monitoring(self, interval: float = 2.0) -> None:
        """Start recording every ``interval`` seconds; a running monitor continues with the new interval.

        Raises: ValueError for an interval that is not positive, DeviceUnavailable for a device that is not there.
        """
        if self._sampler is None:
            self._sampler = self._open()
        self._thread.start(interval)

    def stop_monitoring(self) -> None:
        """Stop the thread; the history stays."""
        self._thread.stop()

    def get_latest_metrics(self) -> dict[str, Any] | None:
        """The newest snapshot as ``gpu_report.performance``; None before the first."""
        with self._lock:
            snapshot = self._snapshots[-1] if self._snapshots else None
        return performance(snapshot) if snapshot else None

    def get_metrics_history(self) -> list[dict[str, Any]]:
        """Every recorded snapshot, oldest first."""
        with self._lock:
            snapshots = list(self._snapshots)
        return [performance(snapshot) for snapshot in snapshots]

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
            replace(facts, gpus=tuple(gpu for gpu in facts.gpus if is_on(chosen, gpu))),  # query no other card
            [chosen],
            driver=self._driver or Nvml(),  # stays open: each initialization of NVML leaks on WSL2 (WSL#12756)
            torch_source=self._torch_source or Torch(),
            host=self._host,
            clock=self._clock,
        )

    def _poll(self) -> None:
        if self._sampler is None:
            return
        snapshot = self._sampler.snapshot()
        with self._lock:
            self._snapshots.append(snapshot)
