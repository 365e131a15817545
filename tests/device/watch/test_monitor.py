"""Watching in the background: what is answered, when it warns, and that nothing it watches can end it."""

from __future__ import annotations

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
from backend.device.watch.gpu_readings import readings
from backend.device.watch.history import AlertKind, Headroom
from backend.device.watch.monitor import DeviceMonitor, GPUPerformanceMonitor
from backend.errors import DeviceUnavailable
from backend.telemetry import render_samples
from tests.device.fakes import (
    BOOKS,
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
    ManualClock,
    Turnstile,
    host,
)

SOON = 0.001  # the pace of tests that wait for a number of looks; none depends on it
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


def test_memory_of_the_asked_device(device):
    """On a real GPU the numbers are the driver's (--device cuda:0); on a CPU the process's."""
    facts = probe(look_for_gpu=device != "cpu")
    found = monitor.memory(facts, Placement(device, 1, 1, 1, ("asked for",)))

    assert 0 < found.used_bytes <= found.total_bytes


class Watch:
    """A DeviceMonitor over fakes, whose looks a test takes one by one or lets run."""

    def __init__(self, facts=ONE_CARD, placements=(ON_CARD,), *, samples=(SAMPLE,), books=(BOOKS,), **options):
        self.clock, self.alerts, self.looks = ManualClock(), [], Turnstile()
        self.driver, self.torch = FakeDriver(samples), FakeTorch(books)
        self.monitor = DeviceMonitor(
            facts,
            placements,
            driver=self.driver,
            torch_source=self.torch,
            host=host,
            clock=self.clock,
            wall_clock=lambda: 1.7e9 + self.clock.now,
            **{"on_alert": lambda device, alert: self.alerts.append((device, alert.kind))} | options,
        )
        self.look = self.monitor._ticker.tick  # one turn of the thread, on this one

    def after(self, looks, *, every_s=1.0):
        for _ in range(looks):
            self.clock.now += every_s
            self.look()
        return self


def with_free(*free):
    """Samples of a card whose free memory goes like this, the reserve not counted."""
    return [
        replace(SAMPLE, free_bytes=count + RESERVE_BYTES - (BOOKS.reserved_bytes - BOOKS.active_bytes))
        for count in free
    ]


def test_report_before_the_first_look():
    """Whoever asks too early gets an answer all the same."""
    watch = Watch()

    found = watch.monitor.report()

    assert (1, ["GPU-1"], False) == (found["collector"]["looks"], watch.driver.asked, found["collector"]["running"])


def test_report_asks_nobody():
    """Once a look was taken the driver is left alone: a driver that hangs delays no request."""
    watch = Watch().after(1)
    for _ in range(3):
        watch.monitor.report()
        watch.monitor.headroom("cuda:0")

    assert (["GPU-1"], ["cuda:0"]) == (watch.driver.asked, watch.torch.asked)


def test_report_of_what_was_seen():
    """Readings, allocator, ceiling, headroom, the service's totals, and how the collector fares."""
    watch = Watch(batch_bytes={"cuda:0": 2 * GIB}.get, counters=lambda: {"oom_recoveries_total": 4.0}).after(3)

    found = json.loads(json.dumps(watch.monitor.report()))

    [device] = found["devices"]
    assert (0.5, 2 * GIB, 20 * GIB, 3) == (
        found["gpus"][0]["utilization_ratio"],
        device["allocator"]["allocated_bytes"],
        device["ceiling_bytes"],
        device["history"]["samples"],
    )
    assert 18 * GIB - RESERVE_BYTES == device["headroom"]["bytes"]
    assert pytest.approx((18 * GIB - RESERVE_BYTES) / (2 * GIB)) == device["headroom"]["batches"]
    assert {"oom_recoveries_total": 4.0} == found["counters"]
    assert {
        "running": False,
        "interval_s": 1.0,
        "looks": 3,
        "errors": 0,
        "last_success_timestamp_s": 1.7e9 + watch.clock.now,
    } == found["collector"]


def test_headroom_by_device():
    """Each device has its own; the CPU's is the machine's."""
    watch = Watch(TWO_CARDS, [ON_CARD, ON_OTHER, ON_CPU]).after(1)

    assert [18 * GIB, 12 * GIB, 6 * GIB] == [
        watch.monitor.headroom(device).bytes + RESERVE_BYTES for device in ("cuda:0", "cuda:1", "cpu")
    ]
    with pytest.raises(KeyError):
        watch.monitor.headroom("cuda:7")


