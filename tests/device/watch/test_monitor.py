"""The background monitors: reports, alerts, and survival of faults in drivers and callbacks."""

import json
import logging
import threading
from dataclasses import replace
from types import SimpleNamespace

import psutil
import pytest
import torch
from prometheus_client.parser import text_string_to_metric_families

from backend.device import default_device
from backend.device.choice.selection import DeviceRequest
from backend.device.facts.machine import probe
from backend.device.facts.nvml import Nvml
from backend.device.facts.simulated import MACHINES, simulated
from backend.device.facts.simulated import facts as machine_facts
from backend.device.facts.torch_source import Torch
from backend.device.memory.device_memory import RESERVE_BYTES
from backend.device.plan.placement import Placement, place
from backend.device.records import DeviceType, MachineFacts
from backend.device.watch import monitor
from backend.device.watch.gpu_report import gpu_samples
from backend.device.watch.history import AlertKind
from backend.device.watch.monitor import DeviceMonitor, GPUPerformanceMonitor
from backend.errors import DeviceUnavailable
from backend.telemetry import render_samples
from tests.device.fakes import (
    ALLOCATOR,
    CARD,
    CPU,
    GIB,
    LOST,
    ON_CARD,
    ON_CPU,
    ON_OTHER,
    SAMPLE,
    TWO_CARDS,
    FakeDriver,
    FakeTorch,
    Turnstile,
    host,
)
from tests.fakes import ManualClock

SOON = 0.001  # interval of tests that wait for a number of snapshots; no result depends on it
ONE_CARD = replace(TWO_CARDS, gpus=(CARD,))


def test_memory_of_a_cpu():
    """This process's own, of what the machine or the control group allows."""
    found = monitor.memory(CPU, ON_CPU)

    assert found.total_bytes == CPU.memory_bytes
    assert 2**20 < found.used_bytes < psutil.virtual_memory().total


def test_memory_of_a_cuda_card(monkeypatch):
    """Used is what is not free, of the placement's own card."""
    asked: list[str] = []

    def mem_get_info(device: str) -> tuple[int, int]:
        asked.append(device)
        return 3 * 2**30, 8 * 2**30

    monkeypatch.setattr(torch.cuda, "mem_get_info", mem_get_info)
    facts = MachineFacts(2, "a processor", (), 2**33, (CARD, CARD), DeviceType.CUDA)

    found = monitor.memory(facts, Placement("cuda:1", 1, 1, 2, ("asked for",)))

    assert (5 * 2**30, 8 * 2**30, ["cuda:1"]) == (found.used_bytes, found.total_bytes, asked)


def test_memory_of_an_apple(monkeypatch):
    """What the driver gave, of what it recommends."""
    monkeypatch.setattr(torch, "mps", SimpleNamespace(driver_allocated_memory=lambda: 2**30))
    facts = MachineFacts(2, "a processor", (), 2**33, (CARD,), DeviceType.MPS)

    found = monitor.memory(facts, Placement("mps", 1, 1, 2, ("asked for",)))

    assert (2**30, CARD.total_bytes) == (found.used_bytes, found.total_bytes)


class MonitorSetup:
    """A DeviceMonitor over fakes that a test polls step by step or starts."""

    def __init__(self, facts=ONE_CARD, placements=(ON_CARD,), *, samples=(SAMPLE,), stats=(ALLOCATOR,), **options):
        self.clock, self.alerts = ManualClock(), []
        self.driver, self.torch = FakeDriver(samples), FakeTorch(stats)
        self.monitor = DeviceMonitor(
            facts,
            placements,
            driver=self.driver,
            torch_source=self.torch,
            host=host,
            clock=self.clock,
            wall_clock=lambda: 1.7e9 + self.clock.now_s,
            **{"on_alert": lambda device, alert: self.alerts.append((device, alert.kind))} | options,
        )
        self.poll = self.monitor._thread.call_once  # as the thread does, on this thread

    def after(self, polls, *, every_s=1.0):
        for _ in range(polls):
            self.clock.now_s += every_s
            self.poll()
        return self


