"""CPU time of a sample of the device monitor, on this machine's real sources and on simulated ones.

python -m benchmarks.device_monitor            # simulated machines, and this one
python -m benchmarks.device_monitor --samples 2000

The monitor samples once a second, so milliseconds per sample divided by ten are percent of one core.
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
from backend.device.watch.gpu_metrics import gpu_samples
from backend.device.watch.monitor import DeviceMonitor
from backend.device.watch.sampling import Clock
from backend.telemetry import render_samples


def main() -> None:
    """Print a row per machine: samples with a full history, then reports as JSON and as Prometheus text."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--samples", type=int, default=500, help="measured samples, after 600 that fill the history")
    samples = options.parse_args().samples
    print(f"{'machine':<20} {'cards':>5} {'sample ms':>10} {'report ms':>10} {'text ms':>8} {'core at 1 Hz':>13}")
    for name, cards, monitor in _monitors():
        for _ in range(600):  # ten minutes: a full history
            monitor.poll()
        sample_s = _cpu_s(monitor.poll, samples)
        report_s = _cpu_s(monitor.report, samples)
        text_s = _cpu_s(partial(_text, monitor), samples)
        figures = f"{sample_s * 1e3:>10.3f} {report_s * 1e3:>10.3f} {text_s * 1e3:>8.3f} {sample_s:>13.3%}"
        print(f"{name:<20} {cards:>5} {figures}")


def _monitors() -> Iterator[tuple[str, int, DeviceMonitor]]:
    clock = count().__next__  # a second per sample
    for name in MACHINES:
        machine, machine_facts = simulated(name), facts(name)
        sources = (machine.driver_source, machine.torch_source)
        yield name, len(machine_facts.gpus), _monitor(machine_facts, *sources, clock=clock)
    driver, torch = Nvml(), Torch()
    machine_facts = probe(driver=driver, torch_source=torch)
    yield "this machine", len(machine_facts.gpus), _monitor(machine_facts, driver, torch, clock=clock)


def _monitor(machine_facts: MachineFacts, driver: DriverSource, torch: TorchSource, clock: Clock) -> DeviceMonitor:
    placements = [place(machine_facts, DeviceRequest())]
    return DeviceMonitor(
        machine_facts, placements, driver=driver, torch_source=torch, batch_bytes=_batch_bytes, clock=clock
    )


def _text(monitor: DeviceMonitor) -> bytes:
    return render_samples(gpu_samples(monitor.report()))


def _batch_bytes(device: str) -> int | None:
    del device
    return 1 << 30


def _cpu_s(call: Callable[[], object], count: int) -> float:
    """CPU seconds of this process per ``call``, including system calls and driver."""
    start = time.process_time()
    for _ in range(count):
        call()
    return (time.process_time() - start) / count


if __name__ == "__main__":
    main()
