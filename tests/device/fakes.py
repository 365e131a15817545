"""Machines for the tests of the monitor: a fake driver and allocator with scripted answers, and a manual clock."""

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from backend.device.plan.placement import Placement
from backend.device.records import (
    AllocatorStats,
    Card,
    CardSample,
    DeviceType,
    Driver,
    GPUInfo,
    GPULost,
    MachineFacts,
    Platform,
    Process,
    TorchBuild,
    TorchDevice,
)
from backend.device.watch.gpu_report import Collector, DeviceSummary, compose
from backend.device.watch.history import Headroom
from backend.device.watch.sampling import HostMemory, Sampler

GIB = 2**30
CARD = GPUInfo(0, "NVIDIA L4", "GPU-1", 24 * GIB, (8, 9), bf16=True)
OTHER = GPUInfo(1, "Tesla T4", "GPU-2", 16 * GIB, (7, 5), bf16=False)
DRIVER = Driver("580.95.05", (13, 0))
LINUX = Platform(container="docker")

ON_CARD = Placement("cuda:0", 1, 1, 2, ("NVIDIA L4: automatic choice",), uuid="GPU-1", memory_bytes=20 * GIB)
ON_OTHER = Placement("cuda:1", 1, 1, 2, ("Tesla T4: asked for",), uuid="GPU-2", memory_bytes=14 * GIB)
ON_APPLE = Placement("mps", 1, 1, 2, ("Apple M3: automatic choice",), memory_bytes=12 * GIB)
ON_CPU = Placement("cpu", 2, 1, 1, ("CPU: no NVIDIA driver answers",))

CPU = MachineFacts(2, "a processor", (), 8 * GIB, why_no_gpu="no NVIDIA driver answers")
TWO_CARDS = MachineFacts(8, "a processor", (), 64 * GIB, (CARD, OTHER), DeviceType.CUDA, platform=LINUX, driver=DRIVER)
APPLE = MachineFacts(
    8, "Apple M3", (), 18 * GIB, (GPUInfo(0, "Apple M3", "", 12 * GIB, (0, 0), bf16=True, unified=True),),
    DeviceType.MPS, platform=Platform("Darwin", "arm64"),
)  # fmt: skip

SAMPLE = CardSample(
    used_bytes=4 * GIB, free_bytes=20 * GIB, total_bytes=24 * GIB, utilization_ratio=0.5, bandwidth_ratio=0.25,
    temperature_celsius=54.0, power_watts=61.5, power_limit_watts=72.0, energy_joules=123.5,
    clocks_hz=(("sm", 2_040_000_000), ("memory", 6_251_000_000)), throttle=("sw_power_cap",), ecc_errors=0,
    pcie_replays=3, xid_errors=((31, 2),), processes=((17, "python", 3 * GIB), (4711, "train", None)),
)  # fmt: skip
ALLOCATOR = AllocatorStats(2 * GIB, 3 * GIB, 2 * GIB, 5 * GIB, 6 * GIB, retries=1, ooms=0, rejections=2, fraction=0.9)


def host() -> HostMemory:
    """Constant host memory."""
    return HostMemory(resident_bytes=GIB, free_bytes=6 * GIB)


@dataclass
class FakeDriver:
    """Returns or raises ``samples`` in order, then the last one for ever."""

    samples: Sequence[CardSample | Exception] = (SAMPLE,)
    asked: list[str] = field(default_factory=list)

    def sample(self, uuid: str) -> CardSample:
        self.asked.append(uuid)
        answer = self.samples[min(self.asked.count(uuid), len(self.samples)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def driver(self) -> Driver:
        return DRIVER

    def cards(self) -> tuple[Card, ...]:
        return ()

    def processes(self, uuid: str) -> tuple[Process, ...]:
        return self.sample(uuid).processes or ()

    def close(self) -> None:
        """Do nothing."""


@dataclass
class FakeTorch:
    """Returns ``stats`` in order, then the last one for ever."""

    stats: Sequence[AllocatorStats] = (ALLOCATOR,)
    asked: list[str] = field(default_factory=list)

    def allocator(self, device: str) -> AllocatorStats:
        self.asked.append(device)
        return self.stats[min(len(self.asked), len(self.stats)) - 1]

    def build(self) -> TorchBuild:
        return TorchBuild("2.13.0", "13.0")

    def devices(self) -> tuple[TorchDevice, ...]:
        return ()

    def mps(self) -> TorchDevice | None:
        return None

    def try_kernel(self, device: str) -> str:
        return ""


class Turnstile:
    """Counts calls and lets a test wait for a number of them, without sleeping."""

    def __init__(self, act: Callable[[], None] = lambda: None) -> None:
        self._act = act
        self._condition = threading.Condition()
        self.count = 0

    def __call__(self) -> None:
        try:
            self._act()
        finally:
            with self._condition:
                self.count += 1
                self._condition.notify_all()

    def wait(self, count: int) -> None:
        """Wait for ``count`` calls; fail after ten seconds."""
        with self._condition:
            assert self._condition.wait_for(lambda: self.count >= count, timeout=10.0), f"only {self.count} times"


LOST = GPULost("NVIDIA L4 has fallen off the bus")

COLLECTOR = Collector(running=True, interval_s=1.0, looks=3, errors=1, last_success_timestamp_s=1.7e9)
QUIET = DeviceSummary(Headroom(), frozenset(), ())


def snapshot(facts, placement, samples=(SAMPLE,)):
    """One snapshot of a sampler over the fakes."""
    sources = {"driver": FakeDriver(samples), "torch_source": FakeTorch(), "host": host}
    return Sampler(facts, [placement], **sources, clock=lambda: 1.0).snapshot()


def report(facts=TWO_CARDS, placement=ON_CARD, samples=(SAMPLE,), summary=QUIET, own_pid=17):
    """The body of GET /metrics/gpu, as a client parses it."""
    body = compose(
        facts,
        snapshot(facts, placement, samples),
        {placement.device: summary},
        collector=COLLECTOR,
        counters={"oom_recoveries_total": 3.0},
        own_pid=own_pid,
    )
    return json.loads(json.dumps(body))


MACHINES = [
    pytest.param(TWO_CARDS, ON_CARD, (SAMPLE,), True, id="cuda"),
    pytest.param(TWO_CARDS, ON_CARD, (LOST,), True, id="cuda-lost"),
    pytest.param(TWO_CARDS, ON_CARD, (CardSample(),), True, id="cuda-without-sensors"),
    pytest.param(APPLE, ON_APPLE, (), True, id="apple"),
    pytest.param(CPU, ON_CPU, (), False, id="cpu"),
    pytest.param(TWO_CARDS, ON_CPU, (SAMPLE,), False, id="cpu-beside-cards"),
]