def test_a_cpu_without_any_source():
    """The service without a GPU: no driver, no torch, the same answer."""
    found = DeviceMonitor(CPU, [ON_CPU]).report()

    assert (False, [], "cpu") == (found["available"], found["gpus"], found["device"])
    assert 0 < found["memory"]["used_bytes"] <= found["memory"]["total_bytes"]
    assert found["devices"][0]["headroom"]["bytes"] > 0


def test_memory_for_less_than_a_batch(caplog):
    """One warning and one log line with numbers when it begins, none while it stands, one more after it ended."""
    free = [3, *[1] * 12, *[9] * 12, *[1] * 12]
    watch = Watch(samples=with_free(*(count * GIB for count in free)), batch_bytes=lambda device: 2 * GIB)
    with caplog.at_level(logging.WARNING):
        watch.after(len(free))

    assert [("cuda:0", AlertKind.HEADROOM)] * 2 == watch.alerts
    assert 2 == len(caplog.records)
    assert ("a device needs attention", "cuda:0", "1024 MiB are free, 0.50 of a full batch") == (
        caplog.records[0].message,
        caplog.records[0].fields["device"],
        caplog.records[0].fields["reason"],
    )
    assert ["headroom"] == watch.monitor.report()["devices"][0]["alerts"]


def test_memory_that_leaks():
    """Ten minutes before nothing is left it is foretold, with the time."""
    free = [2_000_000 * (500 - second) for second in range(65)]
    watch = Watch(samples=with_free(*free)).after(len(free))

    assert [("cuda:0", AlertKind.EXHAUSTION)] == watch.alerts
    assert pytest.approx(436.0, rel=1e-3) == watch.monitor.headroom("cuda:0").exhaustion_s


def test_an_allocator_that_thrashes():
    """It emptied its cache twice within a minute: the sign before an out-of-memory."""
    watch = Watch(books=[replace(BOOKS, retries=count) for count in (0, 0, 5, 5, 6, 6)]).after(6)

    assert [("cuda:0", AlertKind.RETRIES)] == watch.alerts


def test_a_card_that_vanishes_and_returns(caplog):
    """Lost is marked and warned of once, errors are counted, and the readings come back by themselves."""
    watch = Watch(samples=[SAMPLE, LOST, LOST, SAMPLE])
    with caplog.at_level(logging.INFO):
        lost = watch.after(3).monitor.report()
        back = watch.after(1).monitor.report()

    assert (str(LOST), ["lost"], 2) == (
        lost["gpus"][0]["lost"],
        lost["devices"][0]["alerts"],
        lost["collector"]["errors"],
    )
    assert 1.7e9 + watch.clock.now - 3 == lost["collector"]["last_success_timestamp_s"]
    assert ("", [], 0.5) == (
        back["gpus"][0]["lost"],
        back["devices"][0]["alerts"],
        back["gpus"][0]["utilization_ratio"],
    )
    assert [("cuda:0", AlertKind.LOST)] == watch.alerts
    assert ["a GPU no longer answers", "a GPU answers again"] == [record.message for record in caplog.records]


def stumbling():
    """A callback that raises the second time."""
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
        pytest.param({"batch_bytes": stumbling()}, id="a-callback-raises"),
    ],
)
def test_foreign_faults_are_survived(fault):
    """Whatever a source or a callback raises is counted; the last good look stays and the next one is taken."""
    watch = Watch(**fault)
    between = watch.after(2).monitor.report()["collector"]
    after = watch.after(1).monitor.report()["collector"]

    assert [(1, 1), (2, 1)] == [(one["looks"], one["errors"]) for one in (between, after)]
    assert watch.clock.now - 2 == between["last_success_timestamp_s"] - 1.7e9


def test_the_thread():
    """It looks by itself until stopped, can be started again, and leaves what it saw."""
    looked = Turnstile()
    watch = Watch(interval_s=SOON, counters=dict, batch_bytes=lambda device: looked())
    watch.monitor.start()
    looked.wait(3)
    running = watch.monitor.report()["collector"]["running"]
    watch.monitor.stop()
    seen = len(watch.driver.asked)
    watch.monitor.start()
    looked.wait(seen + 2)
    watch.monitor.stop()
    watch.monitor.stop()

    assert running
    assert [] == [thread for thread in threading.enumerate() if thread.name == "device-monitor"]
    assert watch.monitor.report()["collector"]["looks"] == len(watch.driver.asked)