def with_free(*free):
    """Samples of a card with this free memory, not counting the reserve."""
    return [
        replace(SAMPLE, free_bytes=count + RESERVE_BYTES - (ALLOCATOR.reserved_bytes - ALLOCATOR.active_bytes))
        for count in free
    ]


def test_report_does_not_query_the_driver():
    """After the first snapshot requests do not query the driver: a driver that hangs delays none."""
    setup = MonitorSetup().after(1)
    for _ in range(3):
        setup.monitor.report()
        setup.monitor.headroom("cuda:0")

    assert (["GPU-1"], ["cuda:0"]) == (setup.driver.asked, setup.torch.asked)


def test_memory_for_less_than_a_batch(caplog):
    """One alert and one log line when it begins, none while it is active, another after it has ended."""
    free = [3, *[1] * 12, *[9] * 12, *[1] * 12]
    setup = MonitorSetup(samples=with_free(*(count * GIB for count in free)), batch_bytes=lambda device: 2 * GIB)
    with caplog.at_level(logging.WARNING):
        setup.after(len(free))

    assert [("cuda:0", AlertKind.HEADROOM)] * 2 == setup.alerts
    assert 2 == len(caplog.records)
    assert ("a device needs attention", "cuda:0", "1024 MiB are free, 0.50 of a full batch") == (
        caplog.records[0].message,
        caplog.records[0].fields["device"],
        caplog.records[0].fields["reason"],
    )
    assert ["headroom"] == setup.monitor.report()["devices"][0]["alerts"]


def test_memory_that_leaks():
    """An alert with the time left, ten minutes before memory runs out."""
    free = [2_000_000 * (500 - second) for second in range(65)]
    setup = MonitorSetup(samples=with_free(*free)).after(len(free))

    assert [("cuda:0", AlertKind.EXHAUSTION)] == setup.alerts
    assert pytest.approx(436.0, rel=1e-3) == setup.monitor.headroom("cuda:0").exhaustion_s


def test_an_allocator_that_thrashes():
    """It emptied its cache twice within a minute, which precedes out-of-memory errors."""
    setup = MonitorSetup(stats=[replace(ALLOCATOR, retries=count) for count in (0, 0, 5, 5, 6, 6)]).after(6)

    assert [("cuda:0", AlertKind.RETRIES)] == setup.alerts


def test_a_card_that_vanishes_and_returns(caplog):
    """The loss raises one alert and counts errors; the card's values return with it."""
    setup = MonitorSetup(samples=[SAMPLE, LOST, LOST, SAMPLE])
    with caplog.at_level(logging.INFO):
        lost = setup.after(3).monitor.report()
        back = setup.after(1).monitor.report()

    assert (str(LOST), ["lost"], 2) == (
        lost["gpus"][0]["lost"],
        lost["devices"][0]["alerts"],
        lost["collector"]["errors"],
    )
    assert 1.7e9 + setup.clock.now_s - 3 == lost["collector"]["last_success_timestamp_s"]
    assert ("", [], 0.5) == (
        back["gpus"][0]["lost"],
        back["devices"][0]["alerts"],
        back["gpus"][0]["utilization_ratio"],
    )
    assert [("cuda:0", AlertKind.LOST)] == setup.alerts
    assert ["a GPU no longer answers", "a GPU answers again"] == [record.message for record in caplog.records]


