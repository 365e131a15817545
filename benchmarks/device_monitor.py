"""What one look of the device monitor costs: CPU time, on this machine's real sources and on simulated ones.

python -m benchmarks.device_monitor            # simulated machines, and this one
python -m benchmarks.device_monitor --looks 2000

The monitor looks once a second, so milliseconds a look divided by ten are percent of one core.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count

from backend.device.choice.selection import DeviceRequest
from backend.device.facts.machine import probe
from backend.device.facts.nvml import Nvml
from backend.device.facts.simulated import MACHINES, facts, simulated
from backend.device.facts.torch_source import Torch
from backend.device.plan.placement import place
from backend.device.records import DriverSource, MachineFacts, TorchSource
from backend.device.watch.gpu_readings import readings
from backend.device.watch.monitor import DeviceMonitor
from backend.device.watch.sampling import Clock
from backend.telemetry import render_readings


def main() -> None:
    """Print one row a machine: looks with a full history, then reports as JSON and as Prometheus text."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--looks", type=int, default=500, help="measured looks, after 600 that fill the history")
    looks = options.parse_args().looks
    print(f"{'machine':<20} {'cards':>5} {'look ms':>8} {'report ms':>10} {'text ms':>8} {'core at 1 Hz':>13}")
    for name, cards, monitor in _monitors():
        for _ in range(600):  # ten minutes, so that trends are computed over all they ever are
            monitor.look()
        look_s = _cpu_s(monitor.look, looks)
        report_s = _cpu_s(monitor.report, looks)
        text_s = _cpu_s(partial(_text, monitor), looks)
        figures = f"{look_s * 1e3:>8.3f} {report_s * 1e3:>10.3f} {text_s * 1e3:>8.3f} {look_s:>13.3%}"
        print(f"{name:<20} {cards:>5} {figures}")


def _monitors() -> Iterator[tuple[str, int, DeviceMonitor]]:
    clock = count().__next__  # a second a look
    for name in MACHINES:
        machine, found = simulated(name), facts(name)
        sources = (machine.driver_source, machine.torch_source)
        yield name, len(found.gpus), _monitor(found, *sources, clock=clock)
    driver, torch = Nvml(), Torch()
    found = probe(driver=driver, torch_source=torch)
    yield "this machine", len(found.gpus), _monitor(found, driver, torch, clock=clock)


def _monitor(found: MachineFacts, driver: DriverSource, torch: TorchSource, clock: Clock) -> DeviceMonitor:
    placements = [place(found, DeviceRequest())]
    return DeviceMonitor(found, placements, driver=driver, torch_source=torch, batch_bytes=_batch_bytes, clock=clock)


def _text(monitor: DeviceMonitor) -> bytes:
    return render_readings(readings(monitor.report()))


def _batch_bytes(device: str) -> int | None:
    del device
    return 1 << 30


def _cpu_s(act: Callable[[], object], times: int) -> float:
    """CPU seconds of this process for one ``act``, system calls and the driver's share included."""
    start = time.process_time()
    for _ in range(times):
        act()
    return (time.process_time() - start) / times


if __name__ == "__main__":
    main()