def test_asked_from_many_threads():
    """Reports while the thread looks are whole: every device has its remarks, and looks only grow."""
    watch = Watch(TWO_CARDS, [ON_CARD, ON_OTHER], interval_s=SOON)
    watch.monitor.start()
    found = []

    def ask():
        found.append([watch.monitor.report() for _ in range(50)])

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30.0)
    watch.monitor.stop()

    assert 4 == len(found)
    for reports in found:
        looks = [one["collector"]["looks"] for one in reports]
        assert sorted(looks) == looks
        assert {2} == {len(one["devices"]) for one in reports}


def test_the_history_is_bounded():
    """A service that runs for months keeps ten minutes."""
    watch = Watch(interval_s=60.0).after(50, every_s=60.0)

    assert (11, 600.0) == tuple(
        watch.monitor.report()["devices"][0]["history"][name] for name in ("samples", "seconds")
    )


class Recorder:
    """A GPUPerformanceMonitor over fakes."""

    def __init__(self, facts=TWO_CARDS, device="auto", samples=(SAMPLE,), **options):
        self.clock, self.driver, self.torch = ManualClock(), FakeDriver(samples), FakeTorch()
        self.looked = Turnstile()
        self.monitor = GPUPerformanceMonitor(
            device, facts=facts, driver=self.driver, torch_source=self.torch, host=self.host, clock=self.turn, **options
        )

    def host(self):
        return host()

    def turn(self):
        self.looked()
        return float(self.looked.count)

    def run(self, looks, *, interval=SOON):
        self.monitor.start_monitoring(interval=interval)
        self.looked.wait(looks)
        self.monitor.stop_monitoring()
        return self.monitor


def test_performance_as_the_guide_calls_it():
    """start_monitoring, get_latest_metrics, stop_monitoring, get_metrics_history, by document 001."""
    recorder = Recorder(device="cuda:0")
    before = recorder.monitor.get_latest_metrics()
    metrics = recorder.run(3).get_latest_metrics()
    history = recorder.monitor.get_metrics_history()

    assert before is None
    assert "GPU Util: 50.0% Memory: 2.00GB" == (
        f"GPU Util: {metrics['gpu_utilization']}% Memory: {metrics['memory_allocated_gb']:.2f}GB"
    )
    assert len(history) >= 3
    assert sorted(one["elapsed_s"] for one in history) == [one["elapsed_s"] for one in history]
    assert metrics == history[-1]


def test_performance_asks_the_watched_card_alone():
    """The other cards of the machine are left in peace."""
    recorder = Recorder(device="cuda:1")
    recorder.run(2)

    assert {"GPU-2"} == set(recorder.driver.asked)


def test_performance_as_a_context():
    """The thread ends with the block, also when it fails."""
    recorder = Recorder()

    def train():
        with recorder.monitor as inside:
            recorder.looked.wait(1)
            assert recorder.monitor is inside
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train()

    assert [] == [thread for thread in threading.enumerate() if thread.name == "gpu-performance-monitor"]
    assert recorder.monitor.get_metrics_history()


def test_performance_can_start_again():
    """The history goes on where it was."""
    recorder = Recorder()
    first = len(recorder.run(2).get_metrics_history())
    recorder.run(recorder.looked.count + 2)

    assert len(recorder.monitor.get_metrics_history()) >= first + 2


def test_performance_history_is_bounded():
    """The oldest looks go."""
    recorder = Recorder(history=3)

    elapsed = [one["elapsed_s"] for one in recorder.run(6).get_metrics_history()]

    assert 3 == len(elapsed)
    assert elapsed[0] >= 4.0


def test_performance_of_a_vanishing_card(caplog):
    """Marked lost, told once, and recorded again when it is back."""
    recorder = Recorder(ONE_CARD, samples=[SAMPLE, LOST, LOST, SAMPLE])
    with caplog.at_level(logging.WARNING):
        history = recorder.run(5).get_metrics_history()

    assert ["", str(LOST), str(LOST), ""] == [one["lost"] for one in history[:4]]
    assert [50.0, None, None, 50.0] == [one["gpu_utilization"] for one in history[:4]]
    assert ["a GPU no longer answers"] == [record.message for record in caplog.records]


def test_performance_without_a_gpu():
    """This process's own memory, by the same names; no driver is asked."""
    recorder = Recorder(CPU)

    metrics = recorder.run(1).get_latest_metrics()

    assert ("CPU", 1.0, None, []) == (
        metrics["name"],
        metrics["memory_allocated_gb"],
        metrics["gpu_utilization"],
        recorder.driver.asked,
    )