def failing_once():
    """A callback that raises at its second call."""
    faults = iter([False, True, False])

    def batch_bytes(device):
        if next(faults):
            raise ZeroDivisionError
        return GIB

    return batch_bytes


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param({"samples": [SAMPLE, OSError("broken library"), SAMPLE]}, id="the-driver-breaks-its-promise"),
        pytest.param({"batch_bytes": failing_once()}, id="a-callback-raises"),
    ],
)
def test_foreign_faults_are_survived(fault):
    """Exceptions of drivers and callbacks are counted; the last good snapshot stays and the next one is taken."""
    setup = MonitorSetup(**fault)
    between = setup.after(2).monitor.report()["collector"]
    after = setup.after(1).monitor.report()["collector"]

    assert [(1, 1), (2, 1)] == [(collector["looks"], collector["errors"]) for collector in (between, after)]
    assert setup.clock.now_s - 2 == between["last_success_timestamp_s"] - 1.7e9


def test_the_thread():
    """It polls until stopped, can be restarted, and keeps its history."""
    polled = Turnstile()
    setup = MonitorSetup(interval_s=SOON, counters=dict, batch_bytes=lambda device: polled())
    setup.monitor.start()
    polled.wait(3)
    running = setup.monitor.report()["collector"]["running"]
    setup.monitor.stop()
    seen = len(setup.driver.asked)
    setup.monitor.start()
    polled.wait(seen + 2)
    setup.monitor.stop()
    setup.monitor.stop()

    assert running
    assert [] == [thread for thread in threading.enumerate() if thread.name == "device-monitor"]
    assert setup.monitor.report()["collector"]["looks"] == len(setup.driver.asked)


def test_report_from_many_threads():
    """Concurrent reports are consistent: they contain every device, and the count of snapshots only grows."""
    setup = MonitorSetup(TWO_CARDS, [ON_CARD, ON_OTHER], interval_s=SOON)
    setup.monitor.start()
    results = []

    def request():
        results.append([setup.monitor.report() for _ in range(50)])

    threads = [threading.Thread(target=request) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30.0)
    setup.monitor.stop()

    assert 4 == len(results)
    for reports in results:
        counts = [report["collector"]["looks"] for report in reports]
        assert sorted(counts) == counts
        assert {2} == {len(report["devices"]) for report in reports}


class Recorder:
    """A GPUPerformanceMonitor over fakes."""

    def __init__(self, facts=TWO_CARDS, device="auto", samples=(SAMPLE,), **options):
        self.clock, self.driver, self.torch = ManualClock(), FakeDriver(samples), FakeTorch()
        self.polls = Turnstile()
        self.monitor = GPUPerformanceMonitor(
            device, facts=facts, driver=self.driver, torch_source=self.torch, host=self.host, clock=self.tick, **options
        )

    def host(self):
        return host()

    def tick(self):
        self.polls()
        return float(self.polls.count)

    def run(self, polls, *, interval=SOON):
        self.monitor.start_monitoring(interval=interval)
        self.polls.wait(polls)
        self.monitor.stop_monitoring()
        return self.monitor


def test_performance_as_the_guide_calls_it():
    """start_monitoring, get_latest_metrics, stop_monitoring and get_metrics_history as the guide uses them."""
    recorder = Recorder(device="cuda:0")
    before = recorder.monitor.get_latest_metrics()
    metrics = recorder.run(3).get_latest_metrics()
    history = recorder.monitor.get_metrics_history()

    assert before is None
    assert "GPU Util: 50.0% Memory: 2.00GB" == (
        f"GPU Util: {metrics['gpu_utilization']}% Memory: {metrics['memory_allocated_gb']:.2f}GB"
    )
    assert len(history) >= 3
    assert sorted(record["elapsed_s"] for record in history) == [record["elapsed_s"] for record in history]
    assert metrics == history[-1]


def test_performance_as_a_context():
    """The thread ends with the block, also when it fails."""
    recorder = Recorder()

    def train():
        with recorder.monitor as inside:
            recorder.polls.wait(1)
            assert recorder.monitor is inside
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train()

    assert [] == [thread for thread in threading.enumerate() if thread.name == "gpu-performance-monitor"]
    assert recorder.monitor.get_metrics_history()


