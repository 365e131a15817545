"""A task that trains in a fraction of a second, and faults to inject into its training."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from backend.training.records import Batch, LossPart, Observer, StepEvent, Task, TrainingConfig


def plain_config(**settings: Any) -> TrainingConfig:
    """Float32 on the CPU, where results can be compared digit by digit."""
    known: dict[str, Any] = {
        "device": "cpu",
        "use_amp": False,
        "num_workers": 0,
        "batch_size": 8,
        "epochs": 2,
        "learning_rate": 1e-2,
        "snapshot_every": 3,
    }
    return TrainingConfig(**{**known, **settings})


class ToyTask:
    """Sequences of several tokens each with a label, some ignored: the weight of a batch is not its number of items."""

    name = "toy"
    goal = "accuracy"

    def __init__(
        self,
        examples: int = 42,
        *,
        seed: int = 0,
        dropout: float = 0.0,
        splittable: bool = True,
        model: nn.Module | None = None,
        metrics: Sequence[Mapping[str, float]] | None = None,
    ) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.splittable = splittable
        self.inputs = torch.randn(examples, 5, 6, generator=generator)
        labels = torch.randint(0, 3, (examples, 5), generator=generator)
        ignored = torch.rand(examples, 5, generator=generator) < 0.4
        self.labels = labels.masked_fill(ignored, -100)
        self.lengths = [1 + index % 7 for index in range(examples)]
        self.evaluations = 0
        self._metrics = metrics
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.model = model or nn.Sequential(
                nn.Linear(6, 16), nn.LayerNorm(16), nn.GELU(), nn.Dropout(dropout), nn.Linear(16, 3)
            )

    def collate(self, indices: Sequence[int]) -> Batch:
        return {"inputs": self.inputs[list(indices)], "labels": self.labels[list(indices)], "ids": list(indices)}

    def loss(self, model: nn.Module, batch: Batch) -> LossPart:
        logits = model(batch["inputs"]).float()
        total = functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="sum")
        return LossPart(total, float((batch["labels"] != -100).sum()))

    def evaluate(self, model: nn.Module) -> Mapping[str, float]:
        self.evaluations += 1
        if self._metrics is not None:
            return self._metrics[min(self.evaluations, len(self._metrics)) - 1]
        counted = self.labels != -100
        return {"accuracy": float((model(self.inputs).argmax(-1) == self.labels)[counted].float().mean())}

    def publish(self, model: nn.Module, output: Path, notes: Mapping[str, Any]) -> None:
        raise AssertionError("the loop does not publish")


_: type[Task] = ToyTask  # it speaks the protocol


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """A copy of all parameters and buffers."""
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def same_bits(first: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    """Whether all tensors are equal to the last bit."""
    return first.keys() == other.keys() and all(torch.equal(first[name], other[name]) for name in first)


def difference(first: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> float:
    """The largest difference between two sets of weights."""
    return max(float((first[name].double() - other[name].double()).abs().max()) for name in first)


@dataclass
class Faults:
    """A FaultSource; each field is one way to break a run."""

    fits: int | None = None  # items of a micro-batch; more run out of memory
    fits_until: int | None = None  # step from which on ``fits`` counts
    broken: Callable[[int, Sequence[int]], bool] = lambda step, indices: False  # when the loss is NaN
    thrashing: Sequence[int] = ()  # steps in which the allocator retries
    error: BaseException | None = None  # raised at step 2
    seen: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)
    _retries: dict[int, int] = field(default_factory=dict)

    def before(self, step: int, indices: Sequence[int]) -> None:
        self.seen.append((step, tuple(indices)))
        if self.error is not None and step == 2:
            raise self.error
        if self.fits is not None and step >= (self.fits_until or 0) and len(indices) > self.fits:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    def loss(self, step: int, indices: Sequence[int], part: LossPart) -> LossPart:
        return LossPart(part.total * float("nan"), part.weight) if self.broken(step, indices) else part

    def retries(self, step: int) -> int:
        return sum(1 for thrashing in self.thrashing if thrashing <= step)


class RecordingObserver:
    """An observer that keeps every event."""

    def __init__(self) -> None:
        self.events: list[StepEvent] = []
        self.closed = 0

    def on_event(self, event: StepEvent) -> None:
        self.events.append(event)

    def close(self) -> None:
        self.closed += 1

    def of(self, kind: str) -> list[StepEvent]:
        return [event for event in self.events if event.kind == kind]


__: type[Observer] = RecordingObserver


class StopAt(RecordingObserver):
    """Asks the run to stop after a step, as a signal handler would."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.step, self.event = step, threading.Event()

    def on_event(self, event: StepEvent) -> None:
        super().on_event(event)
        if event.kind == "step" and event.step == self.step:
            self.event.set()
