"""Engines that fail one way each, and a clock that moves only when told."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from backend.engines.engine import BatchLimits, Capacity, Engine, UnlimitedBatches

PATIENCE_S = 10.0  # only bounds a broken test; nothing waits this long in a sound one

Stage = Literal["prepare", "forward", "finish"]


class ManualClock:
    """Monotonic time that stands still until ``advance``."""

    def __init__(self, now_s: float = 1000.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        """The time now, in seconds."""
        return self.now_s

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now_s += seconds


@dataclass
class EchoEngine:
    """Answers each payload with itself and remembers every batch it ran."""

    name: str = "echo"
    budget: int = 100
    padding_cost: float = 1.0
    batches: list[list[Any]] = field(default_factory=list)
    batch_limits: BatchLimits = field(default_factory=UnlimitedBatches)

    def on(self, device_index: int) -> Any:
        """Itself."""
        return self

    def prepare(self, payloads: Sequence[Any]) -> Any:
        """Keep the payloads as they are."""
        return list(payloads)

    def forward(self, prepared: Any) -> Any:
        """Note the batch."""
        self.batches.append(list(prepared))
        return prepared

    def finish(self, output: Any) -> Sequence[Any]:
        """One result a payload: itself."""
        return list(output)


@dataclass
class GatedEngine(EchoEngine):
    """Hangs in ``forward`` until ``gate`` opens; ``entered`` tells that a batch is inside."""

    name: str = "gated"
    gate: threading.Event = field(default_factory=threading.Event)
    entered: threading.Event = field(default_factory=threading.Event)

    def forward(self, prepared: Any) -> Any:
        """Note the batch and wait for the gate."""
        output = super().forward(prepared)
        self.entered.set()
        assert self.gate.wait(PATIENCE_S), "the test never opened the gate"
        return output


@dataclass
class AsyncEngine(EchoEngine):
    """An accelerator: ``forward`` returns at once, ``finish`` waits for ``gate``; ``steps`` is the order of events."""

    name: str = "async"
    gate: threading.Event = field(default_factory=threading.Event)
    launched_twice: threading.Event = field(default_factory=threading.Event)
    steps: list[tuple[Stage, Any]] = field(default_factory=list)

    def prepare(self, payloads: Sequence[Any]) -> Any:
        """Note the step."""
        self.steps.append(("prepare", list(payloads)))
        return list(payloads)

    def forward(self, prepared: Any) -> Any:
        """Note the step; tell when a second batch was launched."""
        self.steps.append(("forward", prepared))
        self.batches.append(prepared)
        if len(self.batches) == 2:
            self.launched_twice.set()
        return prepared

    def finish(self, output: Any) -> Sequence[Any]:
        """Wait for the device, then note the step."""
        assert self.gate.wait(PATIENCE_S), "the test never opened the gate"
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
        """Raise if it is this stage's turn."""
        self._fail("prepare", payloads)
        return super().prepare(payloads)

    def forward(self, prepared: Any) -> Any:
        """Raise if it is this stage's turn."""
        output = super().forward(prepared)
        self._fail("forward", prepared)
        return output

    def finish(self, output: Any) -> Sequence[Any]:
        """Raise if it is this stage's turn."""
        self._fail("finish", output)
        return super().finish(output)

    def _fail(self, stage: Stage, payloads: Sequence[Any]) -> None:
        if stage == self.stage and (self.poison is None or self.poison in payloads):
            raise self.error


@dataclass
class MiscountingEngine(EchoEngine):
    """Loses the last result of every batch."""

    name: str = "miscounting"

    def finish(self, output: Any) -> Sequence[Any]:
        """One result too few."""
        return list(output)[:-1]


@dataclass
class NoisyEngine(EchoEngine):
    """Forgets the result of ``poison`` when it has neighbours: a batch that differs from its singles."""

    name: str = "noisy"
    poison: Any = None

    def finish(self, output: Any) -> Sequence[Any]:
        """One result too few while ``poison`` is not alone."""
        return [payload for payload in output if payload != self.poison or len(output) == 1]


@dataclass
class TimedEngine(EchoEngine):
    """Takes ``batch_s`` on a manual clock for every batch."""

    name: str = "timed"
    clock: ManualClock = field(default_factory=ManualClock)
    batch_s: float = 1.0

    def forward(self, prepared: Any) -> Any:
        """Let the time pass."""
        self.clock.advance(self.batch_s)
        return super().forward(prepared)


class NotingRoom(UnlimitedBatches):
    """Says what a test lets it say, and remembers what it is told."""

    def __init__(self, fits: int = 1 << 30) -> None:
        self.fits = fits
        self.misses: list[tuple[int, int]] = []
        self.successes: list[tuple[int, int]] = []

    def capacity(self) -> Capacity:
        """The same number for every length."""
        return lambda longest: self.fits

    def out_of_memory(self, longest: int, count: int) -> None:
        """Note it."""
        self.misses.append((longest, count))

    def succeeded(self, longest: int, count: int) -> None:
        """Note it."""
        self.successes.append((longest, count))


@dataclass
class CrampedEngine(EchoEngine):
    """A card that runs out of memory when more than ``fits`` payloads run at once, as torch says it."""

    name: str = "cramped"
    fits: int = 2
    message: str = "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 8.00 GiB"

    def forward(self, prepared: Any) -> Any:
        """Run, or run out."""
        output = super().forward(prepared)
        if len(prepared) > self.fits:
            raise RuntimeError(self.message)
        return output


@dataclass
class PlacedEngine(EchoEngine):
    """One of several devices; hangs until ``gate`` opens, so that a test sees who took what."""

    name: str = "placed"
    device_index: int = 0
    gate: threading.Event = field(default_factory=threading.Event)
    entered: threading.Event = field(default_factory=threading.Event)

    def forward(self, prepared: Any) -> Any:
        """Tell that a batch is inside."""
        self.entered.set()
        return super().forward(prepared)

    def finish(self, output: Any) -> Sequence[Any]:
        """Which device answered."""
        assert self.gate.wait(PATIENCE_S), "the test never opened the gate"
        return [(self.device_index, payload) for payload in output]


ENGINES: tuple[type[Engine], ...] = (
    EchoEngine,
    GatedEngine,
    AsyncEngine,
    FailingEngine,
    MiscountingEngine,
    NoisyEngine,
    TimedEngine,
    CrampedEngine,
    PlacedEngine,
)