def test_performance_history_is_bounded():
    recorder = Recorder(history=3)

    elapsed = [record["elapsed_s"] for record in recorder.run(6).get_metrics_history()]

    assert 3 == len(elapsed)
    assert elapsed[0] >= 4.0


def test_performance_without_a_gpu():
    """This process's own memory, by the same names; no driver is asked."""
    recorder = Recorder(CPU)

    metrics = recorder.run(1).get_latest_metrics()

    assert ("CPU", 1.0, "n/a", []) == (
        metrics["name"],
        metrics["memory_allocated_gb"],
        metrics["gpu_utilization"],
        recorder.driver.asked,
    )


@pytest.mark.parametrize(
    ("device", "interval"), [("cuda:7", 1.0), ("cuda:0", 0.0)], ids=["no-such-card", "no-interval"]
)
def test_performance_refuses_at_once(device, interval):
    """An impossible request raises in the caller's thread, not in the background."""
    recorder = Recorder(device=device)
    with pytest.raises((DeviceUnavailable, ValueError)):
        recorder.monitor.start_monitoring(interval=interval)

    assert [] == [thread for thread in threading.enumerate() if thread.name == "gpu-performance-monitor"]


@pytest.fixture
def own_machine(device):
    """This process's default device is the one that the tests run on."""
    default_device.configure(probe(look_for_gpu=device != "cpu"), DeviceRequest(device=device))
    yield
    default_device.reset()


@pytest.mark.usefixtures("own_machine")
def test_performance_of_this_machine(device):
    """Without arguments it records this process's default device (--device cuda:0: a real card)."""
    if device != "cpu":
        torch.ones(2**20, device=device)
    found = GPUPerformanceMonitor()
    found._sampler = found._open()
    found._poll()

    metrics = found.get_latest_metrics()

    assert metrics["device"] == device
    assert metrics["memory_allocated_gb"] > 0.0
    assert (metrics["gpu_utilization"] == "n/a") is (device == "cpu")


@pytest.mark.parametrize("name", MACHINES)
def test_every_simulated_machine(name):
    """From a laptop to MIG slices: the same keys, Prometheus text, and the guides' record, whatever is missing."""
    machine, facts = simulated(name), machine_facts(name)
    sources = {"driver": machine.driver_source, "torch_source": machine.torch_source}
    placements = [place(facts, DeviceRequest())]

    found = json.loads(json.dumps(DeviceMonitor(facts, placements, **sources, host=host).report()))
    families = {family.name for family in text_string_to_metric_families(render_samples(gpu_samples(found)).decode())}
    recorder = GPUPerformanceMonitor(facts=facts, **sources, host=host)
    recorder._sampler = recorder._open()
    recorder._poll()

    assert set(MonitorSetup().monitor.report()) == set(found)
    assert len(facts.gpus) == len(found["gpus"])
    assert found["available"] is bool(facts.usable)
    assert found["devices"][0]["headroom"]["bytes"] > 0
    assert ("financia_gpu_info" in families) is bool(facts.gpus)
    assert recorder.get_latest_metrics()["memory_allocated_gb"] > 0.0


def test_the_real_device(device):
    """All of it on the machine the tests run on: report, headroom and Prometheus text (--device cuda:0)."""
    driver, source = Nvml(), Torch()
    facts = probe(look_for_gpu=device != "cpu", driver=driver, torch_source=source)
    found = DeviceMonitor(facts, [place(facts, DeviceRequest(device=device))], driver=driver, torch_source=source)

    report = found.report()

    assert (device, device != "cpu") == (report["device"], report["available"])
    [memory] = [one["memory"] for one in report["devices"]]
    assert 0 < memory["used_bytes"] < memory["total_bytes"]
    assert 0 <= found.headroom(device).bytes < memory["total_bytes"]
    assert f'financia_gpu_available{{device="{device}"' in render_samples(gpu_samples(report)).decode()