@pytest.mark.parametrize(("device", "interval"), [("cuda:7", 1.0), ("cuda:0", 0.0)], ids=["no-such-card", "no-pace"])
def test_performance_refuses_at_once(device, interval):
    """A wish that cannot be granted is an error of the caller's thread, not of the background."""
    recorder = Recorder(device=device)
    with pytest.raises((DeviceUnavailable, ValueError)):
        recorder.monitor.start_monitoring(interval=interval)

    assert [] == [thread for thread in threading.enumerate() if thread.name == "gpu-performance-monitor"]


@pytest.fixture
def own_machine(device):
    """This process's machine as the doors see it, with the device the tests run on."""
    default_device.configure(probe(look_for_gpu=device != "cpu"), DeviceRequest(device=device))
    yield
    default_device.reset()


@pytest.mark.usefixtures("own_machine")
def test_performance_of_this_machine(device):
    """Without any argument it watches what this process computes on (--device cuda:0: a real card)."""
    if device != "cpu":
        torch.ones(2**20, device=device)
    found = GPUPerformanceMonitor()
    found._sampler = found._open()
    found._look()

    metrics = found.get_latest_metrics()

    assert metrics["device"] == device
    assert metrics["memory_allocated_gb"] > 0.0
    assert (metrics["gpu_utilization"] is None) is (device == "cpu")


@pytest.mark.parametrize("name", MACHINES)
def test_every_simulated_machine(name):
    """From a laptop to MIG slices: one shape, an answer for Prometheus, and the guides' record, whatever is missing."""
    machine, facts = simulated(name), machine_facts(name)
    sources = {"driver": machine.driver_source, "torch_source": machine.torch_source}
    placements = [place(facts, DeviceRequest())]

    found = json.loads(json.dumps(DeviceMonitor(facts, placements, **sources, host=host).report()))
    families = {family.name for family in text_string_to_metric_families(render_samples(readings(found)).decode())}
    recorder = GPUPerformanceMonitor(facts=facts, **sources, host=host)
    recorder._sampler = recorder._open()
    recorder._look()

    assert set(Watch().monitor.report()) == set(found)
    assert len(facts.gpus) == len(found["gpus"])
    assert found["available"] is bool(facts.usable)
    assert found["devices"][0]["headroom"]["bytes"] > 0
    assert ("financia_gpu_info" in families) is bool(facts.gpus)
    assert recorder.get_latest_metrics()["memory_allocated_gb"] > 0.0


def test_the_simulated_vanishing_card(caplog):
    """The card is lost after three readings and given back later; report and warnings follow."""
    machine, facts = simulated("vanishing"), machine_facts("vanishing")
    begun = []
    found = DeviceMonitor(
        facts,
        [place(facts, DeviceRequest())],
        driver=machine.driver_source,
        torch_source=machine.torch_source,
        on_alert=lambda device, alert: begun.append((device, alert.kind)),
        host=host,
    )
    losses = []
    for turn in range(8):
        machine.driver_source.lost = machine.driver_source.lost and turn < 6
        found._ticker.tick()
        losses.append(bool(found.report()["gpus"][0]["lost"]))

    assert [False] * 3 + [True] * 3 + [False] * 2 == losses
    assert [("cuda:0", AlertKind.LOST)] == begun
    assert 3 == found.report()["collector"]["errors"]


@pytest.mark.parametrize(("name", "expected"), [("rtx-4070-laptop", 1.0), ("wsl2", 5.0)])
def test_pace(name, expected):
    """WSL2 is asked less often; elsewhere once a second."""
    facts = machine_facts(name)

    assert expected == DeviceMonitor(facts, [ON_CPU], host=host).report()["collector"]["interval_s"]


def test_the_real_device(device):
    """All of it on the machine the tests run on: report, headroom and Prometheus text (--device cuda:0)."""
    driver, source = Nvml(), Torch()
    facts = probe(look_for_gpu=device != "cpu", driver=driver, torch_source=source)
    found = DeviceMonitor(facts, [place(facts, DeviceRequest(device=device))], driver=driver, torch_source=source)

    report = found.report()

    assert (device, device != "cpu") == (report["device"], report["available"])
    assert isinstance(found.headroom(device), Headroom)
    assert f'financia_gpu_available{{device="{device}"' in render_samples(readings(report)).decode()
