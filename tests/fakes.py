"""Fake engines, each with one behaviour or one way to fail, and a clock that moves only by ``advance``."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from backend.lanes.engine import BatchLimits, Capacity, Engine, UnlimitedBatches

TEST_TIMEOUT_S = 60.0  # only bounds a broken test; on a busy machine a passing one was seen to take over 10 s

Stage = Literal["prepare", "forward", "finish"]


class ManualClock:
    """Monotonic time that stands still until ``advance``."""

    def __init__(self, now_s: float = 1000.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s

    def advance(self, seconds: float) -> None:
        self.now_s += seconds


@dataclass
class EchoEngine:
    """Answers each payload with itself and records every batch it ran."""

    name: str = "echo"
    budget: int = 100
    padding_cost: float = 1.0
    launch_cost: int = 0
    batches: list[list[Any]] = field(default_factory=list)
    batch_limits: BatchLimits = field(default_factory=UnlimitedBatches)

    def on(self, device_index: int) -> Any:
        return self

    def prepare(self, payloads: Sequence[Any]) -> Any:
        return list(payloads)

    def forward(self, prepared: Any) -> Any:
        self.batches.append(list(prepared))
        return prepared

    def finish(self, output: Any) -> Sequence[Any]:
        return list(output)


@dataclass
class GatedEngine(EchoEngine):
    """Hangs in ``forward`` until ``gate`` is set; ``entered`` is set once a batch is inside."""

    name: str = "gated"
    gate: threading.Event = field(default_factory=threading.Event)
    entered: threading.Event = field(default_factory=threading.Event)

    def forward(self, prepared: Any) -> Any:
        output = super().forward(prepared)
        self.entered.set()
        assert self.gate.wait(TEST_TIMEOUT_S), "the test never opened the gate"
        return output


@dataclass
class AsyncEngine(EchoEngine):
    """An accelerator: ``forward`` returns at once, ``finish`` waits for ``gate``; ``steps`` records all calls."""

    name: str = "async"
    gate: threading.Event = field(default_factory=threading.Event)
    launched_twice: threading.Event = field(default_factory=threading.Event)
    steps: list[tuple[Stage, Any]] = field(default_factory=list)

    def prepare(self, payloads: Sequence[Any]) -> Any:
        self.steps.append(("prepare", list(payloads)))
        return list(payloads)

    def forward(self, prepared: Any) -> Any:
        self.steps.append(("forward", prepared))
        self.batches.append(prepared)
        if len(self.batches) == 2:
            self.launched_twice.set()
        return prepared

    def finish(self, output: Any) -> Sequence[Any]:
        assert self.gate.wait(TEST_TIMEOUT_S), "the test never opened the gate"
        self.steps.append(("finish", output))
        return list(output)


@dataclass
class FailingEngine(EchoEngine):
    """Raises ``error`` at ``stage`` for a batch that holds ``poison``; for every batch when ``poison`` is None."""

    name: str = "failing"
    stage: Stage = "forward"
    poison: Any = None
    error: BaseException = field(default_factory=lambda: RuntimeError("broken on purpose"))

    def prepare(self, payloads: Sequence[Any]) -> Any:
        self._fail("prepare", payloads)
        return super().prepare(payloads)

    def forward(self, prepared: Any) -> Any:
        output = super().forward(prepared)
        self._fail("forward", prepared)
        return output

    def finish(self, output: Any) -> Sequence[Any]:
        self._fail("finish", output)
        return super().finish(output)

    def _fail(self, stage: Stage, payloads: Sequence[Any]) -> None:
        if stage == self.stage and (self.poison is None or self.poison in payloads):
            raise self.error


@dataclass
class MiscountingEngine(EchoEngine):
    """Returns one result too few for every batch."""

    name: str = "miscounting"

    def finish(self, output: Any) -> Sequence[Any]:
        return list(output)[:-1]


@dataclass
class NoisyEngine(EchoEngine):
    """Omits the result of ``poison`` unless it runs alone: a batch that differs from its singles."""

    name: str = "noisy"
    poison: Any = None

    def finish(self, output: Any) -> Sequence[Any]:
        return [payload for payload in output if payload != self.poison or len(output) == 1]


@dataclass
class TimedEngine(EchoEngine):
    """Takes ``batch_s`` on a manual clock for every batch."""

    name: str = "timed"
    clock: ManualClock = field(default_factory=ManualClock)
    batch_s: float = 1.0

    def forward(self, prepared: Any) -> Any:
        self.clock.advance(self.batch_s)
        return super().forward(prepared)


class RecordingBatchLimits(UnlimitedBatches):
    """Has the capacity that a test chooses, and records the calls of the lane."""

    def __init__(self, limit: int = 1 << 30) -> None:
        self.limit = limit
        self.misses: list[tuple[int, int]] = []
        self.successes: list[tuple[int, int]] = []

    def capacity(self) -> Capacity:
        return lambda longest: self.limit

    def out_of_memory(self, longest: int, count: int) -> None:
        self.misses.append((longest, count))

    def succeeded(self, longest: int, count: int) -> None:
        self.successes.append((longest, count))


@dataclass
class OutOfMemoryEngine(EchoEngine):
    """Raises torch's out-of-memory error when more than ``limit`` payloads run at once."""

    name: str = "out_of_memory"
    limit: int = 2
    message: str = "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 8.00 GiB"

    def forward(self, prepared: Any) -> Any:
        output = super().forward(prepared)
        if len(prepared) > self.limit:
            raise RuntimeError(self.message)
        return output


@dataclass
class PlacedEngine(EchoEngine):
    """A replica on one of several devices; answers with its device, once ``gate`` is set."""

    name: str = "placed"
    device_index: int = 0
    gate: threading.Event = field(default_factory=threading.Event)
    entered: threading.Event = field(default_factory=threading.Event)

    def forward(self, prepared: Any) -> Any:
        self.entered.set()
        return super().forward(prepared)

    def finish(self, output: Any) -> Sequence[Any]:
        assert self.gate.wait(TEST_TIMEOUT_S), "the test never opened the gate"
        return [(self.device_index, payload) for payload in output]


ENGINES: tuple[type[Engine], ...] = (
    EchoEngine, GatedEngine, AsyncEngine, FailingEngine, MiscountingEngine, NoisyEngine, TimedEngine,
    OutOfMemoryEngine, PlacedEngine,
)  # fmt: skip


async def longest_step_s(work: Awaitable[object]) -> float:
    """Processor seconds of the event loop's longest step while ``work`` runs; how busy the machine is says nothing."""
    loop = asyncio.get_running_loop()
    longest_s, before_s, measured = 0.0, time.thread_time(), asyncio.Event()

    def tick() -> None:
        nonlocal longest_s, before_s, timer
        now_s = time.thread_time()
        longest_s, before_s = max(longest_s, now_s - before_s), now_s
        measured.set()
        timer = loop.call_later(0.001, tick)

    timer = loop.call_soon(tick)
    try:
        await work
        measured.clear()
        await measured.wait()  # the step that ended it
        return longest_s
    finally:
        timer.cancel()


async def turns(count: int = 20) -> None:
    """Run the event loop's ready tasks; no time passes."""
    for _ in range(count):
        await asyncio.sleep(0)


async def turns_until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(TEST_TIMEOUT_S):
        while not condition():  # noqa: ASYNC110 - a turn of the loop, no time
            await asyncio.sleep(0)


async def results(items: Sequence[Any]) -> list[Any]:
    """Every work item's result or error, in order."""
    futures = [item.future for item in items]
    return await asyncio.wait_for(asyncio.gather(*futures, return_exceptions=True), TEST_TIMEOUT_S)
